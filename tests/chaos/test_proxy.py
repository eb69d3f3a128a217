"""The proxy passes bytes on, cuts, hangs and mends."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from orderflow.ops.stack.layout import free_ports
from tests.chaos.proxy import HOST, Network, Proxy


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """One in front of a server that says again what it hears."""
    there, here = free_ports(2)
    server = socket.create_server((HOST, there))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=_echo, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with Network() as network:
        yield Proxy(network, here, there)
    server.close()


def _echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1024):
            connection.sendall(data)


def ask(connection: socket.socket, word: bytes) -> bytes:
    connection.sendall(word)
    return connection.recv(1024)


def test_it_passes_on_cuts_and_mends(proxy: Proxy) -> None:
    with socket.create_connection((HOST, proxy.port), 5) as connection:
        assert ask(connection, b"one") == b"one"
        proxy.cut()
        answer = b""
        with contextlib.suppress(OSError):
            answer = ask(connection, b"two")
        assert answer == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, proxy.port), 5)
    proxy.mend()
    with socket.create_connection((HOST, proxy.port), 5) as connection:
        assert ask(connection, b"three") == b"three"


def test_what_hangs_is_delivered_once_mended(proxy: Proxy) -> None:
    with socket.create_connection((HOST, proxy.port), 5) as connection:
        assert ask(connection, b"one") == b"one"
        proxy.hang()
        connection.sendall(b"two")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1024)
        proxy.mend()
        connection.settimeout(10)
        assert connection.recv(1024) == b"two"
