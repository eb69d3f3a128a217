"""Which stack the tests use.

`ORDERFLOW_TEST_STACK` says it: `docker`, `local`, or `FOLDER/.orderflow` to join the one that
`orderflow stack up --quick-groups` left running in FOLDER, which saves some seconds a run. Without it: containers where
a Docker engine answers and has the images or can pull them, else the parts that the extra `local` brings.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from orderflow.core.errors import OrderflowError
from orderflow.ops.stack.stack import LocalStack
from tests.stacks.interface import Stack

VARIABLE = "ORDERFLOW_TEST_STACK"


def unavailable(reason: str) -> NoReturn:
    """Skip at home; fail in CI, where a skipped promise would look like a kept one."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def local(choice: str | None, folder: Path) -> Iterator[LocalStack]:
    """Processes of this machine: the stack of a folder, or one for this run alone under `folder`."""
    joins = choice not in {None, "docker", "local"}
    with contextlib.ExitStack() as whole:
        try:
            found = LocalStack.join(Path(choice or "")) if joins else LocalStack.temporary(folder)
            running = whole.enter_context(found)
        except OrderflowError as error:
            unavailable(f"the local stack does not start: {error}")
        yield running


@contextlib.contextmanager
def containers(choice: str | None, folder: Path) -> Iterator[Stack | None]:
    """Containers, or None where there are none to be had and the choice leaves it open."""
    if choice not in {None, "docker"}:
        yield None
        return
    # Only here: with its clients it takes half a second to import.
    from tests.stacks.containers import ContainerStack, NoContainers, find_engine

    with contextlib.ExitStack() as whole:
        running: Stack | None = None
        answers = False
        try:
            find_engine()
            answers = True
            running = whole.enter_context(ContainerStack(folder))
        except NoContainers as error:
            if choice == "docker":
                unavailable(f"{VARIABLE}=docker: {error}")
            if answers:
                # Said, or nobody would know why it took so long.
                warnings.warn(f"{error}; using the local stack instead ({VARIABLE}=local)", stacklevel=2)
        yield running
