"""PostgreSQL restarted, frozen, slow or locked under load: 503 in bounded time, back by itself, no 201 lost."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Start = Callable[..., Any]
Until = Callable[..., None]
Count = Callable[[str], int]
# A request waits at most so long for a connection, and a statement works at most so long; a second later the client
# gives a silent server up. What a loaded machine adds to their sum is no part of the promise.
QUICK = {"ORDERFLOW_DATABASE__POOL_TIMEOUT_SECONDS": "2", "ORDERFLOW_API__STATEMENT_SECONDS": "2"}
BOUND_SECONDS = 30


def only_201_and_503(callers: Any) -> None:
    """Nobody was told anything but yes, or "not now" with a time to come back; nobody waited without an end."""
    assert set(callers.statuses()) <= {201, 503}, callers.statuses()
    for reply in callers.replies:
        assert reply.seconds < BOUND_SECONDS
        if reply.status == 503:
            assert reply.headers["content-type"] == "application/problem+json"
            assert reply.kind == "database-away"
            assert int(reply.headers["retry-after"]) >= 1


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_restart_of_postgresql_under_load_costs_only_503(
    start_api: Start,
    start_role: Callable[..., Any],
    local_stack: Any,
    callers: Any,
    all_published: Callable[[list[str]], None],
    log_of_api: Any,
    *,
    short: bool,
) -> None:
    start_role("relay", ORDERFLOW_RELAY__POLL_SECONDS="0.2")
    apis = [start_api(**QUICK) for _ in range(2)]
    load = callers(apis)
    with load.calling():
        load.wait_for_more(20)
        for turn in range(1 if short else 4):
            seen = load.statuses()[503]
            # Once by SIGKILL, once by a stop: a crash leaves the sockets to the kernel, a stop says goodbye.
            local_stack.postgres.kill() if turn % 2 == 0 else local_stack.postgres.stop()
            try:
                load.wait(lambda seen=seen: load.statuses()[503] > seen + 3, "no 503 while PostgreSQL is away")
                assert all(api.call("GET", "/livez", patience=20).status == 200 for api in apis)
            finally:
                local_stack.postgres.start()
            load.wait_for_more(20)
    only_201_and_503(load)
    all_published(load.promised)
    assert "Traceback" not in log_of_api.read_text()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_frozen_postgresql_is_given_up_and_used_again(
    start_api: Start, local_stack: Any, callers: Any, count: Count
) -> None:
    api = start_api(**QUICK)
    load = callers([api])
    with load.calling():
        load.wait_for_more(10)
        local_stack.postgres.pause()
        try:
            # Its kernel still takes connections and acknowledges every byte: only the client's own clock ends this.
            seen = load.statuses()[503]
            load.wait(lambda: load.statuses()[503] >= seen + 2 * load.number, "no 503 while PostgreSQL is frozen", 120)
            assert api.call("GET", "/livez", patience=20).status == 200
        finally:
            local_stack.postgres.resume()
        load.wait_for_more(10)
    only_201_and_503(load)
    assert count("SELECT count(*) FROM api.orders") == count("SELECT count(*) FROM api.outbox")
    # Each promised order is one order, though some of its commits had no answer.
    assert count("SELECT count(*) FROM api.idempotency_keys") == count("SELECT count(*) FROM api.orders")
    assert len(load.promised) == len(set(load.promised))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_slow_disk_makes_orders_slow_and_loses_none(
    start_api: Start, callers: Any, commits_held: Callable[[], Any], in_commit: Callable[[], bool], count: Count
) -> None:
    """A COMMIT that waits is what a slow disk is to everybody above it; here the test decides how long."""
    api = start_api(**QUICK)
    load = callers([api], number=12)
    with load.calling():
        load.wait_for_more(10)
        with commits_held():
            load.wait(in_commit, "no order gets as far as its commit")
            seen = load.statuses()[503]
            load.wait(lambda: load.statuses()[503] >= seen + load.number, "no 503 while commits wait", 120)
            assert api.call("GET", "/livez", patience=20).status == 200
        load.wait_for_more(10)
    assert set(load.statuses()) <= {201, 409, 503}, load.statuses()
    assert all(reply.seconds < BOUND_SECONDS for reply in load.replies)
    assert len(load.promised) == len(set(load.promised))
    assert count("SELECT count(*) FROM api.orders") == count("SELECT count(*) FROM api.outbox")
    assert count("SELECT count(*) FROM api.orders") == count("SELECT count(*) FROM api.idempotency_keys")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_exhausted_pool_refuses_in_bounded_time_and_recovers(
    start_api: Start, admin: psycopg.Connection, until: Until, count: Count
) -> None:
    """Three times as many callers as threads: the last of them must not wait for the time-outs of all before."""
    api = start_api(
        ORDERFLOW_DATABASE__POOL_SIZE="2",
        ORDERFLOW_DATABASE__POOL_TIMEOUT_SECONDS="2",
        ORDERFLOW_API__STATEMENT_SECONDS="100",
    )
    assert api.order().status == 201
    replies: list[Any] = []
    threads = [threading.Thread(target=lambda: replies.append(api.order(patience=200))) for _ in range(122)]
    with admin.transaction():
        admin.execute("LOCK TABLE api.outbox IN EXCLUSIVE MODE")
        for thread in threads:
            thread.start()
        # All but those that hold the two connections (the backlog's count reads, and may have had one for a moment).
        until(lambda: len(replies) >= 118, "callers hang behind an exhausted pool", 60)
        assert {(reply.status, reply.kind) for reply in replies} == {(503, "database-away")}
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies)
        assert api.call("GET", "/livez", patience=20).status == 200
        assert api.call("GET", "/readyz", patience=60).status == 503
    for thread in threads:
        thread.join()
    assert api.order().status == 201
    stored = 2 + sum(reply.status == 201 for reply in replies)
    assert count("SELECT count(*) FROM api.orders") == count("SELECT count(*) FROM api.outbox") == stored
