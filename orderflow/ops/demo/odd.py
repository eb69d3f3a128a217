"""The odd ones: garbage from another producer, and what became of each odd order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from confluent_kafka import KafkaError, Message, Producer

from orderflow.core.errors import OrderflowError
from orderflow.ops.demo.client import PlacedOrder
from orderflow.ops.demo.facts import CREATED, Change, Facts

GARBAGE = b'{"note": "this is no event", "from": "another producer"}'
_PRODUCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Fate:
    """What is odd, what became of it, and whether that is what should."""

    what: str
    became: str
    right: bool


@dataclass(frozen=True, slots=True)
class Traces:
    """What an order left beside the books: the stock room's word, the mail server's refusals, its retry tiers."""

    stock_state: Callable[[UUID], tuple[str, Sequence[str]]]
    refusals: Callable[[UUID], Sequence[int]]
    waits: Callable[[UUID], Sequence[int]]


def put_garbage(bootstrap_servers: str, topic: str) -> None:
    """Put one record of bytes that are no event on a topic. Raises `OrderflowError` when it is not acknowledged."""
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        errors.append(error)

    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    producer.produce(topic, value=GARBAGE, key=b"not-an-order", on_delivery=delivered)
    producer.flush(_PRODUCE_SECONDS)
    if errors != [None]:
        raise OrderflowError(f"the record of garbage was not put on {topic}: {errors or 'no answer'}")


def fates(placed: Sequence[PlacedOrder], facts: Facts, traces: Traces) -> list[Fate]:
    """Return what became of each odd one."""
    by_oddity: dict[str, PlacedOrder] = {order.sample.odd: order for order in placed if order.sample.odd is not None}
    tellers: dict[str, Callable[[PlacedOrder], Fate]] = {
        "sent_twice": lambda order: _sent_twice(order, facts),
        "out_of_stock": lambda order: _out_of_stock(order, traces),
        "busy_mail_server": lambda order: _busy_mail_server(order, facts, traces),
        "unknown_customer": lambda order: _unknown_customer(order, facts),
    }
    return [tell(by_oddity[odd]) for odd, tell in tellers.items()] + [_garbage(facts)]


def _sent_twice(order: PlacedOrder, facts: Facts) -> Fate:
    created = Change(CREATED, order.order_id, 1)
    events = [event for event in facts.published if event.change == created]
    right = order.replayed and order.changes.count(created) == 2 and len(events) == 1  # noqa: PLR2004 - both answers
    became = "one order, and the first answer again" if right else f"{len(events)} orders"
    return Fate("an order sent twice with one key", became, right)


def _out_of_stock(order: PlacedOrder, traces: Traces) -> Fate:
    state, short = traces.stock_state(order.order_id)
    became = f"{state}: too little of {', '.join(short) or 'nothing'}"
    return Fate("an order of more than is in stock", became, state == "out_of_stock")


def _busy_mail_server(order: PlacedOrder, facts: Facts, traces: Traces) -> Fate:
    codes = traces.refusals(order.order_id)
    event_ids = _created(facts, order.order_id)
    sent = [mail for mail in facts.mails if mail.message_id.strip("<>").partition("@")[0] in event_ids]
    waits = traces.waits(order.order_id)
    tiers = " and ".join(f"{seconds} s" for seconds in waits)
    times = {1: "once"}.get(len(sent), f"{len(sent)} times")
    became = f"waited {tiers or 'nowhere'}, then was mailed {times}"
    right = list(codes) == [451, 451] and list(waits) == [1, 5] and len(sent) == 1
    return Fate("a mail server that says 451 twice", became, right)


def _unknown_customer(order: PlacedOrder, facts: Facts) -> Fate:
    event_ids = _created(facts, order.order_id)
    found = {
        group.name: letter.disposition
        for group in facts.groups
        for letter in group.dead
        if str(letter.event_id) in event_ids
    }
    return Fate("an order of an unknown customer", _deaths(found, len(facts.groups)), found == {"email": "PERMANENT"})


def _garbage(facts: Facts) -> Fate:
    found = {
        group.name: letter.disposition for group in facts.groups for letter in group.dead if letter.event_id is None
    }
    right = len(facts.foreign) == 1 and found == {group.name: "POISON" for group in facts.groups}
    return Fate("garbage from another producer", _deaths(found, len(facts.groups)), right)


def _deaths(found: dict[str, str], of: int) -> str:
    told: list[str] = []
    for kind in sorted(set(found.values())):
        groups = [group for group, own in found.items() if own == kind]
        told.append(f"{kind} in {'each group' if len(groups) == of else ', '.join(groups)}")
    return f"dead letter {'; '.join(told)}" if told else "no dead letter"


def _created(facts: Facts, order_id: UUID) -> set[str]:
    created = Change(CREATED, order_id, 1)
    return {str(event.event_id) for event in facts.published if event.change == created}
