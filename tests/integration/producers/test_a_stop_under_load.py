"""SIGTERM under load: what was begun is answered, nothing new is taken, exit code 0, no 201 lost."""

import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

Start = Callable[..., Any]
Until = Callable[..., None]
Count = Callable[[str], int]


@pytest.mark.long
def test_a_request_that_is_being_worked_on_is_answered_before_the_end(
    start_api: Start, commits_held: Callable[[], Any], in_commit: Callable[[], bool], until: Until, count: Count
) -> None:
    api = start_api(ORDERFLOW_API__STATEMENT_SECONDS="100", ORDERFLOW_API__STOP_BUDGET_SECONDS="100")

    def refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", api.port), 5).close()
        except ConnectionRefusedError:
            return True
        return False

    begun: list[Any] = []
    with commits_held():
        caller = threading.Thread(target=lambda: begun.append(api.order()))
        caller.start()
        until(in_commit, "the order does not get as far as its commit")
        api.process.send_signal(signal.SIGTERM)
        # New ones are refused while the old one still hangs: nobody listens.
        until(refused, "new requests are taken during a stop", 60)
        assert api.process.poll() is None
    caller.join()
    assert begun[0].status == 201
    assert api.process.wait(60) == 0
    assert count("SELECT count(*) FROM api.orders") == 1


@pytest.mark.long
@pytest.mark.timeout(300)
def test_rolling_restarts_of_several_processes_under_load_lose_nothing(
    start_api: Start, callers: Any, count: Count, log_of_api: Any, *, short: bool
) -> None:
    apis = [start_api() for _ in range(2)]
    load = callers(apis, number=6)
    with load.calling():
        for place in (0,) if short else (0, 1, 0, 1):
            load.wait_for_more(20)
            apis[place].process.send_signal(signal.SIGTERM)
            assert apis[place].process.wait(60) == 0
            # The callers' list: its next turn goes to the new process.
            apis[place] = start_api()
        load.wait_for_more(20)
    # 0: the connection was refused. Nobody whose request was taken was left without an answer of a 5xx kind.
    assert set(load.statuses()) <= {201, 0}, load.statuses()
    assert len(load.promised) == len(set(load.promised))
    assert count("SELECT count(*) FROM api.orders") == count("SELECT count(*) FROM api.outbox")
    assert count("SELECT count(*) FROM api.orders") == count("SELECT count(*) FROM api.idempotency_keys")
    assert "Traceback" not in log_of_api.read_text()
