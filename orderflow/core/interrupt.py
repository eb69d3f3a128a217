"""Ctrl-C that is not lost on the way.

Python raises `KeyboardInterrupt` in whatever the main thread runs at that moment. Inside a client's
callback (librdkafka's `error_cb`) or a finalizer it is dropped, and the command would go on as if nobody
had asked. So an interrupt is noted before it is raised; loops that wait call `heed`.
"""

import signal
from types import FrameType

# A process has one handler for each signal, and so one note.
_noted: list[int] = []


def note() -> None:
    """Note interrupts from now on. Leaves a handler alone that is not Python's own. Main thread only."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)


def interrupted(number: int, _frame: FrameType | None) -> None:
    """Note it and raise `KeyboardInterrupt`: a handler for any signal that shall act as Ctrl-C does."""
    _noted.append(number)
    raise KeyboardInterrupt


def was_asked() -> bool:
    """Return whether an interrupt came, dropped or not."""
    return bool(_noted)


def heed() -> None:
    """Raise `KeyboardInterrupt` when one came before and was dropped."""
    if _noted:
        raise KeyboardInterrupt
