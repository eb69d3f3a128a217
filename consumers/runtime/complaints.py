"""Says why work is held: once for each cause in a while, not once for each record."""

from orderflow.core import clock, log
from orderflow.core.holds import HoldReason
from retry.errors import HandlerError

_EVERY_SECONDS = 10.0

_log = log.get(__name__)


class Complaints:
    """Logs what a dependency does to us. Only words of our own classes: others may quote a value."""

    def __init__(self) -> None:
        self._limit = log.RateLimited(_EVERY_SECONDS)

    def held(self, reason: HoldReason, error: BaseException) -> None:
        """Note that a record waits because of this error."""
        said = str(error) if isinstance(error, HandlerError) and str(error) else type(error).__name__
        repeated = self._limit.allow(said, clock.monotonic())
        if repeated is not None:
            _log.warning("work is held", reason=reason.value, error=said, repeated=repeated)
