"""What a team may write, and what is refused before anything runs."""

from typing import Any

import pytest

from consumers.runtime.group import Outcome
from orderflow.core.errors import Misconfigured
from orderflow.testing import make_group
from schemas.events import OrderCancelled, OrderCreated


def plain(*_: Any) -> None:
    """Do nothing."""


async def in_a_loop(*_: Any) -> Outcome:
    """Do nothing, later."""
    return Outcome.PROCESSED


def test_handlers_of_one_group_are_all_async_or_none_is() -> None:
    group = make_group()
    group.on(OrderCreated)(in_a_loop)
    assert group.is_async
    with pytest.raises(Misconfigured, match="async def"):
        group.on(OrderCancelled)(plain)


def test_a_batch_handler_may_be_async() -> None:
    group = make_group()
    group.on_batch(OrderCreated, OrderCancelled)(in_a_loop)
    assert group.is_async
    assert group.types == {OrderCreated.type_name, OrderCancelled.type_name}


def test_a_handler_of_bytes_stands_alone() -> None:
    group = make_group()
    group.on(bytes)(plain)
    assert group.raw
    with pytest.raises(Misconfigured, match="beside it there is no other"):
        group.on(OrderCreated)(plain)
    typed = make_group()
    typed.on(OrderCreated)(plain)
    with pytest.raises(Misconfigured, match="beside it there is no other"):
        typed.on(bytes)(plain)


def test_a_type_has_one_handler() -> None:
    group = make_group()
    group.on(OrderCreated)(plain)
    with pytest.raises(Misconfigured, match="already"):
        group.on(OrderCreated)(plain)
    with pytest.raises(Misconfigured, match="already"):
        group.on_batch(OrderCreated)(plain)
