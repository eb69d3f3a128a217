"""One worker process: the protocol's steps in their order, on the product's own claims, ledger, commits and router.

Effect, COMPLETE, offset; or delivery report of the copy, RELEASE, offset.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from consumers.runtime.claims import Answer, ClaimReply, ClaimRequest, Claims, Pair, Release, payload_hash
from consumers.runtime.commits import Commits
from consumers.runtime.offsets import OffsetLedger, Place
from retry.errors import Outage, Reject, Retry
from retry.failure import Crashed, Failure, OtherBytes
from retry.policy import Disposition, Stage, ToDlq, ToTier, Wait, is_unsure, verdict
from retry.router import Router
from retry.story import Story
from schemas.errors import UnknownSchema
from schemas.headers import CE_ID, Headers, header
from tests.model.broker import Assigned, Broker, Offsets, Outbox, Stored
from tests.model.promises import Broken, Promises
from tests.model.system import System

GRANTED = {Answer.OWNED, Answer.UNSURE, Answer.POISON}
POISON_CRASHES = 3
# The stages in which a delivery has a claim, or may have one.
BEGUN = {"running", "effective", "back", "completing", "releasing", "copying", "copied"}


@dataclass(slots=True, eq=False)
class Delivery:
    """One delivered record and how far this process is with it.

    Stages: waits, asked (a claim without an answer), owned, running, effective (the outside world has said yes,
    nobody has noted it), back (the handler has returned), completing, releasing, copying, copied.
    """

    place: Place
    offset: int
    epoch: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    story: Story
    event_id: str
    stage: str = "waits"
    token: str = ""
    crashes: int = 0
    alone: bool = False
    behind: str = ""  # the token of a delivery in this process that is waited for
    maybe_done: bool = False
    started: bool = False
    lost: bool = False
    robbed: bool = False  # the truth: its lease was over and somebody took it, or Redis forgot it
    error: BaseException | None = None
    unsure: bool = False
    pair: Pair | None = None

    @property
    def topic(self) -> str:
        return self.place[0]

    @property
    def partition(self) -> int:
        return self.place[1]

    @property
    def name(self) -> str:
        """What steps call it."""
        return f"{self.topic}/{self.partition}/{self.offset}@{self.epoch}"

    @property
    def holds(self) -> bool:
        """Whether this process counts the claim as its own."""
        return bool(self.token) and self.stage not in {"waits", "asked"}


@dataclass
class Process:
    """One life of a worker. Redis, broker and outside world are handed in; nothing here knows how the walk goes on."""

    number: int
    life: int
    system: System
    claims: Claims
    broker: Broker
    promises: Promises
    clock: float
    frozen: bool = False
    cut: bool = False
    deliveries: list[Delivery] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topics = self.system.topics
        self.ledger = OffsetLedger()
        self.consumer = Offsets(self.broker, self.promises)
        self.outbox = Outbox(self.broker)
        consumer: Any = self.consumer
        publisher: Any = self.outbox
        self.commits = Commits(consumer, self.ledger, every=0.0)
        self.router: Router[Delivery] = Router(publisher, self.topics)
        self._served = self.clock
        self._epoch = 0
        self._tokens = count(1)

    # -- partitions ---------------------------------------------------------------------------------------------

    def assign(self, places: Collection[Place]) -> None:
        """Begin to read partitions at the group's committed offsets."""
        self._epoch += 1
        for place in places:
            self.broker.owner[place] = self.number
            committed = self.broker.committed[place]
            start = committed or 0
            self.consumer.assigned[place] = Assigned(self._epoch, start, None, start, start)
            self.ledger.assign(place, self._epoch, committed)

    def gone(self, places: Collection[Place]) -> None:
        """Forget what waits; what may be claimed and has not started is given back."""
        for delivery in [d for d in self.deliveries if d.place in places]:
            if delivery.stage in {"asked", "owned"}:
                self.give_back(delivery)
            elif delivery.stage == "waits":
                self.deliveries.remove(delivery)

    def end(self, places: Collection[Place]) -> None:
        """End the assignment; started handlers go on."""
        for place in places:
            self.ledger.revoke(place)
            self.consumer.assigned.pop(place, None)

    def revoke(self, places: Collection[Place], *, refused: bool) -> None:
        """Give partitions away in good order; `refused`: the last commit fails."""
        self.gone(places)
        self.consumer.leaving, self.consumer.refused = True, refused
        self.commits.commit_now(places, self.clock)
        self.consumer.leaving = self.consumer.refused = False
        self.end(places)
        for place in places:
            if self.broker.owner[place] == self.number:
                self.broker.owner[place] = None

    def not_mine(self) -> list[Place]:
        """What this process takes for its own and the broker does not."""
        return [place for place in self.consumer.assigned if self.broker.owner[place] != self.number]

    # -- reading ------------------------------------------------------------------------------------------------

    def unread(self, place: Place) -> bool:
        """Whether the log goes on behind what was read."""
        assigned = self.consumer.assigned[place]
        return (assigned.start if assigned.position is None else assigned.position) < len(self.broker.logs[place])

    def poll(self, place: Place, most: int) -> None:
        """Read up to so many records, past markers."""
        assigned, log = self.consumer.assigned[place], self.broker.logs[place]
        at = assigned.start if assigned.position is None else assigned.position
        read: dict[int, Stored] = {}
        while at < len(log) and len(read) < most:
            stored = log[at]
            if stored is not None:
                read[at] = stored
            at += 1
        assigned.position, assigned.read_to = at, max(assigned.read_to, at)
        for offset in self._delivered(place, read):
            stored = read[offset]
            story = Story.read(stored.headers, own_topic=place[0] in self.topics.own, origin=(*place, offset, 1))
            event_id = header(stored.headers, CE_ID) or ""
            self.deliveries.append(
                Delivery(place, offset, assigned.epoch, stored.key, stored.value, stored.headers, story, event_id)
            )

    def _delivered(self, place: Place, read: Mapping[int, Stored]) -> Sequence[int]:
        """Tell the ledger, one by one or all at once; returns what is new to it."""
        sizes = [len(stored.value or b"") for stored in read.values()]
        if len(read) > 1:
            return self.ledger.deliver_all(place, list(read), sizes)
        return [offset for offset, size in zip(read, sizes, strict=True) if self.ledger.deliver(place, offset, size)]

    # -- claims -------------------------------------------------------------------------------------------------

    @property
    def in_hand(self) -> list[Delivery]:
        """What is claimed and not settled."""
        return [delivery for delivery in self.deliveries if delivery.holds]

    def claimable(self) -> list[Delivery]:
        """What may be claimed now: unanswered calls first, a suspect alone, never more than there are slots."""
        asked = [delivery for delivery in self.deliveries if delivery.stage == "asked"]
        if asked:
            return asked
        held = self.in_hand
        if any(0 < delivery.crashes < POISON_CRASHES for delivery in held):
            return []
        waiting = [delivery for delivery in self.deliveries if delivery.stage == "waits"]
        alone = [delivery for delivery in waiting if delivery.alone]
        if alone:
            return [] if held else alone[:1]
        tokens = {delivery.token for delivery in held}
        free = self.system.slots - sum(d.stage in {"owned", "running", "effective"} for d in held)
        return [delivery for delivery in waiting if delivery.behind not in tokens] if free > 0 else []

    def requests(self, deliveries: Collection[Delivery]) -> list[ClaimRequest]:
        """Return the claims to send; what was asked before is asked with the same token."""
        for delivery in deliveries:
            if delivery.stage == "waits":
                delivery.stage, delivery.token = "asked", f"{self.number}.{self.life}/{next(self._tokens)}"
                delivery.behind, delivery.alone = "", False
        alone = len(deliveries) == 1 and not self.in_hand
        return [ClaimRequest(d.event_id, d.token, payload_hash(d.value), d.story.pair, alone=alone) for d in deliveries]

    def answered(self, delivery: Delivery, reply: ClaimReply, *, deployed: bool) -> None:
        """Do what Redis' answer says."""
        match reply.answer:
            case Answer.OWNED | Answer.UNSURE | Answer.POISON:
                delivery.stage, delivery.crashes, delivery.robbed = "owned", reply.crashes, False
                delivery.maybe_done = reply.answer is Answer.UNSURE
                if reply.answer is Answer.POISON:
                    self.dead_letter(delivery, Disposition.POISON_CRASH, Crashed())
                elif (
                    not deployed and self.system.outcome(delivery.event_id, delivery.story.replay_count, 1) == "unknown"
                ):
                    self.dead_letter(delivery, Disposition.UNKNOWN_SCHEMA, UnknownSchema(1))
            case Answer.DONE | Answer.SUPERSEDED:
                self.resolve(delivery, reply.answer)
            case Answer.MISMATCH:
                delivery.token = ""
                self.dead_letter(delivery, Disposition.MISMATCH, OtherBytes())
            case Answer.ALONE:
                self.wait(delivery)
                delivery.alone = True
            case Answer.BUSY:
                self.wait(delivery)
                if any(reply.owner == other.token for other in self.in_hand):
                    delivery.behind = reply.owner

    def wait(self, delivery: Delivery) -> None:
        """Let it wait for another try, with a new token, unless its partition has gone."""
        if self.ledger.epoch(delivery.place) != delivery.epoch:
            self.deliveries.remove(delivery)
            return
        delivery.stage, delivery.token, delivery.crashes, delivery.alone, delivery.behind = "waits", "", 0, False, ""
        delivery.maybe_done = delivery.started = delivery.lost = delivery.robbed = False
        delivery.error, delivery.unsure, delivery.pair = None, False, None

    def give_back(self, delivery: Delivery) -> None:
        """Release a claim that was not used."""
        delivery.stage, delivery.unsure, delivery.pair = "releasing", False, None

    # -- results ------------------------------------------------------------------------------------------------

    def returned(self, delivery: Delivery, error: BaseException | None) -> None:
        """Note that the handler's thread has come back."""
        delivery.stage, delivery.error = "back", error
        self.promises.kills.pop((delivery.event_id, delivery.story.replay_count), None)

    def conclude(self, delivery: Delivery) -> None:
        """Decide what the result means."""
        error = delivery.error
        if delivery.lost:
            self.wait(delivery)
        elif error is None:
            delivery.stage = "completing"
        else:
            delivery.unsure = delivery.maybe_done or is_unsure(error)
            attempts = delivery.story.attempts + 1
            decided = verdict(error, attempts=attempts, tiers=self.topics.retry_seconds)
            if isinstance(decided, Wait):
                delivery.stage, delivery.pair = "releasing", None
            elif isinstance(error, Outage):
                raise Broken(f"an outage has cost {delivery.event_id} an attempt")
            else:
                self._route(delivery, decided, Failure.of(error, stage=Stage.HANDLE, attempts=attempts, at_ms=1))

    def dead_letter(self, delivery: Delivery, disposition: Disposition, error: Exception) -> None:
        """Send what was not run to the dead letters."""
        delivery.unsure = delivery.maybe_done
        failure = Failure.of(error, stage=Stage.CLAIM, attempts=delivery.story.attempts, at_ms=1)
        self._route(delivery, ToDlq(disposition), failure)

    def _route(self, delivery: Delivery, decided: ToTier | ToDlq, failure: Failure) -> None:
        delivery.stage = "copying"
        delivery.pair = self.router.send(delivery, delivery, decided, failure)

    def serve(self) -> None:
        """Take what broker and producer have answered."""
        while self.consumer.answers:
            self.commits.answered(*self.consumer.answers.popleft())
        self._served += 10.0  # past every back-off of the router
        for confirmed in self.router.poll(self._served):
            delivery = confirmed.ticket
            delivery.pair, delivery.stage = confirmed.pair, "copied"
            if not delivery.token:
                self.resolve(delivery, "copied")

    def release_of(self, delivery: Delivery) -> Release:
        """Return the release of a claim."""
        return Release(
            delivery.event_id,
            delivery.token,
            unsure=delivery.unsure,
            started=delivery.started,
            routed=delivery.pair if delivery.stage == "copied" else None,
        )

    def told(self, delivery: Delivery, *, ok: bool) -> None:
        """Go on after COMPLETE or RELEASE was answered."""
        if delivery.stage == "copied" or (delivery.stage == "completing" and ok):
            self.resolve(delivery, delivery.stage)
        else:
            self.wait(delivery)

    def resolve(self, delivery: Delivery, why: str) -> None:
        """The record needs nothing more: its offset may be committed."""
        self.deliveries.remove(delivery)
        who = delivery.event_id, delivery.value or b""
        self.promises.resolved.add((delivery.place, delivery.offset))
        pending = self.broker.holds(who, self.promises.resolved)
        self.promises.resolves(delivery.place, delivery.offset, who, why, pending=pending)
        assigned = self.consumer.assigned.get(delivery.place)
        counts = assigned is not None and assigned.epoch == delivery.epoch
        told = delivery.place, delivery.offset, delivery.epoch
        # The ledger has two ways to be told; both must be seen.
        noted = (
            self.ledger.resolve(*told) if delivery.offset % 2 else self.ledger.resolve_all(told[0], [told[1]], told[2])
        )
        if noted is not counts:
            raise Broken(f"an acknowledgement of {delivery.name} was {'refused' if counts else 'counted'}")


def handler_error(outcome: str, *, down: bool) -> BaseException | None:
    """What a handler raises before its effect, None when it gets that far."""
    if down:
        return Outage("the provider is down")
    errors: dict[str, Callable[[], BaseException]] = {
        "retry": lambda: Retry("later"),
        "reject": lambda: Reject("never"),
        "odd": lambda: RuntimeError("before the effect"),
    }
    return errors[outcome]() if outcome in errors else None
