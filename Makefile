# Everything here works with Python 3.11+ and make alone.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
UV     ?= uv

# A folder of ours never shadows the standard library (`consumers/email` would).
export PYTHONSAFEPATH := 1

.DEFAULT_GOAL := help
.PHONY: help demo up down test faults chaos mutants check bench lock

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.product ## the guided run: real Kafka, 200 orders, cleans up
	@$(BIN)/orderflow demo

up: $(VENV)/.product ## everything on this machine, left running on fixed ports
	@$(BIN)/orderflow up || { code=$$?; [ $$code -eq 141 ] || exit $$code; } # `make up | head` is no failure

down: $(VENV)/.product ## stop what `make up` started
	@$(BIN)/orderflow down

test: $(VENV)/.dev ## the tests, on real parts (8 minutes)
	$(BIN)/pytest -n 3 --dist loadfile

faults: $(VENV)/.dev ## the long suites: outages, load, the documents (SHORT=1: minutes)
	$(BIN)/pytest -m long $(if $(SHORT),--short -n 2 --dist loadfile)

chaos: $(VENV)/.dev ## a shop under random faults, and the proof (SECONDS=120 SEED=1)
	@$(BIN)/python -m tests.chaos.run $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

mutants: $(VENV)/.dev ## break each rule on purpose: its test must fail (minutes)
	@$(BIN)/python tests/mutants/run.py

check: $(VENV)/.dev ## style, types, import rules, dependencies, schemas
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/pip check
	$(BIN)/orderflow schemas check

bench: $(VENV)/.dev ## measure speed and size (minutes)
	@set -e; for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script; done

# Constraints keep both locks at the same versions, so that tests run what users run.
COMPILE = $(UV) pip compile pyproject.toml --extra local --universal --generate-hashes --python-version 3.11 \
	--no-header --no-emit-index-url --no-emit-find-links --quiet
lock: ## pin the dependencies with hashes (needs uv; UPGRADE=--upgrade takes the newest)
	$(COMPILE) $(UPGRADE) --group build -o requirements.lock
	$(COMPILE) $(UPGRADE) --group dev -c requirements.lock -o requirements-dev.lock

# One environment in two steps: a newcomer's `make demo` installs only what the demo needs.
# What is never imported need not be compiled: that saves a quarter of a first install's CPU time.
INSTALL = $(BIN)/pip install --quiet --no-compile --require-hashes
# Its hundreds of lines would hide the first screen of `make demo`.
INSTALLING = echo "installing $$(grep == $< | grep -vc win32) packages into $(VENV) (a minute or two) ..."
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "orderflow needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.product: requirements.lock pyproject.toml | $(BIN)/python
	@$(INSTALLING)
	@$(INSTALL) -r requirements.lock
	@$(BIN)/pip install --quiet --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.product
	@$(INSTALLING)
	@$(INSTALL) -r requirements-dev.lock
	@touch $@
