"""What a group's handlers need, opened once per worker and closed after it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from consumers.runtime.executors.loop import EventLoop
from consumers.runtime.group import ConsumerGroup
from orderflow.core import log
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings

_log = log.get(__name__)


@contextmanager
def opened(group: ConsumerGroup, settings: Settings) -> Iterator[tuple[Any, EventLoop | None]]:
    """Yield the dependencies, and for `async def` handlers the event loop that they run in.

    Raises `Misconfigured` for an asynchronous `setup` of plain handlers, and what `setup` raises.
    """
    if not group.is_async:
        manager = group.setup(settings) if group.setup else None
        if manager is not None and not isinstance(manager, AbstractContextManager):
            raise Misconfigured(
                f"group {group.name} has an asynchronous setup, but plain handlers: make them async def"
            )
        if manager is None:
            yield None, None
        else:
            with manager as dependencies:
                yield dependencies, None
        return
    loop = EventLoop()
    try:
        manager = group.setup(settings) if group.setup else None
        if manager is None:
            yield None, loop
        elif isinstance(manager, AbstractContextManager):
            with manager as dependencies:
                yield dependencies, loop
        else:
            dependencies = loop.enter(manager)
            try:
                yield dependencies, loop
            finally:
                loop.leave(manager, settings.worker.revoke_budget_seconds)
    finally:
        loop.stop()
