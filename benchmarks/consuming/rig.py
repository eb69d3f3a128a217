"""The bench itself: a stack on some cores, contenders on another, topics that are filled once."""

import json
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks.consuming.task import Task
from orderflow.core import kafka
from orderflow.core.settings import Settings, load
from orderflow.core.topics import GroupTopics
from orderflow.ops.stack.layout import Options
from orderflow.ops.stack.stack import LocalStack
from orderflow.testing import GroupHarness, make_group, order_created
from schemas import codec
from schemas.headers import CE_ID, event_headers

ROOT = Path(__file__).resolve().parents[2]
CONTENDER = (sys.executable, "-m", "benchmarks.consuming.contender")
_LONGEST_SECONDS = 1_800

Header = tuple[str, str | bytes | None]
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
Figures = dict[str, float]


class Rig:
    """A temporary stack, and contenders one after the other, each in a process of its own.

    On a machine with several cores the contender gets the last one for itself, the stack and this
    process the others. On one core, or where cores cannot be chosen, they share.
    """

    def __init__(self, folder: Path, *, quick_groups: bool = True) -> None:
        self._folder = folder
        # This heap also gets the broker its full compiler.
        self._options = Options(quick_groups=quick_groups, durable=False, kafka_heap_mb=1024)
        self._whole = ExitStack()
        self.core: int | None = None

    def __enter__(self) -> Self:
        """Start the stack."""
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            if len(cores) > 1:
                self.core = cores[-1]
                os.sched_setaffinity(0, set(cores[:-1]))
                self._whole.callback(os.sched_setaffinity, 0, set(cores))
        self.stack = self._whole.enter_context(LocalStack.temporary(self._folder / "stack", self._options))
        self._redis = redis.Redis.from_url(self.stack.redis.url)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the stack."""
        self._whole.close()

    def environment(self, topic: str, partitions: int, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings of a worker that reads `topic`, as environment variables."""
        return {
            **self.stack.environment(),
            "ORDERFLOW_KAFKA__SOURCE_TOPIC": topic,
            "ORDERFLOW_KAFKA__PARTITIONS": str(partitions),
            **{f"ORDERFLOW_{name}": str(value) for name, value in settings.items()},
        }

    def settings(self, topic: str, partitions: int = 12) -> Settings:
        """Return the same as settings."""
        return load(self.environment(topic, partitions, {}), env_file=self._folder / "none")

    def fill(self, topic: str, partitions: int, records: Iterable[Record]) -> None:
        """Make a source topic and put records on it."""
        settings = self.settings(topic, partitions)
        with GroupHarness(make_group(), settings, workers=0) as harness:
            count, producer = 0, Producer(kafka.producer_config(settings.kafka))
            for key, value, headers in records:
                while True:
                    try:
                        producer.produce(topic, value, key, headers=list[Header](headers))
                    except BufferError:
                        producer.poll(0.1)
                    else:
                        break
                count += 1
            producer.flush()
            written = sum(harness.ends().values())
            if written != count:
                raise RuntimeError(f"{written} of {count} records were written")
            self._forget(harness)

    def run(
        self,
        task: Task,
        *,
        committed: int | None = None,
        settings: Mapping[str, Any] | None = None,
        command: Sequence[str] = CONTENDER,
        meanwhile: Callable[[GroupHarness], None] | None = None,
    ) -> Figures:
        """Run one contender over a filled topic, and return what it measured.

        `meanwhile` is called when it runs. Raises `RuntimeError` when it fails, hands out records in another
        order, or has not committed so many records in the end (as many as it handled, unless given).
        """
        self._redis.flushdb()
        with self.group(task, settings or {}) as (harness, start):
            process = start(command)
            if meanwhile is not None:
                meanwhile(harness)
            said, _ = process.communicate(timeout=_LONGEST_SECONDS)
            if process.returncode:
                raise RuntimeError(f"{task.contender} ended with {process.returncode}")
            figures: Figures = json.loads(said.splitlines()[-1])
            done = sum(harness.committed().values())
            if done != (committed or task.calls) or figures["disorder"]:
                raise RuntimeError(f"{task.contender}: {done} of {committed or task.calls} committed, {figures}")
            return figures

    @contextmanager
    def group(
        self, task: Task, settings: Mapping[str, Any]
    ) -> Iterator[tuple[GroupHarness, Callable[[Sequence[str]], subprocess.Popen[str]]]]:
        """Make a new group for a task; yields its harness, and what starts one more process of it."""
        named = replace(
            task,
            group=f"b{secrets.token_hex(4)}",
            bootstrap=self.stack.kafka.bootstrap_servers,
            redis_url=self.stack.redis.url,
            core=None if task.contender == "member" else self.core,
        )
        environment = {
            **os.environ,
            **self.environment(task.topic, task.partitions, settings),
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "PYTHONWARNINGS": "ignore",  # the peers' own
        }
        harness = GroupHarness(make_group(name=named.group), self.settings(task.topic, task.partitions), workers=0)
        harness.provision()
        started: list[subprocess.Popen[str]] = []

        def start(command: Sequence[str]) -> subprocess.Popen[str]:
            started.append(
                subprocess.Popen(  # noqa: S603 - our own scripts
                    [*command, named.arguments()],
                    env=environment,
                    cwd=self._folder,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            return started[-1]

        try:
            yield harness, start
        finally:
            for process in started:
                process.kill()
                process.wait()
            self._forget(harness)

    def _forget(self, harness: GroupHarness) -> None:
        topics = GroupTopics(harness.topics.source, harness.group.name, harness.settings.worker.retry_seconds)
        admin = AdminClient(kafka.connection(harness.settings.kafka))
        for deleted in admin.delete_topics([*topics.own, topics.dlq, topics.dlq_state]).values():
            deleted.result(30)


def plain(records: int, size: int = 200, keys: int = 1_000, seed: int = 1) -> Iterator[Record]:
    """Values of so many bytes that compress about as text does, without headers."""
    chosen = random.Random(seed)  # noqa: S311 - the same log every time
    values = [chosen.randbytes(size // 2).hex().encode() for _ in range(1_000)]
    for _ in range(records):
        yield f"key-{chosen.randrange(keys)}".encode(), chosen.choice(values), []


def orders(records: int, keys: int = 1_000, seed: int = 1, poison_every: int = 0) -> Iterator[Record]:
    """Orders with events of their own; every so many has a body that cannot be decoded."""
    chosen = random.Random(seed)  # noqa: S311 - the same log every time
    template = order_created()
    value, headers = codec.encode(template), event_headers(template)
    event_text, order_text = str(template.event_id).encode(), str(template.order_id).encode()
    order_ids = [str(uuid4()).encode() for _ in range(keys)]
    for number in range(records):
        event_id = str(UUID(int=chosen.getrandbits(128), version=4)).encode()
        order_id = chosen.choice(order_ids)
        body = value.replace(event_text, event_id).replace(order_text, order_id)
        if poison_every and number % poison_every == poison_every - 1:
            body = body[:-10]
        yield order_id, body, [(name, event_id if name == CE_ID else text) for name, text in headers]


def drawn(records: int, keys: int, seed: int = 1) -> list[Record]:
    """Values that say how many microseconds their handling takes: 0 to 5 ms, evenly drawn."""
    chosen = random.Random(seed)  # noqa: S311 - the same log every time
    return [(f"key-{n % keys}".encode(), str(chosen.randrange(5_001)).encode(), []) for n in range(records)]
