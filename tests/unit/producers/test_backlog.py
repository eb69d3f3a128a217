import pytest

from producers.backlog import Gate
from producers.outbox import Backlog


def closed(gate: Gate, rows: int, seconds: float) -> bool:
    return gate.update(Backlog(rows=rows, oldest_seconds=seconds, quarantined=0))


@pytest.mark.parametrize(("rows", "seconds"), [(101, 0), (0, 60.1), (101, 61)])
def test_the_gate_closes_over_either_limit(rows: int, seconds: float) -> None:
    gate = Gate(max_rows=100, max_age_seconds=60)
    assert not closed(gate, 100, 60)
    assert closed(gate, rows, seconds)


def test_it_opens_only_when_both_are_down_to_four_fifths() -> None:
    gate = Gate(max_rows=100, max_age_seconds=60)
    closed(gate, 101, 10)
    assert closed(gate, 81, 0)
    assert closed(gate, 80, 48.1)
    assert not closed(gate, 80, 48)
    assert not closed(gate, 100, 60)
