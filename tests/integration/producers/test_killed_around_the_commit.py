"""kill -9 of an API process inside its transaction, and after it: the caller asks again and has one order."""

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

Start = Callable[..., Any]
Until = Callable[..., None]
Count = Callable[[str], int]

TABLES = ("orders", "outbox", "idempotency_keys")


def test_killed_between_insert_and_commit_there_is_nothing_and_a_retry_makes_one_order(
    start_api: Start, commits_held: Callable[[], Any], in_commit: Callable[[], bool], until: Until, count: Count
) -> None:
    api = start_api(ORDERFLOW_API__STATEMENT_SECONDS="100")
    lost: list[Any] = []
    with commits_held():
        caller = threading.Thread(target=lambda: lost.append(api.order(idempotency_key="basket")))
        caller.start()
        until(in_commit, "the order does not get as far as its commit")
        api.process.kill()
        caller.join()
        # The server notices that its client is gone when it has something to say to it: after the lock.
        count(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event = 'advisory'"
        )
        until(lambda: not in_commit(), "the transaction of the dead process does not end")
    assert lost[0].status == 0
    assert [count(f"SELECT count(*) FROM api.{table}") for table in TABLES] == [0, 0, 0]

    api = start_api()
    again = api.order(idempotency_key="basket")
    assert again.status == 201
    assert "idempotent-replayed" not in again.headers
    assert [count(f"SELECT count(*) FROM api.{table}") for table in TABLES] == [1, 1, 1]


@pytest.mark.long
def test_killed_after_the_commit_and_before_the_answer_a_retry_gets_the_stored_answer(
    start_api: Start, commits_held: Callable[[], Any], in_commit: Callable[[], bool], until: Until, count: Count
) -> None:
    api = start_api(ORDERFLOW_API__STATEMENT_SECONDS="100")
    lost: list[Any] = []
    with commits_held():
        caller = threading.Thread(target=lambda: lost.append(api.order(idempotency_key="basket")))
        caller.start()
        until(in_commit, "the order does not get as far as its commit")
        # It must not hear that the commit is done.
        api.process.send_signal(signal.SIGSTOP)
    until(lambda: count("SELECT count(*) FROM api.orders") == 1, "the commit is not done")
    api.process.kill()
    caller.join()
    assert lost[0].status == 0

    api = start_api()
    again = api.order(idempotency_key="basket")
    assert (again.status, again.headers["idempotent-replayed"]) == (201, "true")
    assert [count(f"SELECT count(*) FROM api.{table}") for table in TABLES] == [1, 1, 1]
