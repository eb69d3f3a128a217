"""A way to a server that a test can cut, so that only one client loses it."""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Literal, Self

Way = Literal["open", "silent", "refused"]
_RESET = struct.pack("ii", 1, 0)  # close() then sends a reset and drops what is on its way


class TcpProxy:
    """Listens on a loopback port of its own and passes everything to `host:port`, while the way is open.

    `silence` is a cable that was pulled: connections stay, nothing arrives, new ones get no answer. `reset` is a
    machine that went: connections break at once, new ones are refused. `heal` ends both.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._way: Way = "open"
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._closed = False
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        # A blocked accept() does not notice that its socket was closed; a connection wakes it.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
            self._thread.join(5)
        self._listener.close()
        self._break_all()
        self._set("open")

    def silence(self) -> None:
        """Pass nothing on."""
        self._set("silent")

    def reset(self) -> None:
        """Break every connection; refuse new ones."""
        self._set("refused")
        self._break_all()

    def heal(self) -> None:
        """Pass everything on again, what waited meanwhile first."""
        self._set("open")

    def _set(self, way: Way) -> None:
        with self._changed:
            self._way = way
            self._changed.notify_all()

    def _break_all(self) -> None:
        for one in list(self._sockets):
            self._break(one)

    def _break(self, one: socket.socket) -> None:
        self._sockets.discard(one)
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            # Wakes the thread that reads it; close() alone would not.
            one.shutdown(socket.SHUT_RDWR)
        one.close()

    def _accept(self) -> None:
        while not self._closed:
            client, _ = self._listener.accept()
            if self._way == "refused" or self._closed:
                self._break(client)
                continue
            self._sockets.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._wait_for_an_open_way()
        try:
            server = socket.create_connection(self._server, 10)
            server.settimeout(None)
        except OSError:
            self._break(client)
            return
        self._sockets.add(server)
        threading.Thread(target=self._pass_on, args=(server, client), daemon=True).start()
        self._pass_on(client, server)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._wait_for_an_open_way()
                target.sendall(data)
        self._break(source)
        self._break(target)

    def _wait_for_an_open_way(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._way != "silent")
