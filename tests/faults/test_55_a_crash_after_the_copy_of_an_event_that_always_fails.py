"""Workers die right after each kind of copy of an event that always fails: attempts are counted, and one death."""

import secrets
from pathlib import Path

import pytest

from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, order_created, tuned
from schemas import headers as names
from tests.faults.worker_lives import Doom, Effects, Life, Step, notes

BUDGET = 2  # one attempt and one retry


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((Step.COPIED, Step.BURIED), id="copied-buried"),
        pytest.param((Step.RELEASED, Step.BURIED), id="released-buried", marks=pytest.mark.long(whole=True)),
    ],
)
def test_attempts_stay_within_budget_and_crashes_and_the_death_is_one(
    few_partitions: Settings, tmp_path: Path, steps: tuple[Step, ...], *, short: bool
) -> None:
    if short:
        steps = steps[1:]
    settings = tuned(few_partitions, lease_seconds=4.0, commit_seconds=0.2)
    journal = tmp_path / "journal.jsonl"
    hopeless, others = order_created(), [order_created() for _ in range(len(steps) + 1)]
    event_id = str(hopeless.event_id)
    group = Effects(f"k{secrets.token_hex(4)}", journal, always_failing=event_id)
    with GroupHarness(group.group(), settings, workers=0) as harness:
        harness.publish(hopeless, others[0])
        for step, other in zip(steps, others[1:], strict=True):
            Life(settings, group, Doom(step, event_id)).end(tmp_path)
            harness.publish(other)  # others succeed: it is the event that fails, and not the world
        harness.start_worker()
        harness.wait_drained(90)
        letters = harness.dead_letters()
    runs = [line["attempt"] for line in notes(journal, "run", event=event_id)]
    assert max(runs) == BUDGET
    assert len(runs) <= BUDGET + len(steps)
    assert {letter.header(names.CE_ID) for letter in letters} == {event_id}
    assert 1 <= len(letters) <= 2
    assert len({letter.header(names.DLQ_ID) for letter in letters}) == 1
    assert {letter.header(names.DLQ_DISPOSITION) for letter in letters} == {"EXHAUSTED"}
    assert {letter.integer(names.DLQ_DELIVERY_COUNT) for letter in letters} == {BUDGET}
    assert {line["event"] for line in notes(journal, "effect")} == {str(other.event_id) for other in others}
