"""Found by the chaos run: a worker is assigned while the broker restarts, and its group stands still for ever.

The broker does not tell the committed offsets in time, and then says that it is no coordinator, as one does that is
still loading. A client that was assigned without offsets never asks again, though it stays a member.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orderflow.core.settings import load
from orderflow.ops.stack.layout import HOST, Options, free_ports
from orderflow.ops.stack.stack import LocalStack
from orderflow.testing import GroupHarness, make_group, order_created
from schemas.events import OrderCreated
from tests.chaos.world import ProxiedKafka

OFFSET_FETCH = 9
NOT_COORDINATOR = 16


class Coordinator:
    """A proxy in front of the broker that keeps silent about committed offsets once, then denies once to know them."""

    def __init__(self, port: int, broker_port: int, group_id: str) -> None:
        self.asked = 0
        self._broker_port = broker_port
        self._group_id = group_id.encode()
        self._server = socket.create_server((HOST, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection((HOST, self._broker_port))
                writing = threading.Lock()
                threading.Thread(target=self._requests, args=(client, broker, writing), daemon=True).start()
                threading.Thread(target=self._answers, args=(broker, client, writing), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, writing: threading.Lock) -> None:
        for frame in _frames(client):
            key, version, correlation = struct.unpack_from(">hhi", frame, 4)
            if key == OFFSET_FETCH and self._group_id in frame:
                self.asked += 1
                if self.asked == 1:
                    continue
                if self.asked == 2:
                    with writing, contextlib.suppress(OSError):
                        client.sendall(self._denial(version, correlation))
                    continue
            with contextlib.suppress(OSError):
                broker.sendall(frame)
        broker.close()

    @staticmethod
    def _answers(broker: socket.socket, client: socket.socket, writing: threading.Lock) -> None:
        for frame in _frames(broker):
            with writing, contextlib.suppress(OSError):
                client.sendall(frame)
        client.close()

    def _denial(self, version: int, correlation: int) -> bytes:
        assert version >= 8
        group = bytes([len(self._group_id) + 1]) + self._group_id
        # No tags; no throttling; one group, without topics, with the error; no tags.
        answer = struct.pack(">ibib", correlation, 0, 0, 2) + group + struct.pack(">bhbb", 1, NOT_COORDINATOR, 0, 0)
        return struct.pack(">i", len(answer)) + answer


def _frames(connection: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while True:
            head = _exactly(connection, 4)
            yield head + _exactly(connection, struct.unpack(">i", head)[0])


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_worker_that_is_not_told_its_positions_asks_again(tmp_path: Path) -> None:
    there, proxied = free_ports(2)
    stack = LocalStack.temporary(tmp_path / "stack", Options(quick_groups=True, durable=False))
    stack.kafka = ProxiedKafka(stack.state_dir, stack.layout, {"ASIDE": (there, proxied)})
    group = make_group()
    seen: list[str] = []
    group.on(OrderCreated)(lambda event, _delivery, _dependencies: seen.append(str(event.event_id)))
    with stack:
        settings = load(stack.environment() | {"ORDERFLOW_KAFKA__PARTITIONS": "2"}, env_file=tmp_path / "none")
        with GroupHarness(group, settings, workers=0) as harness:
            coordinator = Coordinator(proxied, there, harness.topics.group_id)
            orders = [order_created() for _ in range(10)]
            harness.publish(*orders)
            aside = settings.kafka.model_copy(update={"bootstrap_servers": f"{HOST}:{proxied}"})
            harness.settings = settings.model_copy(update={"kafka": aside})
            harness.start_worker()
            harness.wait_until(lambda: coordinator.asked >= 2, "it to ask for its positions", 60)
            harness.wait_drained(60)
        assert sorted(seen) == sorted(str(order.event_id) for order in orders)
        coordinator.close()
        stack.kafka.kill()
