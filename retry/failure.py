"""Pure: what a copy may say about the error that made it, without a word out of the event.

The stack names files by their module's place, never by this machine's folders; messages are taken from
our own classes only, since anybody else's may quote an address or a password.
"""

import hashlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath
from types import FrameType
from typing import Self

from orderflow.core.errors import OrderflowError
from retry.errors import HandlerError
from retry.policy import Stage
from schemas.errors import CodecError

NAME_BYTES = 256
MESSAGE_BYTES = 1024
STACK_BYTES = 8 * 1024
_MAX_CAUSES = 5
_MAX_FRAMES = 200
_FINGERPRINT_FRAMES = 3

_OWN = (HandlerError, OrderflowError, CodecError)


class Crashed(HandlerError):
    """Stands for the runs that took the process with them; never raised."""


class OtherBytes(HandlerError):
    """Stands for an event id that came with other bytes before; never raised."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure as it travels in headers.

    `attempts` are the handler attempts so far, this one included if the handler ran. `at_ms` is when it
    failed, on Redis' clock, in epoch milliseconds. `fingerprint` groups equal causes: it leaves out
    line numbers and messages, so that a deployment or another order does not change it.
    """

    stage: Stage
    class_name: str
    message: str
    stack: str
    fingerprint: str
    attempts: int
    at_ms: int

    @classmethod
    def of(cls, error: BaseException, *, stage: Stage, attempts: int, at_ms: int) -> Self:
        """Take from an error what may be told. Never raises, whatever the error's own methods do."""
        name = class_name(error)
        top = "\n".join(f"{file} {function}" for file, _, function in islice(_frames(error), _FINGERPRINT_FRAMES))
        digest = hashlib.sha256(f"{stage}\n{name}\n{top}".encode(errors="replace")).hexdigest()[:16]
        message = _said(error) if isinstance(error, _OWN) else ""
        return cls(stage, name, cut(message, MESSAGE_BYTES), _stack(error), digest, attempts, at_ms)

    def smaller(self) -> Self | None:
        """Return it without its stack, or else without its message; None when there is nothing left to drop."""
        if self.stack:
            return replace(self, stack="")
        if self.message:
            return replace(self, message="")
        return None


def class_name(error: BaseException) -> str:
    """Return the error's class with its module (built-in ones without), at most 256 bytes."""
    cls = type(error)
    return cut(cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}", NAME_BYTES)


def cut(text: str, most: int) -> str:
    """Return text that can be written as UTF-8 in `most` bytes, cut between characters."""
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a class of another team with a broken __str__ must not stop the route
        return ""


def _stack(error: BaseException) -> str:
    """Return the innermost frames first, then those of the causes; whole lines, at most 8 KiB."""
    lines: list[str] = []
    left = STACK_BYTES
    for line in _lines(error):
        left -= len(line.encode(errors="replace")) + 1
        if left < 0:
            break
        lines.append(line)
    return cut("\n".join(lines), STACK_BYTES)


def _lines(error: BaseException) -> Iterator[str]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen and len(seen) <= _MAX_CAUSES:
        if seen:
            yield f"caused by {class_name(cause)}"
        seen.add(id(cause))
        yield from (f"{file}:{line} {function}" for file, line, function in _frames(cause))
        # `or` would ask the exception, whose class may have a __len__ or a __bool__ of its own.
        cause = cause.__context__ if cause.__cause__ is None and not cause.__suppress_context__ else cause.__cause__


def _frames(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """Return file, line and function, innermost first."""
    frames = list(traceback.walk_tb(error.__traceback__))[-_MAX_FRAMES:]
    return ((_file(frame), line, frame.f_code.co_qualname) for frame, line in reversed(frames))


def _file(frame: FrameType) -> str:
    """Return the file's path from its root package on: `consumers/email/group.py`."""
    path = PurePath(frame.f_code.co_filename)
    module = str(frame.f_globals.get("__name__", ""))
    depth = module.count(".") + (2 if path.stem == "__init__" else 1)
    return PurePath(*path.parts[-depth:]).as_posix() if path.parts else ""
