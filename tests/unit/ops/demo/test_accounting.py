from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID, uuid5

import pytest

from orderflow.ops.demo.accounting import Books, close
from orderflow.ops.demo.facts import (
    CANCELLED,
    CREATED,
    PAID,
    Change,
    DeadLetter,
    Effect,
    Facts,
    GroupFacts,
    Mail,
    Place,
    Published,
)
from orderflow.ops.demo.plan import Due

SPACE = UUID("0190c2a5-7e1e-7c3b-9d4f-2f6a1f0b8c11")
ORDERS = [uuid5(SPACE, f"order {number}") for number in range(3)]
PLAIN, CANCELLED_LATER, NOBODY_KNOWS = ORDERS
CHANGES = [
    Change(CREATED, PLAIN, 1),
    Change(PAID, PLAIN, 2),
    Change(CREATED, CANCELLED_LATER, 1),
    Change(CANCELLED, CANCELLED_LATER, 2),
    Change(CREATED, NOBODY_KNOWS, 1),
]
EVENTS = [
    Published(uuid5(SPACE, f"event {number}"), change, Place("orders", 0, number))
    for number, change in enumerate(CHANGES)
]
GARBAGE = Place("orders", 1, 0)
DUE = Due({PLAIN: "ada@post.example", CANCELLED_LATER: "owen@post.example"}, {"TEA": 3})


def effects(changes: Sequence[Change] = tuple(CHANGES), outcome: str = "applied") -> list[Effect]:
    return [Effect(event.event_id, outcome) for event in EVENTS if event.change in changes]


def letter(event: Published | None, disposition: str, place: Place = GARBAGE) -> DeadLetter:
    origin = event.place if event else place
    return DeadLetter(f"{origin}", event.event_id if event else None, origin, disposition, 1)


def mail(event: Published, recipient: str) -> Mail:
    return Mail(f"<{event.event_id}@shop.example>", (recipient,))


POISON = letter(None, "POISON")
REJECTED = letter(EVENTS[4], "PERMANENT")
MAILS = [mail(EVENTS[0], "ada@post.example"), mail(EVENTS[2], "owen@post.example")]
EMAIL = GroupFacts("email", frozenset({CREATED}), effects([CHANGES[0], CHANGES[2]]), [POISON, REJECTED])
INVENTORY = GroupFacts("inventory", frozenset({CREATED, PAID, CANCELLED}), effects(), [POISON])
AUDIT = GroupFacts("audit", frozenset({CREATED, PAID, CANCELLED}), effects(), [POISON])
RIGHT = Facts(CHANGES, EVENTS, [GARBAGE], [EMAIL, INVENTORY, AUDIT], MAILS, {"TEA": 3})


def with_group(name: str, **changed: object) -> Facts:
    groups = [replace(group, **changed) if group.name == name else group for group in RIGHT.groups]  # type: ignore[arg-type]
    return replace(RIGHT, groups=groups)


def only_difference(facts: Facts) -> str:
    books: Books = close(facts, DUE)
    assert not books.balance
    (difference,) = books.differences
    return str(difference)


def test_a_right_run_balances() -> None:
    books = close(RIGHT, DUE)
    assert books.differences == []
    assert books.balance
    assert (books.mails_due, books.mails_sent) == (2, 2)


def test_each_line_adds_up_to_the_records_of_the_topic() -> None:
    for line in close(RIGHT, DUE).lines:
        assert line.published == 6
        assert line.applied + line.stale + line.skipped + line.dead == line.published


@pytest.mark.parametrize("name", ["inventory", "audit"])
def test_a_lost_event_is_named(name: str) -> None:
    told = only_difference(with_group(name, effects=effects(CHANGES[1:])))
    assert told.startswith(f"{name}: OrderCreated of order {PLAIN} (version 1)")
    assert str(EVENTS[0].event_id) in told
    assert told.endswith("is lost: neither applied nor dead")


def test_an_event_applied_twice_is_named() -> None:
    told = only_difference(with_group("inventory", effects=[*effects(), *effects([CHANGES[3]])]))
    assert f"OrderCancelled of order {CANCELLED_LATER}" in told
    assert "was applied 2 times" in told


def test_an_event_that_is_applied_and_dead_is_named() -> None:
    told = only_difference(with_group("audit", dead=[POISON, letter(EVENTS[1], "EXHAUSTED")]))
    assert "was applied 1 and died 1 times" in told


def test_two_copies_of_one_death_count_once() -> None:
    assert close(with_group("email", dead=[POISON, REJECTED, REJECTED]), DUE).balance


def test_a_stale_event_is_settled() -> None:
    stale = [*effects(CHANGES[:4]), *effects([CHANGES[4]], "stale")]
    books = close(with_group("inventory", effects=stale), DUE)
    assert books.balance
    assert [line.stale for line in books.lines] == [0, 1, 0]


def test_a_pending_record_is_named_with_its_partition() -> None:
    told = only_difference(with_group("email", pending={("orders.email.retry.5s", 4): 1}))
    assert told == "email: orders.email.retry.5s/4 has 1 pending records"


def test_a_mail_that_was_begun_and_never_noted_is_named() -> None:
    begun = [*effects([CHANGES[0]]), *effects([CHANGES[2]], "begun")]
    assert "was begun and has no end" in only_difference(with_group("email", effects=begun))


def test_an_effect_in_a_group_that_does_not_handle_the_type_is_named() -> None:
    told = only_difference(with_group("email", effects=effects([CHANGES[0], CHANGES[1], CHANGES[2]])))
    assert "has an effect in a group that does not handle it" in told


def test_an_effect_of_an_event_that_was_never_published_is_named() -> None:
    stranger = uuid5(SPACE, "stranger")
    told = only_difference(with_group("audit", effects=[*effects(), Effect(stranger, "applied")]))
    assert told == f"audit: event {stranger} has an effect and was never published"


@pytest.mark.parametrize("dead", [[], [POISON, replace(POISON, dlq_id="another")]])
def test_garbage_that_is_not_dead_once_is_named(dead: list[DeadLetter]) -> None:
    told = only_difference(with_group("inventory", dead=dead))
    assert told == f"inventory: the foreign record orders/1@0 is dead {len(dead)} times, once is right"


def test_a_dead_letter_from_nowhere_is_named() -> None:
    nowhere = letter(None, "POISON", Place("orders", 2, 7))
    assert only_difference(with_group("audit", dead=[POISON, nowhere])) == (
        "audit: a dead letter from orders/2@7 has no record there"
    )


def test_a_missing_mail_is_named() -> None:
    told = only_difference(replace(RIGHT, mails=MAILS[1:]))
    assert f"OrderCreated of order {PLAIN}" in told
    assert told.endswith("was mailed 0 times, 1 is right")


def test_a_doubled_mail_is_named() -> None:
    told = only_difference(replace(RIGHT, mails=[*MAILS, MAILS[0]]))
    assert told.endswith("was mailed 2 times, 1 is right")


def test_a_mail_that_nobody_is_due_is_named() -> None:
    told = only_difference(replace(RIGHT, mails=[*MAILS, mail(EVENTS[4], "ada@post.example")]))
    assert f"order {NOBODY_KNOWS}" in told
    assert told.endswith("was mailed 1 times, 0 is right")


def test_a_mail_to_somebody_else_is_named() -> None:
    wrong = [mail(EVENTS[0], "owen@post.example"), MAILS[1]]
    assert only_difference(replace(RIGHT, mails=wrong)).endswith("was mailed to somebody else")


def test_a_mail_without_an_order_is_named() -> None:
    stray = Mail("<stray@shop.example>", ("ada@post.example",))
    assert only_difference(replace(RIGHT, mails=[*MAILS, stray])) == "mail: Message-ID stray belongs to no order"


def differences_of(facts: Facts) -> Mapping[str, str]:
    return {one.book: one.how for one in close(facts, DUE).differences}


def test_an_answered_change_that_was_never_published_is_named() -> None:
    more = replace(RIGHT, answered=[*CHANGES, Change(PAID, CANCELLED_LATER, 3)])
    assert differences_of(more) == {"topic": "was answered 201 and never published"}


def test_an_event_that_was_never_answered_is_named() -> None:
    assert differences_of(replace(RIGHT, answered=CHANGES[1:])) == {"topic": "was published and never answered 201"}


def test_one_change_under_two_event_ids_is_named() -> None:
    twin = replace(EVENTS[1], event_id=uuid5(SPACE, "twin"))
    assert differences_of(replace(RIGHT, published=[*EVENTS, twin]))["topic"] == "was published under 2 event ids"


def test_an_event_that_stands_in_the_topic_twice_counts_once() -> None:
    again = replace(EVENTS[0], place=Place("orders", 0, 99))
    assert close(replace(RIGHT, published=[*EVENTS, again]), DUE).balance


@pytest.mark.parametrize("reserved", [{}, {"TEA": 6}, {"TEA": 3, "POT": 1}])
def test_stock_that_is_not_reserved_as_it_should_is_named(reserved: dict[str, int]) -> None:
    assert only_difference(replace(RIGHT, reserved=reserved)).startswith("stock: ")
