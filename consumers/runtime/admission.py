"""From waiting to running: what gets a slot now is claimed, and nothing else is."""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import count
from math import inf
from operator import attrgetter
from typing import Protocol
from uuid import uuid4

from consumers.runtime.claims import Answer, ClaimReply, Claims, ClaimsDown
from consumers.runtime.group import Outcome
from consumers.runtime.inflight import InFlight
from consumers.runtime.lanes import Lanes, Run
from consumers.runtime.record import Place, Record
from orderflow.core.holds import HoldReason
from retry.policy import Disposition

# How long a BUSY record waits at most before it asks again: its owner may be gone by then.
_BUSY_SECONDS = 1.0


class Settles(Protocol):
    """What becomes of a record that is not run."""

    def skip(self, record: Record, outcome: Outcome) -> None:
        """Resolve it: it was done before, or a later copy is safe."""

    def dead_letter(self, record: Record, disposition: Disposition) -> None:
        """Send it to the dead letters, unrun."""

    def give_back(self, record: Record) -> None:
        """Release its claim, which is not used."""


class Admission:
    """Takes runs from the lanes, claims them in one pipeline, and returns what may start.

    Without claims everything may start that does not wait for a deployment.

    A claim whose answer was lost is asked again, with the same token, before anything else is
    claimed. A record that was interrupted before (`crashes`) runs with nothing beside it, so that
    one poison record cannot send its companions to the dead letters.
    """

    def __init__(
        self, lanes: Lanes, claims: Claims | None, in_flight: InFlight, settles: Settles, *, grace_seconds: float
    ) -> None:
        self._lanes = lanes
        self._claims = claims
        self._in_flight = in_flight
        self._settles = settles
        self._grace = grace_seconds
        self._asked: list[Run] = []
        self._alone: deque[Record] = deque()
        self._running_alone = ""
        self._new_token = _tokens()
        self.answers: dict[Answer, int] = {}

    def admit(self, now: float, free_slots: int) -> list[Run]:
        """Return the runs to start.

        Raises `ClaimsDown` when Redis gave no answer; the same claims are then asked first next time.
        """
        if self._claims is None:
            return self._admit_unclaimed(now, free_slots)
        if not self._asked:
            self._asked = self._choose(now, free_slots)
        asked = [record for run in self._asked for record in run]
        if not asked:
            return []
        alone = len(asked) == 1 and not self._in_flight
        replies = iter(self._claims.claim([record.request(alone=alone) for record in asked]))
        runs, self._asked = self._asked, []
        return [granted for run in runs if (granted := self._sort(run, replies, now))]

    def _admit_unclaimed(self, now: float, free_slots: int) -> list[Run]:
        admitted: list[Run] = []
        for run in self._lanes.take(now, free_slots):
            if all(map(attrgetter("schema_known"), run)):
                admitted.append(run)
            elif known := self._known_of(self._without_those_who_wait(run, now)):
                admitted.append(known)
        return admitted

    def _known_of(self, run: Run) -> Run:
        """Return the records that can be decoded; the others have waited long enough for a deployment."""
        for record in run:
            if not record.schema_known:
                self._settles.dead_letter(record, Disposition.UNKNOWN_SCHEMA)
        return [record for record in run if record.schema_known]

    def withdraw(self, places: Collection[Place]) -> list[Record]:
        """Take back unanswered claims of partitions that go; returns what must be released, in case it was granted."""
        gone = [record for run in self._asked for record in run if record.place in places]
        self._asked = [kept for run in self._asked if (kept := [r for r in run if r.place not in places])]
        return gone

    def _choose(self, now: float, free_slots: int) -> list[Run]:
        if self._running_alone in self._in_flight:
            return []
        while self._alone:
            if self._in_flight:
                return []
            record = self._alone.popleft()
            if self._lanes.take_this(record):
                return [[self._with_token(record)]]
            self._lanes.wake(record)  # its partition went meanwhile; nobody may be left waiting for it
        runs = [self._without_those_who_wait(run, now) for run in self._lanes.take(now, free_slots)]
        return [[self._with_token(record) for record in run] for run in runs if run]

    def _without_those_who_wait(self, run: Run, now: float) -> Run:
        """Return the part of a run that may be claimed: none of it passes a record that waits for a deployment."""
        for number, record in enumerate(run):
            known_at = record.due + self._grace
            if record.schema_known or now >= known_at:
                continue
            self._lanes.hold(record, known_at, HoldReason.UNKNOWN_SCHEMA)
            for behind in run[number + 1 :]:
                self._lanes.hold(behind, now, HoldReason.KEY)
            return run[:number]
        return run

    def _with_token(self, record: Record) -> Record:
        record.forget_try()
        record.token = self._new_token()
        return record

    def _sort(self, run: Run, replies: Iterator[ClaimReply], now: float) -> Run:
        """Return the part of a run that may start: it ends before the first record that must wait."""
        granted: Run = []
        waiting = False
        for record in run:
            reply = next(replies)
            self.answers[reply.answer] = self.answers.get(reply.answer, 0) + 1
            match reply.answer:
                case Answer.OWNED | Answer.UNSURE | Answer.POISON:
                    self._in_flight.add(record)
                    if waiting:
                        self._settles.give_back(record)
                    elif self._may_start(record, reply):
                        granted.append(record)
                case Answer.DONE:
                    self._settles.skip(record, Outcome.DUPLICATE)
                case Answer.SUPERSEDED:
                    self._settles.skip(record, Outcome.SKIPPED)
                case Answer.MISMATCH:
                    self._settles.dead_letter(record, Disposition.MISMATCH)
                case Answer.BUSY | Answer.ALONE if waiting:
                    # Its run waits for an earlier record already; it is asked again with that one.
                    self._lanes.hold(record, now, HoldReason.BUSY)
                case Answer.BUSY | Answer.ALONE:
                    waiting = True
                    self._wait(record, reply, now)
        return granted

    def _may_start(self, record: Record, reply: ClaimReply) -> bool:
        record.crashes, record.maybe_done = reply.crashes, reply.answer is Answer.UNSURE
        if reply.answer is Answer.POISON:
            self._settles.dead_letter(record, Disposition.POISON_CRASH)
            return False
        if not record.schema_known:
            self._settles.dead_letter(record, Disposition.UNKNOWN_SCHEMA)
            return False
        if reply.crashes == 0:
            return True
        self._running_alone = record.token
        try:
            assert self._claims is not None  # noqa: S101 - this is its answer
            announced = self._claims.start(record.event_id, record.token)
        except ClaimsDown:
            announced = False
        if not announced:
            self._settles.give_back(record)
        return announced

    def _wait(self, record: Record, reply: ClaimReply, now: float) -> None:
        if reply.answer is Answer.ALONE:
            self._alone.append(record)
            self._lanes.hold(record, inf, HoldReason.ALONE)
        elif reply.owner in self._in_flight:
            self._in_flight.chain(record, reply.owner)
            self._lanes.hold(record, inf, HoldReason.SIBLING)
        else:
            self._lanes.hold(record, now + min(reply.busy_ms / 1000, _BUSY_SECONDS), HoldReason.BUSY)


def _tokens() -> Callable[[], str]:
    """Return a maker of tokens: new for every try of every delivery, never shared by two processes."""
    process, number = uuid4().hex, count(1)
    return lambda: f"{process}/{next(number)}"
