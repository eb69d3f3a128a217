"""Producing the retry copy fails."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from orderflow.core import clock, kafka
from orderflow.core.kafka import Publisher, Report
from orderflow.core.settings import Settings
from orderflow.core.topics import GroupTopics
from orderflow.ops.provision import topics as provision
from retry.failure import Failure
from retry.policy import Disposition, Stage, ToDlq, ToTier
from retry.router import LONGEST_BACKOFF_SECONDS, Confirmed, Copy, Router, backoff_seconds
from retry.story import Story
from schemas.headers import Headers

TOPICS = GroupTopics("orders", "email")
FAILURE = Failure(Stage.HANDLE, "KeyError", "message", "stack", "f" * 16, 1, 1)


@dataclass(frozen=True)
class Record:
    topic: str = "orders"
    partition: int = 3
    offset: int = 7
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: Headers = field(default_factory=list)

    @property
    def story(self) -> Story:
        return Story.read(self.headers, own_topic=False, origin=(self.topic, self.partition, self.offset, 1))


class ScriptedPublisher(Publisher[Copy[str]]):
    """A publisher whose reports the test writes; all that is sent waits in `sent`."""

    def __init__(self) -> None:
        self.sent: list[Copy[str]] = []
        self.produced = 0
        self.full = False
        self.failed = False
        self._reports: list[Report[Copy[str]]] = []

    def send(
        self,
        ticket: Copy[str],
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int = -1,
    ) -> bool:
        assert (topic, key, value, partition) == (ticket.topic, b"key", b"value", 3)
        assert headers
        if not self.full:
            self.sent.append(ticket)
            self.produced += 1
        return not self.full

    def report(self, number: int, error: int | None) -> None:
        copy = self.sent.pop(number)
        self._reports.append(Report(copy, None if error is None else KafkaError(error), 1, 2))

    def poll(self, timeout: float = 0.0) -> list[Report[Copy[str]]]:
        assert timeout == 0.0, "the worker's loop must not wait here"
        reports, self._reports = self._reports, []
        return reports

    def renew(self) -> list[Report[Copy[str]]]:
        self.failed = False
        while self.sent:
            self.report(0, KafkaError._PURGE_QUEUE)
        return self.poll()


ERRORS = [
    KafkaError._MSG_TIMED_OUT,
    KafkaError._PURGE_QUEUE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError._FATAL,
]


@pytest.mark.parametrize("verdict", [ToTier(1), ToDlq(Disposition.EXHAUSTED)])
@pytest.mark.parametrize("error", ERRORS)
def test_it_is_held_and_produced_again_until_a_report_says_yes(error: int, verdict: ToTier | ToDlq) -> None:
    publisher = ScriptedPublisher()
    router: Router[str] = Router(publisher, TOPICS)
    router.send("ticket", Record(), verdict, FAILURE)
    now = 0.0
    for _ in range(2_000):  # far longer than any counter should care about
        publisher.report(0, error)
        assert router.poll(now) == []
        now += LONGEST_BACKOFF_SECONDS
        assert router.poll(now) == []
        assert len(publisher.sent) == len(router) == 1
    assert router.unroutable == 1
    publisher.report(0, None)
    assert [confirmed.ticket for confirmed in router.poll(now)] == ["ticket"]
    assert (len(router), router.unroutable) == (0, 0)
    assert router.poll(now + 3_600) == []


def test_without_a_report_nothing_is_assumed() -> None:
    publisher = ScriptedPublisher()
    router: Router[str] = Router(publisher, TOPICS)
    router.send("ticket", Record(), ToTier(1), FAILURE)
    for now in range(10_000):
        assert router.poll(float(now)) == []
    assert publisher.produced == 1
    assert len(router) == 1


def test_it_waits_longer_each_time_up_to_five_seconds() -> None:
    publisher = ScriptedPublisher()
    router: Router[str] = Router(publisher, TOPICS)
    router.send("ticket", Record(), ToTier(1), FAILURE)
    now = 0.0
    for expected in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0):
        publisher.report(0, KafkaError._MSG_TIMED_OUT)
        router.poll(now)
        router.poll(now + expected * 0.99)
        assert publisher.sent == []
        now += expected * 1.01
        router.poll(now)
        assert len(publisher.sent) == 1
    assert backoff_seconds(10**6) == 5.0


def test_a_full_queue_holds_it_and_asks_once_a_turn() -> None:
    publisher = ScriptedPublisher()
    publisher.full = True
    router: Router[str] = Router(publisher, TOPICS)
    for number in range(100):
        router.send(str(number), Record(), ToTier(1), FAILURE)
    assert router.poll(0.0) == []
    assert len(router) == 100
    publisher.full = False
    router.poll(0.0)
    assert [copy.ticket for copy in publisher.sent] == [str(number) for number in range(100)]


def test_too_large_loses_the_stack_then_the_message_and_stays() -> None:
    publisher = ScriptedPublisher()
    router: Router[str] = Router(publisher, TOPICS)
    router.send("ticket", Record(), ToDlq(Disposition.EXHAUSTED), FAILURE)
    seen = []
    for now in range(0, 50, 5):
        [copy] = publisher.sent
        seen.append((copy.failure.stack, copy.failure.message))
        publisher.report(0, KafkaError.MSG_SIZE_TOO_LARGE)
        router.poll(float(now))
        router.poll(float(now + 5))
    assert seen == [("stack", "message"), ("", "message"), *[("", "")] * 8]
    assert len(router) == 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.just(0)),
        st.tuples(st.just("yes"), st.integers(0, 20)),
        st.tuples(st.just("no"), st.integers(0, 20)),
        st.tuples(st.just("large"), st.integers(0, 20)),
        st.tuples(st.just("full"), st.integers(0, 1)),
        st.tuples(st.just("fatal"), st.just(0)),
        st.tuples(st.just("turn"), st.integers(0, 8)),
    ),
    max_size=80,
)


@given(steps)
def test_each_copy_is_confirmed_once_after_its_yes_and_never_lost(steps: list[tuple[str, int]]) -> None:
    publisher = ScriptedPublisher()
    router: Router[str] = Router(publisher, TOPICS)
    now, sent, said_yes = 0.0, 0, set[str]()
    confirmed: list[Confirmed[str]] = []
    for step, number in steps:
        if step == "send":
            router.send(str(sent), Record(), ToTier(1), FAILURE)
            sent += 1
        elif step == "turn":
            now += number
            confirmed += router.poll(now)
        elif step == "full":
            publisher.full = bool(number)
        elif step == "fatal":
            publisher.failed = True
        elif publisher.sent:
            at = number % len(publisher.sent)
            if step == "yes":
                said_yes.add(publisher.sent[at].ticket)
            errors = {"yes": None, "no": KafkaError._MSG_TIMED_OUT, "large": KafkaError.MSG_SIZE_TOO_LARGE}
            publisher.report(at, errors[step])
        assert len(router) == sent - len(confirmed)
        assert {one.ticket for one in confirmed} <= said_yes
    publisher.full = False
    for _ in range(3):  # the world heals
        now += LONGEST_BACKOFF_SECONDS
        confirmed += router.poll(now)
        while publisher.sent:
            publisher.report(0, None)
    confirmed += router.poll(now)
    assert sorted(int(one.ticket) for one in confirmed) == list(range(sent))
    assert len(router) == 0


def test_a_retry_topic_that_is_missing_is_waited_for(settings: Settings) -> None:
    topics = GroupTopics(settings.kafka.source_topic, "email", settings.worker.retry_seconds)
    # How long the client waits for a topic to appear before it reports it as unknown; 30 s by default.
    config = kafka.producer_config(settings.kafka) | {"topic.metadata.propagation.max.ms": 500}
    router: Router[str] = Router(Publisher[Copy[str]](config), topics)
    router.send("ticket", Record(), ToTier(1), FAILURE)
    deadline = clock.monotonic() + 60
    while router.unroutable == 0:
        assert clock.monotonic() < deadline
        assert router.poll(clock.monotonic()) == []
    provision.apply(settings, ["email"])
    confirmed: list[Confirmed[str]] = []
    while not confirmed:
        assert clock.monotonic() < deadline
        confirmed = router.poll(clock.monotonic())
    assert [(one.ticket, one.topic) for one in confirmed] == [("ticket", f"{topics.group_id}.retry.1s")]
