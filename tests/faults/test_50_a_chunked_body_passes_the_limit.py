"""A Content-Length check is passed by a chunked body: bytes are counted while read, 413, memory stays flat."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psutil
import pytest

from orderflow.ops.stack.layout import free_ports

if TYPE_CHECKING:
    import subprocess

MIB = 1024 * 1024
HEAD = (
    b"POST /v1/orders HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture
def api(start_role: Callable[..., "subprocess.Popen[bytes]"]) -> tuple[int, psutil.Process]:
    (port,) = free_ports(1)
    process = start_role("api", ORDERFLOW_API__PORT=str(port))
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "the API does not listen"
            time.sleep(0.1)
    return port, psutil.Process(process.pid)


def chunk(size: int) -> bytes:
    return b"%x\r\n" % size + b" " * size + b"\r\n"


def send_until_cut_off(port: int, head: bytes, piece: bytes, most: int) -> Iterator[int]:
    """Send `piece` again and again; yield the bytes sent so far, until the server hangs up or `most` are sent."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(head)
        while sent < most:
            try:
                client.sendall(piece)
            except ConnectionError:
                return
            sent += len(piece)
            yield sent


def test_a_chunked_body_over_the_limit_gets_413(api: tuple[int, psutil.Process]) -> None:
    port, _ = api
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(HEAD + chunk(40_000) + chunk(40_000) + b"0\r\n\r\n")
        answer = client.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in answer


def test_a_body_without_end_is_cut_off_and_memory_stays_flat(api: tuple[int, psutil.Process]) -> None:
    port, process = api
    before = process.memory_info().rss
    most = before
    sent = [0]
    for now in send_until_cut_off(port, HEAD, chunk(MIB // 4), 200 * MIB):
        sent.append(now)
        most = max(most, process.memory_info().rss)
    assert sent[-1] < 50 * MIB
    assert most - before < 8 * MIB


def test_a_body_that_never_ends_its_first_chunk_is_counted_too(api: tuple[int, psutil.Process]) -> None:
    port, _ = api
    *_, taken = send_until_cut_off(port, HEAD + b"ffffffff\r\n", b" " * 65_536, 200 * MIB)
    assert taken < 50 * MIB
