"""What is wrong, and the words for it."""

from dataclasses import dataclass, field, replace

from tests.checker.facts import Place


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise: which rule, in which group ("" for none), which event or place, how, and its story."""

    rule: str
    group: str
    event_id: str
    how: str
    place: Place | None = None
    story: tuple[str, ...] = field(default=())

    def told(self, story: list[str]) -> "Finding":
        return replace(self, story=tuple(story))

    def __str__(self) -> str:
        where = f"{self.group}: " if self.group else ""
        what = f"event {self.event_id}" if self.event_id else str(self.place or "")
        return f"[{self.rule}] {where}{what} {self.how}".replace("  ", " ")
