"""The folder of downloads, shared by every stack of this user."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orderflow.core.errors import Misconfigured

_SCRATCH = "scratch"


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return where downloads are kept: `$XDG_CACHE_HOME/orderflow`, by default `~/.cache/orderflow`."""
    base = (os.environ if environ is None else environ).get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "orderflow"


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Let one process at a time fill `folder`; yield an empty folder beside the final files, removed afterwards.

    What is renamed out of it is whole, so an interrupted download leaves nothing that looks like one.
    Raises `Misconfigured` when the cache cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        message = f"{error.filename} cannot be written ({error.strerror}); set XDG_CACHE_HOME to a folder that can"
        raise Misconfigured(message) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = folder / _SCRATCH
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
