"""A worker is frozen beyond its session while another takes over, and then goes on.

What must come out: it commits nothing of its old assignment; the new owner's progress is not set back.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orderflow.core.settings import Settings
from orderflow.testing import GroupHarness, make_group, order_created, tuned
from tests.crew import Crew, Process
from tests.group_flow import GroupWatch, OrderFlow, quick_session, with_protocol
from tests.outbox_flow import wait_until

SLOTS = 4
PROTOCOLS = ["consumer", pytest.param("classic", marks=pytest.mark.long(whole=True))]


class Scene:
    """A harness without workers of its own, a crew of processes, and a watch over both."""

    def __init__(self, harness: GroupHarness, crew: Crew, watch: GroupWatch) -> None:
        self.harness, self.crew, self.watch = harness, crew, watch

    def ends_of(self, process: Process) -> int:
        return sum(note.what == "end" and note.pid == process.pid for note in self.crew.notes())

    def check(self) -> None:
        """Nothing is lost, and what ran twice is what the zombie had in its hands."""
        self.harness.wait_drained(90)
        assert self.harness.dead_letters() == []
        assert self.harness.committed() == self.harness.ends()
        again = {event: runs for event, runs in self.crew.runs().items() if runs > 1}
        assert len(again) <= SLOTS, again
        assert set(again.values()) <= {2}


@pytest.fixture(params=PROTOCOLS)
def settings_of_four(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Settings with three partitions, one quick tier, four slots and one of the two group protocols."""
    few = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 3})})
    quick = tuned(few, retry_seconds=(1,), lease_seconds=2.0, commit_seconds=0.1, slots=SLOTS)
    return with_protocol(quick, request.param)


@contextmanager
def scene_of(settings: Settings, folder: Path, *, handler_seconds: float) -> Iterator[Scene]:
    with GroupHarness(make_group(), settings, workers=0) as harness:
        quick_session(settings, harness.topics, 2.0)
        with (
            Crew(settings, harness.group.name, folder, handler_seconds=handler_seconds) as crew,
            GroupWatch(settings, harness.topics) as watch,
        ):
            yield Scene(harness, crew, watch)


def freeze(zombie: Process) -> None:
    zombie.send_signal(signal.SIGSTOP)


def wake(zombie: Process) -> None:
    zombie.send_signal(signal.SIGCONT)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_zombie_sets_no_offset_back(settings_of_four: Settings, tmp_path: Path) -> None:
    orders = [order_created() for _ in range(600)]
    with scene_of(settings_of_four, tmp_path, handler_seconds=0.05) as scene:
        crew, watch, harness = scene.crew, scene.watch, scene.harness
        harness.publish(*orders)
        zombie = crew.start()
        wait_until(lambda: sum(watch.source().values()) > 100)
        freeze(zombie)
        frozen_at = dict(watch.source())
        heir = crew.start()
        harness.wait_drained(90)  # the heir has passed all that the zombie has in its hands
        assert sum(harness.committed().values()) == len(orders) > sum(frozen_at.values())
        with OrderFlow(settings_of_four) as flow:
            crew.wait_at_work(heir)
            wake(zombie)
            watch.wait_shared_by(2, 60)
            watch.wait_all_move(60)
        scene.check()
        assert zombie.poll() is heir.poll() is None, crew.log()
        assert set(crew.runs()) == {str(order.event_id) for order in orders} | set(flow.acknowledged)


@pytest.mark.long(whole=True)
@pytest.mark.timeout(300)
def test_a_worker_that_is_frozen_within_a_revoke_commits_nothing_when_it_wakes(
    settings_of_four: Settings, tmp_path: Path
) -> None:
    with (
        scene_of(settings_of_four, tmp_path, handler_seconds=1.0) as scene,
        OrderFlow(settings_of_four, pause_seconds=1.0) as flow,
    ):
        crew, watch = scene.crew, scene.watch
        zombie = crew.start()
        wait_until(lambda: sum(watch.source().values()) > 5)
        ((name, owned),) = watch.owners().items()
        heir = crew.start()
        # It has been told to let go (classic: the group says so), and waits for its handlers.
        wait_until(lambda: not watch.is_stable() or len(watch.owners().get(name, owned)) < len(owned))
        ended = scene.ends_of(zombie)
        wait_until(lambda: scene.ends_of(zombie) > ended)
        freeze(zombie)
        wait_until(lambda: name not in watch.owners() and watch.is_shared_by(1), 60)
        watch.wait_all_move(60)
        wake(zombie)
        watch.wait_shared_by(2, 60)
        watch.wait_all_move(60)
        flow.stop()
        scene.check()
        assert zombie.poll() is heir.poll() is None, crew.log()
        assert set(crew.runs()) == set(flow.acknowledged)
