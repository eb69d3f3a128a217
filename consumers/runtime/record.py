"""One record in a worker's hands: where it came from, and how far this process is with it."""

from dataclasses import dataclass

from consumers.runtime.claims import ClaimRequest, Pair
from retry.story import Story

Place = tuple[str, int]  # topic, partition


@dataclass(slots=True, eq=False)
class Record:
    """A delivered record that is not resolved yet.

    `epoch` is the assignment it was delivered under, `due` our monotonic seconds before which it must
    not run. `event_id` is "" when header and payload do not name one event: it can then neither be
    claimed nor handled.
    """

    topic: str
    partition: int
    offset: int
    epoch: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int
    due: float
    story: Story
    event_id: str = ""
    schema_known: bool = True
    payload_hash: bytes = b""

    # This process's own state; a new token for every try.
    token: str = ""
    crashes: int = 0
    maybe_done: bool = False
    started_at: float | None = None
    running: bool = False
    lost: bool = False
    abandoned: bool = False
    outages: int = 0

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    def request(self, *, alone: bool) -> ClaimRequest:
        """Return the claim for the present token."""
        return ClaimRequest(self.event_id, self.token, self.payload_hash, self.pair, alone)

    @property
    def pair(self) -> Pair:
        """Replay count and hop, by which Redis tells a newer copy from an older one."""
        return self.story.pair

    def forget_try(self) -> None:
        """Drop what belonged to the last try, before the record waits for another."""
        self.token, self.crashes, self.maybe_done = "", 0, False
        self.started_at, self.running, self.lost = None, False, False
