"""`async def` handlers, and groups without claims, on a real broker."""

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from consumers.runtime.group import ConsumerGroup, Delivery
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from retry.errors import Outage, Reject
from schemas import codec
from schemas import headers as names
from schemas.events import OrderCreated
from schemas.headers import event_headers


@pytest.mark.parametrize("claims", [True, False], ids=["claims", "no claims"])
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_events_of_a_key_run_one_at_a_time_in_order_and_side_by_side_with_other_keys(
    settings: Settings, kind: str, *, claims: bool
) -> None:
    group = make_group(claims=claims)
    seen: dict[bytes, list[int]] = defaultdict(list)
    running: Counter[bytes] = Counter()
    overlaps: list[bytes] = []
    together, lock = [0], threading.Lock()

    def begin(delivery: Delivery) -> None:
        key = delivery.key or b""
        with lock:
            running[key] += 1
            overlaps.extend([key] if running[key] > 1 else [])
            together[0] = max(together[0], running.total())
            seen[key].append(delivery.offset)

    def end(delivery: Delivery) -> None:
        with lock:
            running[delivery.key or b""] -= 1

    async def in_a_loop(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        begin(delivery)
        await asyncio.sleep(0.001)
        end(delivery)

    def in_a_thread(_event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        begin(delivery)
        threading.Event().wait(0.001)
        end(delivery)

    group.on(OrderCreated)(in_a_loop if kind == "async" else in_a_thread)
    events = [order_created() for _ in range(400)]
    with GroupHarness(group, settings, workers=0) as harness:
        harness.publish_raw(
            [(b"key-%d" % (n % 20), codec.encode(event), event_headers(event)) for n, event in enumerate(events)]
        )
        harness.start_worker()
        harness.wait_drained()
        assert harness.committed() == harness.ends()
    assert sum(map(len, seen.values())) == len(events)
    assert overlaps == []
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert together[0] > 1


def test_an_asynchronous_setup_is_opened_and_closed_in_the_handlers_loop(settings: Settings) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @asynccontextmanager
    async def setup(_settings: Settings) -> AsyncIterator[str]:
        loops.append(asyncio.get_running_loop())
        yield "dependencies"
        loops.append(asyncio.get_running_loop())

    group = make_group(setup=setup)
    got: list[str] = []

    @group.on(OrderCreated)
    async def handle(_event: OrderCreated, _delivery: Delivery, deps: str) -> None:
        loops.append(asyncio.get_running_loop())
        got.append(deps)

    with GroupHarness(group, settings) as harness:
        harness.publish(order_created())
        harness.wait_drained()
    assert got == ["dependencies"]
    assert len(loops) == 3
    assert len(set(map(id, loops))) == 1


def failing(bad: OrderCreated, error: Exception, group: ConsumerGroup) -> list[int]:
    attempts: list[int] = []

    @group.on(OrderCreated)
    async def handle(event: OrderCreated, delivery: Delivery, _deps: Any) -> None:
        if event.event_id == bad.event_id:
            attempts.append(delivery.attempt)
            raise error

    return attempts


@pytest.mark.parametrize("claims", [True, False], ids=["claims", "no claims"])
def test_a_failing_coroutine_goes_through_every_tier_into_the_dead_letters(settings: Settings, *, claims: bool) -> None:
    group = make_group(claims=claims)
    bad, *good = [order_created() for _ in range(10)]
    attempts = failing(bad, ValueError("not now"), group)
    with GroupHarness(group, tuned(settings, retry_seconds=(1, 2))) as harness:
        harness.publish(bad, *good)
        harness.wait_drained()
        (letter,) = harness.dead_letters()
    assert attempts == [1, 2, 3]
    assert letter.header(names.DLQ_DISPOSITION) == "EXHAUSTED"
    assert letter.value == codec.encode(bad)


def test_without_claims_what_is_rejected_or_garbage_is_a_dead_letter(settings: Settings) -> None:
    group = make_group(claims=False)
    bad = order_created()
    failing(bad, Reject("never"), group)
    with GroupHarness(group, settings) as harness:
        harness.publish(bad, order_created())
        harness.publish_raw([(b"k", b"garbage", []), (b"k", codec.encode(bad)[:20], event_headers(bad))])
        harness.wait_drained()
        dispositions = sorted(str(letter.header(names.DLQ_DISPOSITION)) for letter in harness.dead_letters())
    assert dispositions == ["PERMANENT", "POISON", "POISON"]


def test_without_claims_an_outage_holds_its_key_and_later_records_of_it_wait_their_turn(settings: Settings) -> None:
    group = make_group(claims=False)
    seen: list[tuple[bytes | None, int]] = []
    down = threading.Event()
    down.set()

    @group.on(bytes)
    def handle(_value: bytes, delivery: Delivery, _deps: Any) -> None:
        if delivery.key == b"held" and down.is_set():
            raise Outage("the other side is away")
        seen.append((delivery.key, delivery.offset))

    with GroupHarness(group, settings, workers=0) as harness:
        keys = [b"held", b"free"] * 30
        harness.publish_raw([(key, b"%d" % number, []) for number, key in enumerate(keys)], partition=0)
        harness.start_worker()
        harness.wait_until(lambda: len(seen) == 30, "the free key")
        assert harness.committed()[0] == 0
        down.clear()
        harness.wait_drained()
    held = [offset for key, offset in seen if key == b"held"]
    assert held == list(range(0, 60, 2))


def test_undecoded_values_of_every_kind_come_as_they_are(settings: Settings) -> None:
    group = make_group(claims=False)
    got: dict[bytes, str] = {}

    @group.on_batch(bytes)
    def handle(batch: list[tuple[bytes, Delivery]], _deps: Any) -> None:
        got.update({value: delivery.event_id for value, delivery in batch})

    event = order_created()
    with GroupHarness(group, settings) as harness:
        harness.publish(event)
        harness.publish_raw([(b"k", b"no frame", []), (None, b"", [("ce_id", b"\xff")])])
        harness.wait_drained()
        assert harness.dead_letters() == []
    assert got == {codec.encode(event): str(event.event_id), b"no frame": "", b"": ""}
