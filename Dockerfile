# One image for every role: `docker run orderflow api`, `relay`, `worker GROUP`, `provision`, ...
# Needs nothing of BuildKit, so that the classic builder makes it too.

# Another Debian-like image with Python 3.11 to 3.14 as `python` does as well; pin yours by digest.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src

# Every file from an index is checked against the lock. The lock holds the extra `local` too (there are two
# locks, not a third that would have to be kept equal): what of it goes into the image is decided below.
COPY requirements.lock ./
RUN python -m venv /build \
 && /build/bin/pip wheel --require-hashes --only-binary=:all: --wheel-dir /wheels -r requirements.lock \
 && /build/bin/pip install --no-index --find-links /wheels hatchling

COPY LICENSE README.md pyproject.toml ./
COPY consumers/ consumers/
COPY orderflow/ orderflow/
COPY producers/ producers/
COPY retry/ retry/
COPY schemas/ schemas/

# From the checked wheels alone, and only what the product asks for: no extra, no build backend, no pip.
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
 && python -m venv --without-pip /opt/orderflow \
 && /build/bin/pip --python /opt/orderflow/bin/python install --no-index --find-links /wheels orderflow

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 10001 orderflow \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin orderflow
# Images of Python come without compiled modules, and here nothing can be written later: each start and each health
# check would compile what it imports of the standard library again.
RUN python -m compileall -q -x '/(tests?|lib2to3|site-packages)/' \
      "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/orderflow /opt/orderflow
# The working folder holds no code. The samples fill a shop that has nothing to sell yet.
WORKDIR /app
COPY orderflow/ops/samples/*.json samples/
# A folder of ours must never shadow the standard library (`consumers/email` would); nothing is written.
ENV PATH=/opt/orderflow/bin:$PATH PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
ENTRYPOINT ["orderflow"]
CMD ["--help"]
