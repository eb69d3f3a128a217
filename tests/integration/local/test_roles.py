from collections.abc import Iterator
from pathlib import Path

import pytest

from orderflow.ops.local.roles import Role
from orderflow.ops.stack.layout import HOST, free_ports
from orderflow.ops.stack.process import PartFailed


@pytest.fixture
def role(tmp_path: Path) -> Iterator[Role]:
    (port,) = free_ports(1)
    made = Role("strange worker", tmp_path / "strange", ["worker", "no-such-group"], f"http://{HOST}:{port}/metrics")
    yield made
    made.stop()


def test_a_role_that_dies_while_starting_is_told_with_the_end_of_its_log(role: Role) -> None:
    role.spawn({})
    with pytest.raises(PartFailed) as failed:
        role.wait_ready()
    told = str(failed.value)
    assert told.startswith("strange worker died while starting; the end of ")
    assert "no group 'no-such-group'" in told
    assert role.daemon.died


def test_a_role_that_died_can_be_stopped(role: Role) -> None:
    role.spawn({})
    with pytest.raises(PartFailed):
        role.wait_ready()
    role.stop()
    assert not role.daemon.died
