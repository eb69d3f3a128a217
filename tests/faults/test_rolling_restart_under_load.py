"""Four workers are restarted one after the other under load.

What must come out: the group is stable within moments, nothing is lost, nothing is run by two at once.
"""

from pathlib import Path

import pytest

from orderflow.core import clock, log
from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, tuned
from tests.crew import Crew
from tests.group_flow import GroupWatch, OrderFlow, with_protocol

_log = log.get(__name__)

MEMBERS = 4
STABLE_SECONDS = 30.0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.long(whole=True))])
def test_nothing_is_lost_or_run_by_two_at_once_and_the_group_settles(
    settings: Settings, protocol: str, tmp_path: Path, *, short: bool
) -> None:
    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": MEMBERS})})
    # The longest that a revoke may take is not far from the poll interval: one that were longer would be seen.
    quick = tuned(
        few,
        retry_seconds=(1,),
        lease_seconds=5.0,
        commit_seconds=0.2,
        deadline_seconds=5.0,
        max_poll_seconds=12.0,
        revoke_budget_seconds=5.0,
    )
    chosen = with_protocol(quick, protocol)
    with (
        GroupHarness(make_group(), chosen, workers=0) as harness,
        Crew(chosen, harness.group.name, tmp_path, handler_seconds=0.1) as crew,
        GroupWatch(chosen, harness.topics) as watch,
        OrderFlow(chosen, pause_seconds=0.1) as flow,
    ):
        members = [crew.start() for _ in range(MEMBERS)]
        watch.wait_shared_by(MEMBERS, 60)
        watch.wait_all_move(60)
        watch.forget_stands()
        for number in range(2 if short else MEMBERS):
            crew.stop(members[number])
            members[number] = crew.start()
            crew.wait_at_work(members[number])
        settles_at = clock.monotonic()
        watch.wait_shared_by(MEMBERS, STABLE_SECONDS)
        _log.info("the group has settled", seconds=round(clock.monotonic() - settles_at, 1))
        watch.wait_all_move(STABLE_SECONDS)
        stands = {str(place): round(seconds, 1) for place, seconds in watch.longest_stand.items() if seconds > 0}
        _log.info("longest time in which nothing was committed", seconds=stands)
        flow.stop()
        harness.wait_drained(90)
        assert watch.is_shared_by(MEMBERS)
        assert harness.committed() == harness.ends()
        assert harness.dead_letters() == []
        for member in members:
            crew.stop(member)
    assert crew.run_together() == []
    assert set(crew.runs().values()) == {1}
    assert set(crew.runs()) == set(flow.acknowledged)
