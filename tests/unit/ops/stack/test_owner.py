from pathlib import Path

import pytest

from orderflow.ops.stack.owner import part_at, role_of, started_in


@pytest.mark.parametrize(
    ("argv", "role"),
    [
        (["/x/.venv/bin/python", "-m", "orderflow", "api"], "API"),
        (["/x/.venv/bin/python", "/x/.venv/bin/orderflow", "worker", "email"], "email worker"),
        (["/x/.venv/bin/orderflow", "relay"], "relay"),
        (["python", "-m", "http.server", "8080"], None),
        (["python", "server.py", "-v", "/x/orderflow", "api"], None),
        (["python", "-m", "orderflow"], None),
        ([], None),
    ],
)
def test_a_role_is_known_by_its_command_line(argv: list[str], role: str | None) -> None:
    assert role_of(argv) == role


def test_a_part_is_known_by_its_record_and_both_by_where_their_shop_was_started(tmp_path: Path) -> None:
    state = tmp_path / "shop" / ".orderflow"
    for name in ("redis", "kafka-1", "roles/api"):
        (state / name).mkdir(parents=True)
        (state / name / "process.json").touch()
    assert started_in(state / "redis") == state / "redis"

    (state / "stack.json").touch()
    assert part_at(state / "redis") == "Redis"
    assert part_at(state / "kafka-1") == "Kafka"
    assert part_at(tmp_path) is None
    assert started_in(state / "redis") == started_in(state / "roles/api") == tmp_path / "shop"
