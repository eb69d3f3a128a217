"""Logging: structlog, one canonical line per unit of work, to standard error."""

import logging
import sys
from typing import Literal

import structlog

Format = Literal["auto", "console", "json"]


def configure(level: str = "info", log_format: Format = "auto", **bound: str) -> None:
    """Set up logging for this process.

    `auto` is coloured lines on a terminal and JSON lines elsewhere. `bound` (role, group) stands
    on every line. Never log a value, an email, an address or a secret: ids and counts only.
    """
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # Looked up late, so that a test's or a daemon's replaced stderr is honoured.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(**bound)


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of a module; `name` is its `__name__`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(module=name)
    return logger


class RateLimited:
    """Lets one line through per `every` seconds and counts what it held back.

    librdkafka's `error_cb` fired 3,344 times in one broker outage.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._next: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def allow(self, key: str, now: float) -> int | None:
        """Return how many lines of `key` were held back since the last one, or None to hold this one too."""
        if now < self._next.get(key, float("-inf")):
            self._held[key] = self._held.get(key, 0) + 1
            return None
        self._next[key] = now + self._every
        return self._held.pop(key, 0)
