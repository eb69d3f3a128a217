"""HTTP/1.1 on a socket, with bounds on what comes before a request is whole: how large its head is, and how slow."""

import asyncio
import json
from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from producers import problems

# Request line and headers together; what they hold for us is an API key, an Idempotency-Key and a trace.
HEAD_BYTES: Final = 32 * 1024
# From the connection, or from the first byte of a further request, to the end of the head.
HEAD_SECONDS: Final = 10.0


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which by itself waits for ever for the rest of a head and keeps all of it.

    Answers 431 to a head over `HEAD_BYTES` and 408 to one that takes longer than `HEAD_SECONDS`, and closes; a
    connection on which nothing was said in this time is closed without a word.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = True
        self._begun = False
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Give the first request its time."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes in; of an unfinished head only so many."""
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            if self._answering:
                self.flow.pause_reading()  # until the answer before it is out
            else:
                self._refuse(431, _TOO_LARGE, "head-too-large")

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._start_timer()
        self._begun = True
        self._head_size = 0

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        super().on_url(url)
        self._head_size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        super().on_header(name, value)
        self._head_size += len(name) + len(value)

    def on_headers_complete(self) -> None:
        """Hand the request on, unless its head is too large."""
        self._stop_timer()
        self._in_head = False
        app = self.app
        if self._head_size > HEAD_BYTES:
            self.app = _refuse_head
        try:
            super().on_headers_complete()
        finally:
            self.app = app

    def on_message_complete(self) -> None:
        """Be ready for the next head on this connection."""
        super().on_message_complete()
        self._in_head, self._begun, self._head_bytes = True, False, 0

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP with a problem, as everything else."""
        del msg
        self._refuse(400, "this is no well-formed HTTP/1.1", "no-http")

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._answering:
            self._start_timer()
        elif self._begun:
            self._refuse(408, f"the head of a request must be here within {HEAD_SECONDS:.0f} s", "too-slow")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str, kind: str) -> None:
        """Answer without the application, and close."""
        self._stop_timer()
        body = json.dumps(problems.body(status, detail, kind=kind)).encode()
        head = [
            STATUS_LINE[status],
            b"content-type: " + problems.MEDIA_TYPE.encode() + b"\r\n",
            b"content-length: " + str(len(body)).encode() + b"\r\n",
            b"connection: close\r\n\r\n",
        ]
        self.transport.write(b"".join(head) + body)
        self.transport.close()


_TOO_LARGE = f"request line and headers have at most {HEAD_BYTES} bytes"


async def _refuse_head(scope: Scope, receive: Receive, send: Send) -> None:
    answer = problems.answer(431, _TOO_LARGE, kind="head-too-large", headers={"Connection": "close"})
    await answer(scope, receive, send)
