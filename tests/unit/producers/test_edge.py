import asyncio
from typing import Any

import pytest
from prometheus_client import generate_latest

from orderflow.core.metrics import Metrics
from producers.edge import DRAINED_BYTES, BodyGuard, Shield, Watch

LIMIT = 100


class Exchange:
    """One ASGI request with a body in the given chunks, and what became of it."""

    def __init__(self, *chunks: bytes, ends: bool = True) -> None:
        self._chunks = list(chunks)
        self._ends = ends
        self.read = 0
        self.seen: bytes | None = None
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if not self._chunks:
            return {"type": "http.disconnect"}
        chunk = self._chunks.pop(0)
        self.read += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks) or not self._ends}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        del scope
        message = await receive()
        assert message["more_body"] is False
        self.seen = message["body"]
        await send({"type": "http.response.start", "status": 204, "headers": []})

    def through(self, guard: Any) -> int | None:
        scope = {"type": "http", "method": "POST", "headers": [], "path": "/v1/orders"}
        asyncio.run(guard(scope, self.receive, self.send))
        return next((int(m["status"]) for m in self.sent if m["type"] == "http.response.start"), None)


def test_a_body_at_the_limit_is_handed_on_in_one_piece() -> None:
    exchange = Exchange(b"a" * 60, b"", b"b" * 40)
    assert exchange.through(BodyGuard(exchange.app, LIMIT)) == 204
    assert exchange.seen == b"a" * 60 + b"b" * 40


@pytest.mark.parametrize("chunks", [[b"a" * 101], [b"a" * 60, b"b" * 41], [b"a"] * 101])
def test_one_byte_more_is_too_large_however_it_is_cut(chunks: list[bytes]) -> None:
    exchange = Exchange(*chunks)
    assert exchange.through(BodyGuard(exchange.app, LIMIT)) == 413
    assert exchange.seen is None


def test_a_body_that_does_not_end_is_read_up_to_a_bound() -> None:
    exchange = Exchange(*[b"a" * 65_536] * 100, ends=False)
    assert exchange.through(BodyGuard(exchange.app, LIMIT)) == 413
    assert exchange.read <= LIMIT + DRAINED_BYTES + 65_536


def test_a_client_that_goes_away_in_the_middle_is_not_answered() -> None:
    exchange = Exchange(b"a", ends=False)
    assert exchange.through(BodyGuard(exchange.app, LIMIT)) is None
    assert exchange.seen is None


def test_an_unexpected_error_is_answered_and_does_not_travel_on() -> None:
    exchange = Exchange(b"")

    async def fail(*_: Any) -> None:
        message = "row contains (ada@shop.example)"
        raise RuntimeError(message)

    assert exchange.through(Shield(fail)) == 500
    assert b"ada" not in exchange.sent[1]["body"]


def test_durations_carry_no_path_and_no_unknown_method() -> None:
    metrics = Metrics()
    exchange = Exchange(b"")
    scope = {"type": "http", "method": "HACK", "headers": [], "path": "/v1/orders/ada@shop.example"}
    asyncio.run(Watch(exchange.app, metrics, access_log=False)(scope, exchange.receive, exchange.send))
    told = generate_latest(metrics.registry).decode()
    assert 'method="other",route="none",status="204"' in told
    assert "ada" not in told
    start = exchange.sent[0]
    assert [len(value) for name, value in start["headers"] if name == b"x-request-id"] == [16]


def test_a_caller_who_leaves_before_an_answer_is_counted_as_gone() -> None:
    metrics = Metrics()
    exchange = Exchange()
    scope = {"type": "http", "method": "POST", "headers": [], "path": "/v1/orders"}
    guarded = Watch(BodyGuard(exchange.app, LIMIT), metrics, access_log=False)
    asyncio.run(guarded(scope, exchange.receive, exchange.send))
    assert exchange.sent == []
    assert 'status="499"' in generate_latest(metrics.registry).decode()
