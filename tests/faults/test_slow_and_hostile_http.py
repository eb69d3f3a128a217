"""What a socket can send to the API: halves of requests, huge heads, odd JSON. Each is answered, and bounded."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from subprocess import Popen
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient

from orderflow.ops.stack.layout import free_ports
from producers import edge, protocol
from producers.api import Parts, create_app

ORDER = {
    "customer_id": str(uuid4()),
    "currency": "EUR",
    "lines": [{"sku": "TEA-01", "quantity": 1, "unit_price": "10"}],
}
JSON = {"content-type": "application/json"}


@contextmanager
def served(parts: Parts) -> Iterator[int]:
    """Serve the application on a socket in this process, as `orderflow api` does; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(parts), http=protocol.BoundedProtocol, loop="uvloop", ws="none", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def port(api_parts: Parts) -> Iterator[int]:
    """The port of an API in this process."""
    with served(api_parts) as number:
        yield number


def said(port: int, *pieces: bytes) -> bytes:
    """Send, and read until the server closes."""
    with closing(socket.create_connection(("127.0.0.1", port), 60)) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
        except ConnectionError:
            pass  # it has said its word already
        whole = b""
        try:
            while piece := client.recv(65_536):
                whole += piece
        except ConnectionError:
            pass
        return whole


def problem(answer: bytes, status: int) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"application/problem+json" in head
    made: dict[str, Any] = json.loads(body)
    assert made["status"] == status
    return made


def given_up(answer: bytes) -> bool:
    """Whether the server closed: with a 408, or without a word where it had read nothing yet when the time was over."""
    return answer == b"" or problem(answer, 408)["type"] == "urn:orderflow:problem:too-slow"


def test_half_a_head_is_given_up_after_its_time(api_parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.5)
    with served(api_parts) as port:
        for half in (b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n"):
            assert given_up(said(port, half))
        # One byte now and then is no progress.
        with closing(socket.create_connection(("127.0.0.1", port), 60)) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\nX-A: ")
            client.settimeout(0.1)
            deadline = time.monotonic() + 60
            while True:
                assert time.monotonic() < deadline, "the server waits as long as bytes come"
                try:
                    client.sendall(b"a")
                    assert given_up(client.recv(65_536))
                    break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break


def test_the_time_of_a_head_begins_anew_on_a_connection_that_is_kept(
    api_parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 1.0)
    deadline = time.monotonic() + 60
    with served(api_parts) as port:
        # A busy machine may not read the first request in time; then it is asked again.
        while not (
            answers := said(port, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost:")
        ).startswith(b"HTTP/1.1 200 "):
            assert time.monotonic() < deadline
    assert b"HTTP/1.1 408 " in answers


def test_half_a_body_is_given_up_after_its_time(api_parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "BODY_SECONDS", 0.5)
    head = b"POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with served(api_parts) as port:
        assert problem(said(port, head), 408)["type"] == "urn:orderflow:problem:too-slow"


def test_a_huge_head_is_refused_whole_or_not(port: int) -> None:
    many = b"".join(b"X-%d: %s\r\n" % (number, b"v" * 100) for number in range(400))
    for head in (b"X: " + b"v" * 40_000 + b"\r\n", many):
        whole = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + b"\r\n"
        assert problem(said(port, whole), 431)["type"] == "urn:orderflow:problem:head-too-large"
    # It never ends: what comes after the limit is not waited for.
    answer = said(port, b"GET /livez HTTP/1.1\r\nX: ", b"v" * 40_000)
    assert problem(answer, 431)["type"] == "urn:orderflow:problem:head-too-large"
    assert problem(said(port, b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), 431)


def test_what_is_no_http_is_a_problem_too(port: int) -> None:
    for nonsense in (b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        assert problem(said(port, nonsense), 400)["type"] == "urn:orderflow:problem:no-http"


def test_every_answer_carries_the_number_under_which_the_log_has_it(
    start_role: Callable[..., Popen[bytes]], api_key: str, tmp_path: Any
) -> None:
    (port,) = free_ports(1)
    start_role("api", ORDERFLOW_API__PORT=str(port), ORDERFLOW_LOG_FORMAT="json")
    deadline = time.monotonic() + 90
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        while True:
            try:
                answers = [client.get("/livez")]
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        authorized = {"Authorization": f"Bearer {api_key}"}
        answers += [
            client.post("/v1/orders", json=ORDER, headers=authorized),
            client.post("/v1/orders", content=b"{", headers=authorized | JSON),
            client.get("/v1/orders/secret-4711"),
            client.get("/nowhere"),
        ]
    lines = [json.loads(line) for line in (tmp_path / "api.log").read_text().splitlines()]
    logged = {line["request_id"]: line for line in lines if line["event"] == "request"}
    told = [(a.headers["x-request-id"], a.status_code) for a in answers]
    assert [(number, logged[number]["status"]) for number, _ in told] == told
    assert [status for _, status in told] == [200, 201, 400, 401, 404]
    assert len({number for number, _ in told}) == len(told)
    assert "secret-4711" not in (tmp_path / "api.log").read_text()


def test_head_is_answered_like_get_without_the_body(port: int, api_key: str) -> None:
    authorized = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=authorized, timeout=60) as client:
        place = client.post("/v1/orders", json=ORDER).headers["location"]
        shown, head = client.get(place), client.head(place)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == shown.headers["content-length"]
        assert client.head(f"/v1/orders/{uuid4()}").status_code == 404


def test_allow_names_every_method_of_a_path(http: TestClient) -> None:
    for path, allowed in (
        ("/v1/orders", {"POST"}),
        (f"/v1/orders/{uuid4()}", {"GET", "HEAD"}),
        (f"/v1/customers/{uuid4()}", {"PUT", "DELETE"}),
    ):
        answer = http.request("PATCH", path)
        assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")
        assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "body",
    [
        b'{"customer_id": NaN}',
        b'{"customer_id": Infinity}',
        b'{"a": "\xff"}',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"{'a': 1}",
        b'{"a": 1,}',
    ],
)
def test_what_is_no_json_is_malformed(http: TestClient, body: bytes) -> None:
    answer = http.post("/v1/orders", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:orderflow:problem:malformed")


def test_a_name_that_stands_twice_in_one_object_is_malformed(http: TestClient) -> None:
    """Two readers of such a body could take it for two different orders."""
    twice = json.dumps(ORDER).replace('"currency": "EUR"', '"currency": "EUR", "currency": "USD"').encode()
    answer = http.post("/v1/orders", content=twice, headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:orderflow:problem:malformed")
    inner = json.dumps(ORDER).replace('"quantity": 1', '"quantity": 1, "quantity": 9').encode()
    assert http.post("/v1/orders", content=inner, headers=JSON).status_code == 400


def test_text_that_is_no_unicode_or_that_postgresql_cannot_hold_is_refused(http: TestClient) -> None:
    for escape in ("\\ud800", "\\u0000"):
        entry = '{"name": "A?", "email": "a@shop.example", "locale": "en"}'.replace("?", escape)
        answer = http.put(f"/v1/customers/{uuid4()}", content=entry.encode(), headers=JSON)
        assert answer.status_code in {400, 422}, answer.text
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01; DROP"}
    assert http.post("/v1/orders", json=ORDER, headers=trace).status_code == 201
