"""A shop under faults of every kind keeps its promises; `make chaos` runs the same with any seed, for any time."""

from pathlib import Path

import pytest

from orderflow.core.errors import OrderflowError
from tests.chaos.run import Options, run
from tests.chaos.schedule import Strike, plan
from tests.stacks import choice

SEED = 732
SHORT_SECONDS, WHOLE_SECONDS = 30.0, 300.0


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_nothing_is_lost_doubled_early_or_altered_under_faults_of_every_kind(tmp_path: Path, *, short: bool) -> None:
    seconds = SHORT_SECONDS if short else WHOLE_SECONDS
    try:
        report = run(Options(seed=SEED, seconds=seconds), tmp_path, lambda _: None)
    except OrderflowError as error:
        choice.unavailable(f"the shop does not start: {error}")
    told = [str(finding) + "".join(f"\n    {line}" for line in finding.story) for finding in report.verdict.findings]
    assert told == [], "\n".join([f"seed {SEED}, {seconds:.0f} s", *told])
    assert report.failed == []
    assert report.drained
    assert all(line.balances for line in report.verdict.lines)
    # It was no quiet run.
    assert len(report.done) == len(plan(SEED, seconds))
    assert report.events > 2 * seconds


def test_the_short_form_has_what_matters_most() -> None:
    assert {
        Strike.KILL_WORKER,
        Strike.FREEZE_WORKER_LONG,
        Strike.ADD_WORKER,
        Strike.KILL_KAFKA,
        Strike.CUT_KAFKA,
        Strike.FLUSH_REDIS,
        Strike.RESTART_POSTGRES,
    } <= {planned.strike for planned in plan(SEED, SHORT_SECONDS)}
