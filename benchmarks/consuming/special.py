"""Measures that are no race: how late retries are, how long partitions rest, whether memory stays flat."""

import json
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from confluent_kafka import Producer

from benchmarks.consuming.rig import CONTENDER, Figures, Rig, orders, plain
from benchmarks.consuming.task import Task
from orderflow.core import kafka
from orderflow.testing import GroupHarness

_FEED_SECONDS = 0.01


def lateness(rig: Rig, records: int, *, short: bool) -> dict[str, Figures]:
    """Return how late second attempts begin, ms: on an idle worker, and under a backlog."""
    few, partitions = (20, 3) if short else (300, 12)
    rig.fill("idle", partitions, [])
    rig.fill("backlog", partitions, orders(records))

    def feed(harness: GroupHarness) -> None:
        first, *others = orders(few)
        harness.publish_raw([first])
        harness.wait_until(lambda: bool(sum(harness.committed().values())), "the worker to have joined", 60)
        for record in others:
            harness.publish_raw([record])
            time.sleep(_FEED_SECONDS * 5)

    shared: dict[str, Any] = {"partitions": partitions, "decoded": True, "claims": True}
    return {
        "idle": rig.run(Task("lateness", "idle", few, work="always", **shared), meanwhile=feed),
        "backlog": rig.run(Task("lateness", "backlog", records, **shared)),
    }


def memory(rig: Rig, records: int, *, short: bool) -> dict[str, Figures]:
    """Return the memory along the way: without claims, with them, and while a partition's head is blocked."""
    # One key's share must stay below what a partition may hold.
    some, partitions = (min(records, 5_000), 3) if short else (min(records, 300_000), 12)
    rig.fill("memory-plain", partitions, plain(records))
    rig.fill("memory-orders", partitions, orders(records))
    rig.fill("memory-head", partitions, orders(some))
    claimed: dict[str, Any] = {"partitions": partitions, "decoded": True, "claims": True}
    return {
        "bytes, no claims": rig.run(Task("memory", "memory-plain", records, partitions)),
        "orders, claims": rig.run(Task("memory", "memory-orders", records, **claimed)),
        "orders, claims, a blocked head": rig.run(
            Task("memory", "memory-head", some, work="blocked", **claimed),
            settings={"WORKER__DEADLINE_SECONDS": 140},
        ),
    }


def restart(rig: Rig, protocol: str, *, short: bool) -> Figures:
    """Restart the members of a group one by one, and return the longest time that a partition was at rest, s."""
    topic, members, partitions = f"restart-{protocol}", *((2, 4) if short else (4, 12))
    rig.fill(topic, partitions, [])
    settings = {"KAFKA__GROUP_PROTOCOL": protocol}
    fed = threading.Event()
    with rig.group(Task("member", topic, 0, partitions, decoded=True, claims=True), settings) as (harness, start):
        feeder = threading.Thread(target=_feed, args=(harness, fed))
        feeder.start()
        try:
            running = [_joined(start(CONTENDER)) for _ in range(members)]
            began, seen = time.monotonic(), list[tuple[int, float]]()
            for process in list(running):
                running.remove(process)
                seen += _stopped(process)
                running.append(_joined(start(CONTENDER)))
            ended = time.monotonic()
        finally:
            fed.set()
            feeder.join()
        for process in running:
            seen += _stopped(process)
    rests = _rests([(partition, when) for partition, when in seen if began <= when <= ended])
    return {"longest_s": max(rests), "median_s": median(rests), "partitions": len(rests)}


def _feed(harness: GroupHarness, fed: threading.Event) -> None:
    producer = Producer({**kafka.producer_config(harness.settings.kafka), "linger.ms": 0})
    while not fed.is_set():
        each = orders(harness.settings.kafka.partitions, keys=12, seed=time.monotonic_ns())
        for partition, (key, value, headers) in enumerate(each):
            producer.produce(harness.topics.source, value, key, partition, headers=list(headers))
        producer.poll(0)
        fed.wait(_FEED_SECONDS)
    producer.flush()


def _joined(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if said != "joined":
        raise RuntimeError(f"a member ended before it had a record: {said!r}, {process.poll()}")
    return process


def _stopped(process: subprocess.Popen[str]) -> list[tuple[int, float]]:
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    return [(partition, when) for partition, when in json.loads(said)]


def _rests(seen: Sequence[tuple[int, float]]) -> list[float]:
    times = defaultdict[int, list[float]](list)
    for partition, when in seen:
        times[partition].append(when)
    return [max(after - before for before, after in pairwise(sorted(of_one))) for of_one in times.values()]
