"""A time survives the topic to the microsecond, wherever the machines stand; a naive one never gets there."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas import codec
from schemas.events import OrderCancelled

INDIA = "IST-05:30"  # Asia/Kolkata, in the form that needs no zone files
zones = st.integers(min_value=-14 * 60, max_value=14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@pytest.fixture(autouse=True, scope="module")
def _in_india() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = INDIA
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def _event(occurred_at: datetime) -> OrderCancelled:
    return OrderCancelled(
        event_id=UUID(int=1), occurred_at=occurred_at, order_id=UUID(int=2), order_version=1, reason="changed_mind"
    )


def test_this_machine_stands_in_india() -> None:
    assert datetime.now().astimezone().utcoffset() == timedelta(hours=5, minutes=30)


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 12, 31), timezones=zones))  # noqa: DTZ001 - bounds are naive
@example(datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC))
@example(datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))
def test_a_time_survives_to_the_microsecond(moment: datetime) -> None:
    read = codec.decode(codec.encode(_event(moment))).occurred_at
    assert read == moment
    assert read.utcoffset() == timedelta(0)


@given(st.datetimes())
def test_a_naive_time_is_refused_at_both_doors(moment: datetime) -> None:
    with pytest.raises(ValidationError, match="timezone"):
        _event(moment)
    around = _event(datetime(2026, 3, 1, tzinfo=UTC)).model_copy(update={"occurred_at": moment})
    with pytest.raises(codec.EncodeError, match="occurred_at"):
        codec.encode(around)
