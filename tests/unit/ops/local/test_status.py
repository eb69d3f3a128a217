import os
import sys
from pathlib import Path

import pytest

from orderflow.ops.local.ports import RolePorts
from orderflow.ops.local.roles import Role, roles_of
from orderflow.ops.local.shop import ROLES
from orderflow.ops.local.status import roles_status
from orderflow.ops.stack.process import Command


@pytest.fixture
def api(tmp_path: Path) -> Role:
    """Return the API's role of a shop that was started in the test's folder; something runs in its place."""
    ports = RolePorts.free()
    ports.save(tmp_path / ROLES)
    return roles_of(tmp_path / ROLES, ports)[0]


def test_a_role_is_listed_while_it_runs_when_it_died_and_not_after_it_was_stopped(api: Role, tmp_path: Path) -> None:
    assert roles_status(tmp_path) == []

    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    api.daemon.spawn(Command(sleeper, dict(os.environ), tmp_path))
    try:
        pid = api.daemon.pid
        first, *others = roles_status(tmp_path)
        assert (first.name, first.state, first.port, first.pid) == ("API", "silent", api.port, pid)
        assert [one.name for one in others] == ["relay", "email worker", "inventory worker", "audit worker"]
        assert {(one.state, one.pid) for one in others} == {("stopped", None)}

        process = api.daemon.process
        assert process is not None
        process.kill()
        process.wait(30)
        died, *_ = roles_status(tmp_path)
        assert (died.state, died.pid, died.log) == ("dead", None, api.daemon.log)
    finally:
        api.daemon.kill()
    assert roles_status(tmp_path) == []


def test_a_folder_without_roles_has_none(tmp_path: Path) -> None:
    assert roles_status(tmp_path) == []
