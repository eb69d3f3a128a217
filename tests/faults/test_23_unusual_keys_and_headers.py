"""Keys that are null, empty, huge or no UTF-8, headers that are no UTF-8: handled, retried or dead, byte for byte."""

import os
from collections import Counter
from typing import Any

from consumers.runtime.group import Delivery
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created
from retry.errors import Reject, Retry
from schemas import codec
from schemas import headers as names
from schemas.events import OrderCreated
from schemas.headers import Headers, event_headers, is_reserved

KEYS = {
    "null": None,
    "empty": b"",
    "one zero byte": b"\x00",
    "no utf-8": b"\xff\xfe\x80",
    "a megabyte": os.urandom(1_000_000),
}
HEADERS: Headers = [("note", b"\xff\xfe"), ("note", None), ("note", b""), ("", b"\x80")]


def foreign(headers: Headers) -> Headers:
    return [pair for pair in headers if not is_reserved(pair[0])]


def test_each_is_handled_retried_or_dead_and_the_loop_lives(few_partitions: Settings) -> None:
    handled: list[tuple[str, bytes | None, bytes, Headers]] = []
    group = make_group()
    orders = {(word, fate): order_created() for word in KEYS for fate in ("handled", "retried", "rejected")}
    fates = {order.event_id: fate for (_, fate), order in orders.items()}

    @group.on(OrderCreated)
    def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        fate = fates[event.event_id]
        if fate == "rejected":
            raise Reject("no")
        if fate == "retried" and delivery.attempt == 1:
            raise Retry("later")
        handled.append((str(event.event_id), delivery.key, delivery.value, foreign(list(delivery.headers))))

    with GroupHarness(group, few_partitions) as harness:
        harness.publish_raw(
            (KEYS[word], codec.encode(order), [*event_headers(order), *HEADERS]) for (word, _), order in orders.items()
        )
        harness.wait_drained(60)
        source = {record.header(names.CE_ID): record for record in harness.records(harness.topics.source)}
        letters = harness.dead_letters()
        assert harness.workers[0].alive
    rejected = {str(order.event_id) for (_, fate), order in orders.items() if fate == "rejected"}
    assert Counter(letter.header(names.CE_ID) for letter in letters) == dict.fromkeys(rejected, 1)
    for letter in letters:
        record = source[letter.header(names.CE_ID)]
        assert (letter.key, letter.value) == (record.key, record.value)
        assert foreign(letter.headers) == foreign(record.headers)
    assert Counter(event for event, *_ in handled) == dict.fromkeys(set(source) - rejected, 1)
    for event, key, value, headers in handled:
        assert (key, value, headers) == (source[event].key, source[event].value, foreign(source[event].headers))
