"""What a contender's process is told, and how it answers; standard library only, since peers import it too."""

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Task:
    """One run of one contender. `calls` handled records end it; `in_flight` of them may be at work at once.

    `work` is what a handler does: nothing, 5 ms of input and output (`wait`), as long as the record's
    value says (`drawn`), fail one in a hundred the first time (`flaky`), or keep one record till the others
    are done (`blocked`). `style` is how it is called: `async`, `plain`, or a `batch` a call. `claims` is the
    full claim protocol, `decoded` gives the handler an event in place of bytes.
    """

    contender: str
    topic: str
    calls: int
    partitions: int = 12
    group: str = ""
    bootstrap: str = ""
    redis_url: str = ""
    core: int | None = None
    work: str = "nothing"
    style: str = "plain"
    decoded: bool = False
    claims: bool = False
    in_flight: int = 16

    @property
    def group_id(self) -> str:
        """The Kafka `group.id`, under which the positions were set."""
        return f"{self.topic}.{self.group}"

    @classmethod
    def from_arguments(cls) -> Self:
        """Return the task that this process was started with, and keep to its core."""
        task = cls(**json.loads(sys.argv[1]))
        if task.core is not None:
            os.sched_setaffinity(0, {task.core})
        return task

    def arguments(self) -> str:
        """Return what `from_arguments` reads."""
        return json.dumps(asdict(self))


def answer(figures: dict[str, Any]) -> None:
    """Tell the parent what was measured: the last line of the process."""
    print(json.dumps(figures), flush=True)
