import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orderflow.core.errors import Misconfigured
from orderflow.ops.stack import owner, taken
from orderflow.ops.stack.layout import HOST, free_ports
from orderflow.ops.stack.taken import Wanted, assert_free

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_ports_that_are_free_are_no_matter() -> None:
    assert_free([Wanted(port, "API", "--api-port") for port in free_ports(3)], "orderflow up")


def test_every_option_with_a_taken_port_is_in_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "is_free", lambda port: port not in {8080, 8081, 9102, 9105})
    monkeypatch.setattr(taken, "owner_of", lambda _: None)
    wanted = [
        Wanted(8080, "API", "--api-port"),
        *(Wanted(port, "relay", "--metrics-port") for port in (9104, 9101, 9102, 9103)),
        Wanted(6379, "Redis", "--redis-port"),
    ]

    with pytest.raises(Misconfigured) as refused:
        assert_free(wanted, "orderflow up")

    # A step of 5 is the first that leaves both what is taken and what we want ourselves: 9106 to 9109.
    assert str(refused.value) == (
        "port 8080 for API is taken by another process (so is 9102); end that, or choose other ports: "
        "`orderflow up --api-port 8082 --metrics-port 9106`"
    )


def test_a_process_of_our_own_is_named_with_its_folder(tmp_path: Path) -> None:
    script = tmp_path / "orderflow"
    script.write_text(LISTEN)
    with subprocess.Popen(
        [sys.executable, str(script), "api"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        told = owner.owner_of(port)
        process.kill()

    assert told == f"an orderflow API started in {tmp_path} (pid {process.pid})"


def test_a_process_of_somebody_else_is_named() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(
            Misconfigured, match=rf"^port {port} for API is taken by .* \(pid {os.getpid()}\); end that,"
        ):
            assert_free([Wanted(port, "API", "--api-port")], "orderflow up")
