"""What happens to a request before the application sees it: its size, its duration, its failure (pure ASGI)."""

import asyncio
import os
import traceback
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orderflow.core import clock, log
from orderflow.core.metrics import Metrics
from producers import problems

# What is read and thrown away of a body that is too large, so that a client which sends first and
# reads afterwards gets its 413 instead of a reset connection. More than this is cut off.
DRAINED_BYTES: Final = 1024 * 1024
# From the head of a request to the end of its body.
BODY_SECONDS: Final = 30.0

_FRAMES = 12
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})

_log = log.get(__name__)


class BodyGuard:
    """Lets bodies up to a limit through, counted while they are read: a length that is claimed is not believed.

    The body is kept here until it is whole, at most `limit` bytes of it, and handed on in one piece.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 413, or 408 to a body that does not end, or pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._read(receive)
        except TimeoutError:
            detail = f"a body must be here within {BODY_SECONDS:.0f} s"
            await problems.answer(408, detail, kind="too-slow", headers={"Connection": "close"})(scope, receive, send)
            return
        if body is None:
            return  # the client is gone
        if len(body) > self._limit:
            response = problems.answer(
                413, f"a body has at most {self._limit} bytes", kind="too-large", headers={"Connection": "close"}
            )
            await response(scope, receive, send)
            return
        await self._app(scope, _replay(bytes(body), receive), send)

    async def _read(self, receive: Receive) -> bytearray | None:
        """Return the body, or a part of it that is over the limit; None when the client went away."""
        body, dropped = bytearray(), 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            chunk = message.get("body", b"")
            if len(body) <= self._limit:
                body += chunk[: self._limit + 1 - len(body)]
            dropped += len(chunk)
            if not message.get("more_body", False) or dropped > self._limit + DRAINED_BYTES:
                return body


class Shield:
    """Answers 500 for what nobody expected, and logs where it happened.

    The framework's own handler would raise the exception again, and its message with it: the
    database quotes whole rows in there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; what is raised ends here, unless an answer has begun."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            frames = [f"{at.filename}:{at.lineno} {at.name}" for at in traceback.extract_tb(error.__traceback__)]
            _log.error("request failed", route=_route(scope), error=type(error).__name__, frames=frames[-_FRAMES:])
            if begun or scope["type"] != "http":
                raise
            detail = "something is wrong on our side; the log of the API says where"
            await problems.answer(500, detail, kind="unexpected")(scope, receive, send)


class Watch:
    """Gives each request a number, times it, counts it, and writes its line in the log.

    The number is on every line that is logged for the request, and in the answer as `X-Request-Id`. The duration is
    observed by method, route template and status: closed sets, never a path. When the request arrived stands in
    `request.state.arrived`, on `clock.monotonic()`. HEAD is answered as GET without the body, which the server drops.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, *, access_log: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look at the clock before and after."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # 499, as nginx says: the caller left before an answer began. What fails is answered by `Shield`.
        started, status = clock.monotonic(), 499
        number = os.urandom(8).hex()
        structlog.contextvars.bind_contextvars(request_id=number)
        scope.setdefault("state", {})["arrived"] = started
        # A copy: the server looks at its own whether to send a body.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", number.encode())]
            await send(message)

        try:
            await self._app(inner, receive, watched)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route, seconds = _route(inner), clock.monotonic() - started
            self._metrics.histogram(
                "orderflow_http_request_duration_seconds", method=method, route=route, status=str(status)
            ).observe(seconds)
            if self._access_log:
                _log.info("request", method=method, route=route, status=status, ms=round(seconds * 1000, 1))


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "none")


def _replay(body: bytes, receive: Receive) -> Receive:
    handed_on = False

    async def read() -> Message:
        nonlocal handed_on
        if handed_on:
            return await receive()
        handed_on = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read
