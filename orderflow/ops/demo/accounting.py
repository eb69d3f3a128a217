"""Pure: do the books balance? Every difference is named by its event.

Per group and event: applied + stale + skipped + dead = 1 for each event of the source topic, and 0 for
any other; nothing is pending. One mail for each order that is due one. The topic holds what the API
answered, no more and no less. Pieces reserved are those of the orders that stand.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from orderflow.ops.demo.facts import CREATED, DeadLetter, Facts, GroupFacts, Published
from orderflow.ops.demo.plan import Due


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that does not balance: in which book, which event (or place, or article), and how."""

    book: str
    what: str
    how: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.book}: {self.what} {self.how}"


@dataclass(frozen=True, slots=True)
class Line:
    """One group's line of the books, in records of the source topic."""

    group: str
    published: int
    applied: int
    stale: int
    skipped: int
    dead: int
    pending: int


@dataclass(frozen=True, slots=True)
class Books:
    """The lines, and what does not balance."""

    lines: Sequence[Line]
    mails_due: int
    mails_sent: int
    differences: Sequence[Difference]

    @property
    def balance(self) -> bool:
        """Whether everything is where it belongs."""
        return not self.differences


def close(facts: Facts, due: Due) -> Books:
    """Compare what was found with what is due."""
    events = {one.event_id: one for one in facts.published}
    differences = [
        *_topic(facts),
        *(one for group in facts.groups for one in _group(group, events, facts)),
        *_mails(facts, events, due),
        *_stock(facts, due),
    ]
    lines = [_line(group, events, facts) for group in facts.groups]
    return Books(lines, len(due.mails), len(facts.mails), differences)


def _topic(facts: Facts) -> Iterator[Difference]:
    """Compare the topic with what the API answered. An event may stand there twice: its groups count it once."""
    answered, published = set(facts.answered), {one.change for one in facts.published}
    for change in sorted(answered - published):
        yield Difference("topic", _named(change), "was answered 201 and never published")
    for change in sorted(published - answered):
        yield Difference("topic", _named(change), "was published and never answered 201")
    ids = Counter(change for change, _ in {(one.change, one.event_id) for one in facts.published})
    for change in sorted(change for change, count in ids.items() if count > 1):
        yield Difference("topic", _named(change), f"was published under {ids[change]} event ids")


def _group(group: GroupFacts, events: Mapping[UUID, Published], facts: Facts) -> Iterator[Difference]:
    settled = Counter(effect.event_id for effect in group.effects if effect.outcome != "begun")
    begun = {effect.event_id for effect in group.effects if effect.outcome == "begun"}
    deaths = _deaths(group)
    dead = Counter(letter.event_id for letter in deaths if letter.event_id is not None)
    for event_id, event in events.items():
        what = f"{_named(event.change)} (event {event_id})"
        times = settled[event_id] + dead[event_id]
        if event.change.type_name not in group.handles:
            if times or event_id in begun:
                yield Difference(group.name, what, "has an effect in a group that does not handle it")
        elif settled[event_id] > 1:
            yield Difference(group.name, what, f"was applied {settled[event_id]} times")
        elif times > 1:
            yield Difference(group.name, what, f"was applied {settled[event_id]} and died {dead[event_id]} times")
        elif times == 0:
            how = "was begun and has no end" if event_id in begun else "is lost: neither applied nor dead"
            yield Difference(group.name, what, how)
    for event_id in sorted({*settled, *begun, *dead} - events.keys()):
        yield Difference(group.name, f"event {event_id}", "has an effect and was never published")
    yield from _foreign(group, deaths, facts)
    for (topic, partition), count in sorted(group.pending.items()):
        if count:
            yield Difference(group.name, f"{topic}/{partition}", f"has {count} pending records")


def _foreign(group: GroupFacts, deaths: Sequence[DeadLetter], facts: Facts) -> Iterator[Difference]:
    """Compare records without an event with the dead letters that have none."""
    found = Counter(letter.origin for letter in deaths if letter.event_id is None)
    for place in facts.foreign:
        if found[place] != 1:
            yield Difference(group.name, f"the foreign record {place}", f"is dead {found[place]} times, once is right")
    for place in sorted(found.keys() - set(facts.foreign)):
        yield Difference(group.name, f"a dead letter from {place}", "has no record there")


def _mails(facts: Facts, events: Mapping[UUID, Published], due: Due) -> Iterator[Difference]:
    sent: dict[str, list[tuple[str, ...]]] = {}
    for mail in facts.mails:
        sent.setdefault(mail.message_id.strip("<>").partition("@")[0], []).append(mail.recipients)
    for event_id, event in events.items():
        if event.change.type_name != CREATED:
            continue
        copies = sent.pop(str(event_id), [])
        address = due.mails.get(event.change.order_id)
        what = f"{_named(event.change)} (event {event_id})"
        if len(copies) != (address is not None):
            yield Difference("mail", what, f"was mailed {len(copies)} times, {int(address is not None)} is right")
        elif copies and copies[0] != (address,):
            yield Difference("mail", what, "was mailed to somebody else")
    for message_id in sorted(sent):
        yield Difference("mail", f"Message-ID {message_id}", "belongs to no order")


def _stock(facts: Facts, due: Due) -> Iterator[Difference]:
    for sku in sorted({*due.reserved, *facts.reserved}):
        expected, found = due.reserved.get(sku, 0), facts.reserved.get(sku, 0)
        if expected != found:
            yield Difference("stock", sku, f"has {found} pieces reserved, {expected} is right")


def _line(group: GroupFacts, events: Mapping[UUID, Published], facts: Facts) -> Line:
    outcomes = Counter(effect.outcome for effect in group.effects)
    foreign_types = sum(event.change.type_name not in group.handles for event in events.values())
    return Line(
        group=group.name,
        published=len(events) + len(facts.foreign),
        applied=outcomes["applied"],
        stale=outcomes["stale"],
        skipped=outcomes["skipped"] + foreign_types,
        dead=len(_deaths(group)),
        pending=sum(group.pending.values()),
    )


def _deaths(group: GroupFacts) -> list[DeadLetter]:
    """Return the dead letters, one copy of each death."""
    return list({letter.dlq_id: letter for letter in group.dead}.values())


def _named(change: tuple[str, UUID, int]) -> str:
    type_name, order_id, version = change
    return f"{type_name.rpartition('.')[2]} of order {order_id} (version {version})"
