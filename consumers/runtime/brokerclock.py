"""Pure: when a retry is due on the broker's clock, told from our own."""


class BrokerClock:
    """An upper bound on (our monotonic clock - the broker's clock), kept from records as they arrive.

    A record appended at `a` on the broker's clock and in our hands at `r` on ours proves that the
    difference is at most `r - a`. The smallest such bound of the last minutes is used, so a retry is
    never early, whatever the clocks say, and late by the quickest delivery seen (a few milliseconds).
    All times are milliseconds. Monotonic, so that a step of our wall clock changes nothing; bounds
    are forgotten after one to two windows, since clocks drift.
    """

    WINDOW_MS = 300_000.0

    def __init__(self) -> None:
        self._recent = self._former = float("inf")
        self._turns = float("-inf")

    def arrived(self, appended_ms: int, monotonic_ms: float) -> None:
        """Learn from one record or delivery report; `appended_ms` must be the broker's (LogAppendTime)."""
        if monotonic_ms >= self._turns:
            self._former, self._recent = self._recent, float("inf")
            self._turns = monotonic_ms + self.WINDOW_MS
        self._recent = min(self._recent, monotonic_ms - appended_ms)

    def due(self, appended_ms: int, delay_ms: int) -> float:
        """Return our monotonic milliseconds at which `appended_ms + delay_ms` has surely passed.

        Needs at least one `arrived` before: the record itself will do.
        """
        return appended_ms + delay_ms + min(self._recent, self._former)
