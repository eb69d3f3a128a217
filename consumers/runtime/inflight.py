"""What this process has claimed and not settled yet, by token."""

from collections.abc import Iterator

from consumers.runtime.record import Record


class InFlight:
    """The claims in hand, and the deliveries that wait behind one of them.

    A delivery may be chained only behind one that is still here: behind a forgotten one it would
    wait for ever.
    """

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._behind: dict[str, list[Record]] = {}

    def __len__(self) -> int:
        """Return how many claims are in hand."""
        return len(self._records)

    def __contains__(self, token: str) -> bool:
        """Return whether this claim is in hand."""
        return token in self._records

    def __iter__(self) -> Iterator[Record]:
        """Iterate over a snapshot of the records."""
        return iter(list(self._records.values()))

    def add(self, record: Record) -> None:
        """Note a granted claim."""
        self._records[record.token] = record

    def chain(self, record: Record, owner: str) -> None:
        """Let `record` wait until the claim `owner` is settled."""
        self._behind.setdefault(owner, []).append(record)

    def remove(self, record: Record) -> list[Record]:
        """Forget a settled claim; returns the deliveries that waited behind it."""
        self._records.pop(record.token, None)
        return self._behind.pop(record.token, [])
