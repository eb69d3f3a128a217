"""One environment for each peer, made once and kept in the folder of downloads."""

import hashlib
import subprocess
import sys
from pathlib import Path

from orderflow.ops.stack.cache import cache_dir

_HERE = Path(__file__).parent


def python_of(peer: str) -> str:
    """Return the interpreter of a peer's environment, which is made when it is not there.

    Another content of its requirements is another environment. One peer declares a newer Python than
    ours may be; it is told to run nevertheless, since a race needs one interpreter.
    """
    wanted = _HERE / f"requirements-{peer}.txt"
    mark = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache_dir() / "peers" / f"{peer}-{mark}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"installing {peer} (once, half a minute) ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)  # noqa: S603 - our own interpreter
        install = [str(python), "-m", "pip", "install", "--quiet", "--ignore-requires-python", "-r", str(wanted)]
        subprocess.run(install, check=True)  # noqa: S603 - pinned names only
        ready.touch()
    return str(python)
