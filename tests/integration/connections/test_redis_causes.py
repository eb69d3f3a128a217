"""Each reason why Redis does not let us in is a sentence of its own."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import trustme

from consumers.runtime.claims import Claims, connect
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import RedisSettings, Settings
from orderflow.ops.stack.layout import free_ports
from orderflow.ops.stack.redis import Redis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A Redis whose users a test may set."""
    running = Redis(tmp_path_factory.mktemp("redis"), free_ports(1)[0])
    running.start()
    yield running
    running.stop()


def refusal(url: str, timeout_seconds: float = 5.0) -> str:
    settings = RedisSettings.model_validate({"url": url, "timeout_seconds": timeout_seconds})
    client = connect(settings)
    with contextlib.closing(client), pytest.raises(Misconfigured) as raised:
        Claims(client, "email", lease_seconds=30, ttl=Settings().worker.claim_ttl).load()
    told = str(raised.value)
    assert "\n" not in told
    assert "hunter2" not in told
    return told


def test_a_password_that_is_missing_or_wrong_and_a_user_without_rights(server: Redis) -> None:
    where = f"127.0.0.1:{server.port}"
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "right")
        client.acl_setuser("weak", enabled=True, passwords=["+weak"], commands=["+ping", "+client", "+hello"])
    try:
        assert "wants a password and got none" in refusal(f"redis://{where}/0")
        assert "refuses our user and password" in refusal(f"redis://:hunter2@{where}/0")
        assert "refuses our user and password" in refusal(f"redis://nobody:hunter2@{where}/0")
        assert "without the rights that we need" in refusal(f"redis://weak:weak@{where}/0")
    finally:
        with redis.Redis.from_url(f"redis://:right@{where}/0") as client:
            client.config_set("requirepass", "")


def test_a_database_that_is_not_there(server: Redis) -> None:
    assert "has no database of this number" in refusal(f"redis://127.0.0.1:{server.port}/99999")


def test_a_closed_port_and_an_unknown_name() -> None:
    assert "connection refused" in refusal("redis://127.0.0.1:1/0")
    assert "no machine has this name" in refusal("redis://no-such-host.invalid:6379/0")


def test_a_server_that_hangs(server: Redis) -> None:
    server.pause()
    try:
        assert "does not answer in time" in refusal(server.url, timeout_seconds=0.5)
    finally:
        server.resume()


def test_tls_where_there_is_none(server: Redis) -> None:
    assert "does not speak TLS" in refusal(f"rediss://127.0.0.1:{server.port}/0", timeout_seconds=1.0)


def test_plain_text_where_tls_is_wanted_and_a_certificate_that_nobody_knows(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("elsewhere.example").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=_serve_tls, args=(listener, context), daemon=True).start()

        assert "if it wants TLS, write rediss://" in refusal(f"redis://{where}/0")
        assert "nobody whom we trust has signed" in refusal(f"rediss://{where}/0")
        trusting = f"rediss://{where}/0?ssl_ca_certs={tmp_path / 'authority.pem'}"
        assert "for another host name" in refusal(trusting)


def _serve_tls(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        with contextlib.suppress(OSError):
            context.wrap_socket(caller, server_side=True).close()
        caller.close()


def test_what_is_no_url_is_said_without_showing_it() -> None:
    with pytest.raises(Misconfigured, match="ORDERFLOW_REDIS__URL is no URL of Redis") as raised:
        connect(RedisSettings.model_validate({"url": "postgres://:hunter2@here"}))
    assert "hunter2" not in str(raised.value)
