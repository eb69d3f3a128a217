"""One Idempotency-Key from many callers at once, at two API processes on one database: one order."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from producers import auth

Start = Callable[..., Any]
Until = Callable[..., None]
Count = Callable[[str], int]
CALLERS = 200


def all_at_once(number: int, call: Callable[[int], Any]) -> list[Any]:
    """Let so many threads call at one moment; return what they got."""
    together = threading.Barrier(number)
    got: list[Any] = [None] * number

    def one(place: int) -> None:
        together.wait()
        got[place] = call(place)

    threads = [threading.Thread(target=one, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def asked(apis: list[Any], key: str, place: int) -> Any:
    return apis[place % 2].order(idempotency_key=key)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_200_callers_with_one_key_get_one_order(
    start_api: Start, commits_held: Callable[[], Any], in_commit: Callable[[], bool], until: Until, count: Count
) -> None:
    apis = [start_api(ORDERFLOW_API__STATEMENT_SECONDS="120") for _ in range(2)]
    first: list[Any] = []
    # The one who has the key is held back inside its transaction: everybody else must hear of it.
    with commits_held():
        holder = threading.Thread(target=lambda: first.append(apis[0].order(idempotency_key="basket")))
        holder.start()
        until(in_commit, "the first caller does not get as far as its commit")
        during = all_at_once(CALLERS - 1, partial(asked, apis, "basket"))
    holder.join()
    assert {(reply.status, reply.kind) for reply in during} == {(409, "in-progress")}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in during)
    assert first[0].status == 201
    assert "idempotent-replayed" not in first[0].headers

    again = all_at_once(CALLERS, partial(asked, apis, "basket"))
    # Two who ask at the same moment get in each other's way for that moment, no longer.
    assert {reply.status for reply in again} <= {201, 409}
    late = [apis[place % 2].order(idempotency_key="basket") for place in range(4)]
    stored = [reply for reply in [*again, *late] if reply.status == 201]
    assert {reply.status for reply in late} == {201}
    assert {reply.body for reply in stored} == {first[0].body}
    assert {reply.headers["location"] for reply in stored} == {first[0].headers["location"]}
    assert {reply.headers["idempotent-replayed"] for reply in stored} == {"true"}
    assert [count(f"SELECT count(*) FROM api.{table}") for table in ("orders", "outbox", "idempotency_keys")] == [1] * 3


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_free_race_for_a_new_key_has_one_winner(start_api: Start, count: Count) -> None:
    apis = [start_api() for _ in range(2)]
    for turn in range(5):
        ask = partial(asked, apis, f"basket-{turn}")
        replies = all_at_once(40, ask)
        statuses = Counter(reply.status for reply in replies)
        assert set(statuses) <= {201, 409}, statuses
        told = [reply for reply in replies if reply.status == 201]
        assert len({reply.body for reply in told}) == 1
        assert sum("idempotent-replayed" not in reply.headers for reply in told) == 1
    assert count("SELECT count(*) FROM api.orders") == count("SELECT count(*) FROM api.outbox") == 5


def test_a_key_stands_for_one_body_and_belongs_to_its_owner(
    start_api: Start, shop_pool: ConnectionPool[psycopg.Connection], count: Count
) -> None:
    api = start_api()
    assert api.order(idempotency_key="basket").status == 201
    other_body = api.call("POST", "/v1/orders/x/cancellation", {"reason": "duplicate"}, idempotency_key="basket")
    assert (other_body.status, other_body.kind) == (404, "order-unknown")
    placed = api.order(idempotency_key="second").headers["location"]
    reused = api.call("POST", f"{placed}/cancellation", {"reason": "duplicate"}, idempotency_key="basket")
    assert (reused.status, reused.kind) == (422, "idempotency-key-reused")
    with shop_pool.connection() as connection:
        stranger = auth.new_key(connection, "marketplace")
    mine = api.order(idempotency_key="basket")
    api.key = stranger
    theirs = api.order(idempotency_key="basket")
    assert (mine.status, mine.headers["idempotent-replayed"]) == (201, "true")
    assert theirs.status == 201
    assert "idempotent-replayed" not in theirs.headers
    assert theirs.headers["location"] != mine.headers["location"]
    assert count("SELECT count(*) FROM api.orders") == 3
