from pathlib import Path

import pytest

from orderflow.core.errors import Misconfigured
from orderflow.ops.local.ports import RolePorts


def test_the_fixed_ports_are_those_of_the_documents() -> None:
    ports = RolePorts.fixed()
    assert (ports.api, ports.workers) == (8080, {"email": 9101, "inventory": 9102, "audit": 9103})
    assert ports.relay == 9104


def test_what_is_asked_for_wins_then_what_was_last_time() -> None:
    was = RolePorts.fixed(18080, 19101)
    assert RolePorts.for_people(was) == was
    assert RolePorts.for_people(was, api=28080) == RolePorts.fixed(28080, 19101)
    assert RolePorts.for_people(was, metrics=29101) == RolePorts.fixed(18080, 29101)
    assert RolePorts.for_people(None) == RolePorts.fixed()


def test_free_ports_differ_from_each_other() -> None:
    ports = RolePorts.free()
    assert len({ports.api, ports.relay, *ports.workers.values()}) == 5


def test_saved_ports_are_found_again(tmp_path: Path) -> None:
    assert RolePorts.load(tmp_path) is None
    ports = RolePorts.free()
    ports.save(tmp_path)
    assert RolePorts.load(tmp_path) == ports


@pytest.mark.parametrize("content", ["", "[]", '{"api": 1}'])
def test_ports_that_cannot_be_understood_are_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)
    with pytest.raises(Misconfigured, match=r"ports\.json"):
        RolePorts.load(tmp_path)
