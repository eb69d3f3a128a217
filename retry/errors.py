"""What a handler raises to say how it failed; anything else is an unexpected failure.

    HandlerError
    ├── Reject      this event will never work; straight to the dead letters
    ├── Retry       this event may work later; the next retry topic
    ├── Throttled   the provider asks all of us to slow down; the group rests, no attempt is burnt
    └── Outage      a dependency of the whole group is down or refuses us; held, no attempt is burnt

Only these four promise that no effect happened. After any other exception, and after a passed
deadline, the next run is told `delivery.maybe_done`.
The message travels in the headers of a dead letter: no personal data, no secret in it.
"""


class HandlerError(Exception):
    """Base of what a handler raises on purpose."""


class Reject(HandlerError):
    """Raised when the event can never be handled: the recipient does not exist, a rule forbids it."""


class Retry(HandlerError):
    """Raised when the event may work later; `after` seconds picks a longer tier if it is needed."""

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Throttled(HandlerError):
    """Raised on a rate limit (429): the whole group's intake rests for `after` seconds."""

    def __init__(self, message: str = "", *, after: float) -> None:
        super().__init__(message)
        self.after = after


class Outage(HandlerError):
    """Raised when a dependency is down, or refuses us: connection refused, time-out, wrong password."""
