"""The group of worker processes: `orderflow worker tests.noted_group:group`; its handler notes when it begins and ends.

`NOTED_GROUP` is its name, `NOTED_FILE` where the notes go, `NOTED_SECONDS` how long one run takes.
"""

import os
import threading
from typing import Any

from consumers.runtime.group import Delivery
from orderflow.testing import make_group
from schemas.events import OrderCreated

group = make_group(name=os.environ["NOTED_GROUP"])
_SECONDS = float(os.environ["NOTED_SECONDS"])
# Appended lines of one file stand in the order in which they were written, whoever wrote them.
_FILE = os.open(os.environ["NOTED_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@group.on(OrderCreated)
def handle(event: OrderCreated, _delivery: Delivery, _deps: Any) -> None:
    """Note the begin, take the time, note the end."""
    _note("begin", event)
    threading.Event().wait(_SECONDS)
    _note("end", event)


def _note(what: str, event: OrderCreated) -> None:
    os.write(_FILE, f"{what} {os.getpid()} {event.event_id}\n".encode())
