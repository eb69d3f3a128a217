from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from orderflow.core.errors import OrderflowError
from orderflow.ops.provision import cluster


def answering(*answers: KafkaError | ConsumerGroupState) -> tuple[AdminClient, list[str]]:
    """Return an admin client that gives these answers about a group, one a request, and the groups it was asked for."""
    left: Iterator[KafkaError | ConsumerGroupState] = iter(answers)
    asked: list[str] = []

    def describe(group_ids: list[str], **_: float) -> Mapping[str, Future[Any]]:
        asked.extend(group_ids)
        future: Future[Any] = Future()
        found = next(left)
        if isinstance(found, KafkaError):
            future.set_exception(KafkaException(found))
        else:
            future.set_result(SimpleNamespace(state=found, members=[]))
        return dict.fromkeys(group_ids, future)

    return cast("AdminClient", SimpleNamespace(describe_consumer_groups=describe)), asked


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TIMED_OUT,
    ],
)
def test_a_group_whose_coordinator_is_not_there_yet_is_asked_for_again(code: int) -> None:
    admin, asked = answering(KafkaError(code), KafkaError(code), ConsumerGroupState.EMPTY)

    assert cluster.group_states(admin, ["orders.email"])["orders.email"].state == "EMPTY"
    assert len(asked) == 3


def test_it_is_not_asked_for_again_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "FIRST_COORDINATOR_SECONDS", 0.0)
    admin, _ = answering(*[KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)] * 3)

    with pytest.raises(OrderflowError, match=r"did not describe the group orders\.email"):
        cluster.group_states(admin, ["orders.email"])


def test_another_refusal_is_told_at_once() -> None:
    admin, asked = answering(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), ConsumerGroupState.EMPTY)

    with pytest.raises(OrderflowError, match=r"did not describe the group orders\.email"):
        cluster.group_states(admin, ["orders.email"])
    assert len(asked) == 1
