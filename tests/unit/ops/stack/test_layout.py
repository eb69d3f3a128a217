"""Where the stack listens."""

import os
import socket
import stat
from pathlib import Path

import pytest

from orderflow.core.errors import Misconfigured
from orderflow.ops.stack.layout import HOST, Layout, Options, Ports, free_ports, is_free
from orderflow.ops.stack.owner import owner_of


def test_the_fixed_ports_are_the_well_known_ones() -> None:
    assert Ports.fixed() == Ports(kafka=(9092,), controllers=(9093,), redis=6379, postgres=5432, smtp=1025)


def test_three_brokers_stand_side_by_side_and_their_controllers_after_them() -> None:
    ports = Ports.fixed(brokers=3)
    assert (ports.kafka, ports.controllers) == ((9092, 9093, 9094), (9095, 9096, 9097))


def test_free_ports_differ_and_lie_where_no_outgoing_connection_takes_them() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(1024 <= port < 32_768 for port in ports)


def test_a_listener_makes_its_port_taken_and_is_named() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        assert f"(pid {os.getpid()})" in str(owner_of(port))
    assert is_free(port)
    assert owner_of(port) is None


def test_what_is_saved_is_private_and_comes_back_whole(tmp_path: Path) -> None:
    layout = Layout(Ports.free(3), Options(brokers=3, quick_groups=True))
    layout.save(tmp_path)
    assert Layout.load(tmp_path) == layout
    assert stat.S_IMODE((tmp_path / "stack.json").stat().st_mode) == 0o600
    assert layout.password not in repr(layout)


def test_nothing_saved_is_no_stack(tmp_path: Path) -> None:
    assert Layout.load(tmp_path) is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"ports": {}, "options": {}}', '{"ports": 1, "options": {}}']
)
def test_a_broken_file_names_the_command_that_mends_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "stack.json").write_text(content)
    with pytest.raises(Misconfigured, match="orderflow stack down --wipe"):
        Layout.load(tmp_path)


def test_a_cluster_id_never_reads_as_an_option() -> None:
    ids = [Layout(Ports.fixed()).cluster_id for _ in range(200)]
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_what_is_not_asked_for_stays_as_it_was_last_time() -> None:
    first = Layout.for_people(None, kafka=19092)
    assert first.ports == Ports.fixed(kafka=19092)
    again = Layout.for_people(first, redis=16379)
    assert again.ports == Ports.fixed(kafka=19092, redis=16379)
    assert Layout.for_people(Layout.for_people(None, brokers=3)).options.brokers == 3
