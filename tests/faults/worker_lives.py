"""Workers that are processes and die where a test says: right after one named step of one chosen event.

Steps are watched from outside, by the public calls that make
them: the claims, the delivery reports, the commit. What a handler did stands in a journal, a file of JSON lines.
"""

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import wraps
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from consumers.inventory.group import keep_stock, open_stock
from consumers.runtime.assembly import run_group
from consumers.runtime.claims import Answer, ClaimReply, Claims, Release
from consumers.runtime.group import ConsumerGroup, Delivery, Outcome
from consumers.runtime.loading import load_group
from orderflow.core import clock, kafka
from orderflow.core.lifecycle import Stop, stop_on_signals
from orderflow.core.metrics import Metrics
from orderflow.core.settings import Settings
from orderflow.testing import make_group
from retry.errors import Reject, Retry
from schemas.events import Event, OrderCancelled, OrderCreated, OrderPaid

# Forked from a process that has imported everything and runs nothing: a worker is there in no time.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


class Step(StrEnum):
    """A place between two steps in the life of a record."""

    POLLED = "it was polled, before its claim"
    CLAIMED = "its claim was granted, before its handler"
    HANDLED = "its effect, before it is marked done"
    COMPLETED = "it was marked done, before the commit"
    COMMITTING = "its commit was sent, before the answer"
    COPIED = "its copy in a retry topic was confirmed, before its claim is released"
    BURIED = "its dead letter was confirmed, before its claim is released"
    RELEASED = "its copy was confirmed and its claim released, before the commit"


@dataclass(frozen=True)
class Doom:
    """What happens to a worker when a step of an event is first reached: a signal, or the interpreter stands.

    With `gate`, a named pipe, it stands until somebody writes a byte; the `journal` then tells what COMPLETE answered.
    """

    step: Step
    event_id: str
    how: signal.Signals = signal.SIGKILL
    gate: Path | None = None
    journal: Path | None = None


@dataclass(frozen=True)
class Effects:
    """A trial group whose effects are outside of any database: lines of a file.

    The first attempt of `retried` events raises `Retry`, each of `rejected` a `Reject`, each of `always_failing` an
    error of no class of ours; each of `killer` takes the process with it. `held` ones wait for the file `gate`.
    """

    name: str
    journal: Path
    retried: frozenset[str] = frozenset()
    always_failing: str = ""
    rejected: str = ""
    killer: str = ""
    held: frozenset[str] = frozenset()
    gate: Path | None = None

    def group(self) -> ConsumerGroup:
        """Return the group."""
        group, pause = make_group(name=self.name), threading.Event()

        @group.on(OrderCreated, OrderPaid)
        def append(event: Event, delivery: Delivery, _deps: Any) -> None:
            event_id = str(event.event_id)
            self._note("run", delivery)
            if event_id == self.killer:
                os.kill(os.getpid(), signal.SIGKILL)
            if event_id == self.rejected:
                raise Reject("not this one")
            if event_id == self.always_failing:
                raise RuntimeError("never")
            if event_id in self.retried and delivery.attempt == 1:
                raise Retry("not yet")
            while event_id in self.held and self.gate is not None and not self.gate.exists():
                pause.wait(0.02)
            self._note("effect", delivery)

        return group

    def _note(self, what: str, delivery: Delivery) -> None:
        note(
            self.journal,
            what,
            event=str(delivery.event_id),
            attempt=delivery.attempt,
            maybe_done=delivery.maybe_done,
            topic=delivery.topic,
            appended_ms=delivery.timestamp_ms,
        )


@dataclass(frozen=True)
class Stock:
    """The inventory's own handler under a name of its own."""

    name: str
    journal: Path

    def group(self) -> ConsumerGroup:
        """Return the group."""
        group = make_group(name=self.name, setup=open_stock)

        @group.on(OrderCreated, OrderPaid, OrderCancelled)
        def keep(event: Event, delivery: Delivery, pool: Any) -> Outcome:
            outcome = keep_stock(event, delivery, pool)
            note(self.journal, "run", event=str(event.event_id), maybe_done=delivery.maybe_done, outcome=outcome.value)
            return outcome

        return group


@dataclass(frozen=True)
class Shop:
    """One of the product's own groups."""

    name: str

    def group(self) -> ConsumerGroup:
        """Return the group."""
        return load_group(self.name, (self.name,))


@dataclass(frozen=True)
class Life:
    """One worker process: its settings, its group, its end, and how far its wall clock is ahead."""

    settings: Settings
    of: Effects | Stock | Shop
    doom: Doom | None = None
    ahead: timedelta = timedelta()

    @contextmanager
    def living(self, folder: Path) -> Iterator[BaseProcess]:
        """Live it in a process of its own, its log in `FOLDER/GROUP.log`; it is killed at the end if it still runs."""
        process = _CONTEXT.Process(target=_live, args=(self, folder / f"{self.of.name}.log"))
        process.start()
        try:
            yield process
        finally:
            process.kill()
            process.join(10)

    def end(self, folder: Path, timeout: float = 90) -> None:
        """Live it until its doom has killed it."""
        with self.living(folder) as process:
            process.join(timeout)
            log = (folder / f"{self.of.name}.log").read_text(encoding="utf-8")
            assert process.exitcode == -signal.SIGKILL, log


def note(journal: Path, what: str, **facts: object) -> None:
    """Add a line to a journal; it is there when the process dies next."""
    line = json.dumps({"what": what, "pid": os.getpid(), "ms": _true_ms(), **facts}) + "\n"
    with journal.open("a", encoding="utf-8") as file:
        file.write(line)


def notes(journal: Path, what: str, **facts: object) -> list[dict[str, Any]]:
    """Return the journal's lines of a kind that have these facts, in order."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    found = [json.loads(line) for line in lines]
    return [line for line in found if line["what"] == what and facts.items() <= line.items()]


def block_the_interpreter(gate: Path) -> None:
    """Wait for a byte from a named pipe in a C call that does not release the interpreter's lock."""
    pipe = os.open(gate, os.O_RDWR)
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
    os.close(pipe)


def _live(life: Life, log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if life.ahead:
        _set_the_clock(life.ahead)
    if life.doom:
        _Watch(life.doom).begin()
    metrics = Metrics()
    if life.settings.worker.metrics_port is not None:
        metrics.serve(life.settings.worker.metrics_host, life.settings.worker.metrics_port)
    with stop_on_signals(Stop(), budget_seconds=life.settings.worker.stop_budget_seconds) as stop:
        run_group(life.of.group(), life.settings, stop, metrics)


def _true_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _set_the_clock(ahead: timedelta) -> None:
    wall_ms, utc_now = clock.wall_ms, clock.utc_now
    clock.wall_ms = lambda: wall_ms() + ahead // timedelta(milliseconds=1)
    clock.utc_now = lambda: utc_now() + ahead


class _Watch:
    """Stands beside the calls that make the steps, and sends the signal at the one that was chosen."""

    def __init__(self, doom: Doom) -> None:
        self._doom = doom
        self._is_over = False
        self._is_completed = False

    def begin(self) -> None:
        """Replace each call by itself with the watch beside it."""
        Claims.claim = self._asking(Claims.claim, self._claimed, before=Step.POLLED)  # type: ignore[method-assign]
        Claims.complete = self._asking(  # type: ignore[method-assign]
            Claims.complete, self._completed, before=Step.HANDLED
        )
        Claims.release = self._asking(Claims.release, self._released)  # type: ignore[method-assign]
        kafka.Publisher.poll = self._polling(kafka.Publisher.poll)  # type: ignore[method-assign]
        for name, module in list(sys.modules.items()):
            if name.startswith("consumers.") and getattr(module, "Consumer", None) is Consumer:
                module.Consumer = self._committing()  # type: ignore[attr-defined]

    def _reach(self, step: Step) -> None:
        if step is not self._doom.step or self._is_over:
            return
        self._is_over = True
        if self._doom.gate is None:
            os.kill(os.getpid(), self._doom.how)
        else:
            block_the_interpreter(self._doom.gate)

    def _is_mine(self, asked: Any) -> bool:
        return str(asked[0] if isinstance(asked, tuple) else asked.event_id) == self._doom.event_id

    def _asking(self, call: Any, answered: Callable[[Any, Any], None], *, before: Step | None = None) -> Any:
        @wraps(call)
        def watched(claims: Claims, asked: Any) -> Any:
            if before and any(map(self._is_mine, asked)):
                self._reach(before)
            answers = call(claims, asked)
            for one, answer in zip(asked, answers, strict=True):
                if self._is_mine(one):
                    answered(one, answer)
            return answers

        return watched

    def _claimed(self, _asked: object, reply: ClaimReply) -> None:
        if reply.answer in (Answer.OWNED, Answer.UNSURE):
            self._reach(Step.CLAIMED)

    def _completed(self, _asked: object, ok: object) -> None:
        if self._doom.journal is not None:
            note(self._doom.journal, "completed", event=self._doom.event_id, ok=ok)
        self._is_completed = True
        self._reach(Step.COMPLETED)

    def _released(self, release: Release, _ok: object) -> None:
        if release.routed is not None:
            self._reach(Step.RELEASED)

    def _polling(self, poll: Any) -> Any:
        @wraps(poll)
        def watched(publisher: kafka.Publisher[Any], timeout: float = 0.0) -> Any:
            reports = poll(publisher, timeout)
            for report in reports:
                if report.error is None and self._is_mine(report.ticket.record):
                    self._reach(Step.BURIED if report.ticket.topic.endswith(".dlq") else Step.COPIED)
            return reports

        return watched

    def _committing(self) -> type[Consumer]:
        watch = self

        class Committing(Consumer):
            def commit(self, *args: Any, **named: Any) -> Any:
                answer = super().commit(*args, **named)
                if watch._is_completed:
                    watch._reach(Step.COMMITTING)
                return answer

        return Committing
