"""The whole small system: which steps may come next, and what each does."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import redis
from confluent_kafka import KafkaError

from consumers.runtime.claims import Answer, ClaimReply, ClaimRequest, Claims, Release
from consumers.runtime.offsets import Place
from orderflow.core import clock
from retry.policy import Disposition
from schemas.headers import DLQ_DELIVERY_COUNT, DLQ_DISPOSITION, DLQ_REPLAY_COUNT, header, integer
from tests.model.broker import Broker, who_is
from tests.model.promises import Broken, Promises
from tests.model.system import GROUP, System
from tests.model.worker import BEGUN, GRANTED, Delivery, Process, handler_error

Step = tuple[Any, ...]
"""Name, then what it is done to; what JSON can hold."""

UNKNOWN = KafkaError(KafkaError._MSG_TIMED_OUT)
# How a call to Redis may end for the caller: answered, or one of the faults.
FATES = ("answered", "lost", "late", "unheard")


class World:
    """Redis is real; broker, processes and handlers are steps. Raises `Broken` where a promise ends."""

    def __init__(self, system: System, claims: Claims, server: redis.Redis) -> None:
        self.system = system
        self.promises = Promises(system)
        self.broker = Broker.of(system)
        self.left = dict(system.faults)
        self.replays_left = system.replays
        self.down = False
        self.deployed = False
        self.seen: set[str] = set()  # answers, faults and dispositions: what walks have been through
        self._claims = claims
        self._server = server
        self._clock = clock.monotonic() + 1_000.0
        self._late: list[Callable[[], Any]] = []
        self._holder: dict[str, str] = {}  # event -> the token that Redis has granted
        self._replays: Counter[str] = Counter()  # event -> the highest replay count that was granted
        self._over: set[str] = set()  # tokens whose lease has ended
        self.processes: list[Process | None] = [self._process(number, 0) for number in range(system.workers)]
        self._lives = [0] * system.workers
        server.flushdb()

    def _process(self, number: int, life: int) -> Process:
        return Process(number, life, self.system, self._claims, self.broker, self.promises, self._clock)

    # -- which steps may come next ------------------------------------------------------------------------------

    def steps(self, *, faults: bool = True) -> list[Step]:
        """Return every step that may come next, without faults only those that happen by themselves."""
        found: list[Step] = [("replay", letter) for letter in self.replayable()] if self.replays_left else []
        for number, process in enumerate(self.processes):
            if process is None:
                owns = number in self.broker.owner.values()
                found.append(("expel", number) if owns else ("boot", number))
            elif process.frozen:
                found.append(("thaw", number))
                found += [("expel", number)] if number in self.broker.owner.values() and faults else []
            else:
                found += self._of_process(process)
                found += self._faults_of(process) if faults else []
        found += [("write", number, 1, 1) for number in range(len(self.broker.sent))]
        found += [("commit taken", number, 1, 1) for number in range(len(self.broker.commits))]
        found += [("late call", number) for number in range(len(self._late))]
        found += [("lease ends", event) for event, token in self._holder.items() if self._may_end(token)]
        return found + (self._faults() if faults else [])

    def _of_process(self, process: Process) -> list[Step]:
        number = process.number
        found: list[Step] = [("lost", number)] if process.not_mine() else []
        for partition in range(len(self.system.source)):
            places = self._places(partition)
            if all(self.broker.owner[place] is None and place not in process.consumer.assigned for place in places):
                found.append(("assign", number, partition))
        room = self.system.hold - len(process.deliveries)
        unread = [place for place in process.consumer.assigned if room > 0 and process.unread(place)]
        found += [("poll", number, *place, most) for place in unread for most in {1, room}]
        if process.consumer.answers or process.outbox.reports or len(process.router):
            found.append(("serve", number))
        if any(
            (self.broker.committed[place] or 0) != assigned.read_to
            for place, assigned in process.consumer.assigned.items()
        ):
            found.append(("commit", number))
            # Nothing but a commit that sets the group back may need the minute after which prefixes are sent again.
            found += [("minute", number)] if self.left or self.broker.set_back else []
        return found + self._of_deliveries(process)

    def _of_deliveries(self, process: Process) -> list[Step]:
        number, heard = process.number, not process.cut
        found: list[Step] = []
        claimable = [delivery.name for delivery in process.claimable()] if heard else []
        if any(delivery.stage == "asked" for delivery in process.deliveries):
            found += [("claim", number, claimable, "answered")] if claimable else []
        else:
            found += [("claim", number, [name], "answered") for name in claimable]
            together = claimable[: self.system.slots]
            found += [("claim", number, together, "answered")] if len(together) > 1 else []
        for delivery in process.deliveries:
            match delivery.stage:
                case "owned" if heard or not delivery.crashes:
                    found.append(("begin", number, delivery.name))
                case "running" | "effective":
                    found.append(("run", number, delivery.name))
                case "back":
                    found.append(("conclude", number, delivery.name))
                case "completing" | "releasing" | "copied" if heard:
                    found.append(("tell", number, delivery.name, "answered"))
        if heard and process.in_hand:
            found.append(("renew", number))
        return found

    def _faults_of(self, process: Process) -> list[Step]:
        number, left = process.number, self.left
        found: list[Step] = [(fault, number) for fault in ("kill", "freeze") if left.get(fault)]
        if number in self.broker.owner.values() and left.get("kick"):
            found.append(("kick", number))
        if process.cut:
            found.append(("mend", number))
        elif left.get("cut"):
            found.append(("cut", number))
        if left.get("fatal") and len(process.router):
            found.append(("fatal", number))
        if left.get("reread"):
            found += [
                ("reread", number, *place, offset)
                for place, assigned in process.consumer.assigned.items()
                for offset in range(assigned.start, assigned.position or 0)
                if self.broker.logs[place][offset] is not None
            ]
        if left.get("rebalance"):
            found += [
                ("revoke", number, partition, refused)
                for partition in range(len(self.system.source))
                if any(place in process.consumer.assigned for place in self._places(partition))
                for refused in (0, 1)
            ]
        calls = [step for step in self._of_deliveries(process) if step[-1] == "answered"]
        return found + [(*step[:-1], fate) for step in calls for fate in FATES[1:] if left.get(fate)]

    def _faults(self) -> list[Step]:
        left = self.left
        found: list[Step] = []
        for number in range(len(self.broker.sent)):
            found += [("write", number, 2, 1)] if left.get("twice") else []
            found += [("write", number, times, 0) for times in (0, 1)] if left.get("unknown") else []
        for number in range(len(self.broker.commits)):
            found += [("commit taken", number, applied, 0) for applied in (0, 1)] if left.get("commit") else []
        if self.down or left.get("down"):
            found.append(("down", int(not self.down)))
        if left.get("scripts"):
            found.append(("scripts",))
        if left.get("forget"):
            found += [("forget", ""), *(("forget", event) for event in self.system.events)]
        return found

    def replayable(self) -> list[str]:
        """Dead letters that an operator may replay: open, and not the bytes of another event."""
        return [
            letter_id
            for letter_id, letter in self.broker.open_letters().items()
            if header(letter.headers, DLQ_DISPOSITION) != Disposition.MISMATCH
        ]

    def _may_end(self, token: str) -> bool:
        """Whether nobody renews this lease."""
        return token not in self._over and not any(
            process is not None and not process.frozen and not process.cut and delivery.token == token
            for process, delivery in self._everywhere()
            if delivery.holds
        )

    # -- steps --------------------------------------------------------------------------------------------------

    def do(self, step: Step) -> None:
        """Do one step."""
        name, *told = step
        self._pay(step)
        if told and name in {"serve", "commit", "minute", "renew"}:
            process = self._live(told[0])
            self._clock += 61.0 if name == "minute" else 0.001
            process.clock = self._clock
        getattr(self, "_do_" + name.replace(" ", "_"))(*told)

    def _pay(self, step: Step) -> None:
        name = step[0]
        fault = {"revoke": "rebalance", "commit": ""}.get(name, name)
        if name == "write":
            fault = "twice" if step[2] == 2 else "" if step[3] else "unknown"
        elif name == "commit taken":
            fault = "" if step[3] else "commit"
        elif name in {"claim", "tell"}:
            fault = step[-1]
        elif name == "down" and not step[1]:
            fault = ""
        if fault in self.left:
            self.left[fault] -= 1
            self.seen.add(fault)

    def _do_replay(self, letter_id: str) -> None:
        self.replays_left -= 1
        self.broker.replay(letter_id)

    def _do_expel(self, number: int) -> None:
        self.broker.take_from(number)

    _do_kick = _do_expel

    def _do_boot(self, number: int) -> None:
        self._lives[number] += 1
        self.processes[number] = self._process(number, self._lives[number])

    def _do_thaw(self, number: int) -> None:
        self._live(number).frozen = False

    def _do_freeze(self, number: int) -> None:
        self._live(number).frozen = True

    def _do_cut(self, number: int) -> None:
        self._live(number).cut = True

    def _do_mend(self, number: int) -> None:
        self._live(number).cut = False

    def _do_fatal(self, number: int) -> None:
        self._live(number).outbox.failed = True

    def _do_kill(self, number: int, killer: Delivery | None = None) -> None:
        process = self._live(number)
        held = process.in_hand
        for delivery in held:
            if delivery.robbed:
                continue  # it was counted then
            alone_and_running = len(held) == 1 and delivery.stage in BEGUN
            self.promises.interrupted_alone[delivery.event_id] += alone_and_running or delivery is killer
            self.promises.windows[delivery.event_id] += delivery.stage == "effective"
        process.outbox.forget()
        process.consumer.forget()
        self.processes[number] = None

    def _do_lost(self, number: int) -> None:
        process = self._live(number)
        places = process.not_mine()
        process.gone(places)
        process.end(places)

    def _do_assign(self, number: int, partition: int) -> None:
        self._live(number).assign(self._places(partition))

    def _do_revoke(self, number: int, partition: int, refused: int) -> None:
        process = self._live(number)
        process.revoke([p for p in self._places(partition) if p in process.consumer.assigned], refused=bool(refused))

    def _do_poll(self, number: int, topic: str, partition: int, most: int) -> None:
        self._live(number).poll((topic, partition), most)

    def _do_reread(self, number: int, topic: str, partition: int, offset: int) -> None:
        self._live(number).consumer.assigned[topic, partition].position = offset

    def _do_serve(self, number: int) -> None:
        self._live(number).serve()

    def _do_commit(self, number: int) -> None:
        process = self._live(number)
        process.commits.commit_if_due(process.clock)

    _do_minute = _do_commit

    def _do_write(self, number: int, times: int, ok: int) -> None:
        self.broker.write(number, times, None if ok else UNKNOWN)

    def _do_commit_taken(self, number: int, applied: int, known: int) -> None:
        self.broker.take_commit(number, applied=bool(applied), known=bool(known))

    def _do_late_call(self, number: int) -> None:
        self._late.pop(number)()

    def _do_lease_ends(self, event: str) -> None:
        key = f"idem:{GROUP}:0:{event}"
        if self._server.hget(key, "st") == b"P":
            self._server.hset(key, "exp", 1)
        self._over.add(self._holder[event])

    def _do_down(self, down: int) -> None:
        self.down = bool(down)

    def _do_scripts(self) -> None:
        self._server.script_flush()

    def _do_forget(self, event: str) -> None:
        self.promises.forgotten = True
        gone = [event] if event else self.system.events
        self._server.delete(*(f"idem:{GROUP}:0:{one}" for one in gone))
        for one in gone:
            self._holder.pop(one, None)
        for _, delivery in self._everywhere():
            if delivery.event_id in gone:
                delivery.robbed = True
                self.promises.windows[delivery.event_id] += delivery.stage in {"owned", "running", "effective"}

    def _do_heal(self) -> None:
        """End all faults."""
        self.left, self.down, self.deployed = {}, False, True
        for process in filter(None, self.processes):
            process.cut = process.frozen = False

    # -- steps of one delivery ----------------------------------------------------------------------------------

    def _do_claim(self, number: int, names: Sequence[str], fate: str) -> None:
        process = self._live(number)
        deliveries = [self._delivery(process, name) for name in names]
        requests = process.requests(deliveries)
        replies = self._call(fate, lambda: self._claim(requests))
        for delivery, reply in zip(deliveries, replies or [], strict=bool(replies)):
            process.answered(delivery, reply, deployed=self.deployed)

    def _claim(self, requests: Sequence[ClaimRequest]) -> list[ClaimReply]:
        replies = self._claims.claim(requests)
        for request, reply in zip(requests, replies, strict=True):
            self._claimed(request, reply)
        return replies

    def _claimed(self, request: ClaimRequest, reply: ClaimReply) -> None:
        """Remember what Redis did, whether its answer arrives or not."""
        self.seen.add(reply.answer)
        event, former = request.event_id, self._holder.get(request.event_id)
        if reply.answer in GRANTED or reply.answer is Answer.ALONE:
            if former not in {None, request.token}:
                self._stolen(event, str(former))
            self._holder.pop(event, None)
        if reply.answer in GRANTED:
            if request.pair[0] > self._replays[event]:
                self._replays[event] = request.pair[0]
                self.promises.interrupted_alone.pop(event, None)
            self._holder[event] = request.token
            self._over.discard(request.token)
        if reply.answer is Answer.POISON:
            self.promises.called_poison(event)

    def _stolen(self, event: str, token: str) -> None:
        if token not in self._over:
            raise Broken(f"{event} has a second owner although the lease of the first lasts")
        self.promises.excused[event] += 1
        for process, delivery in self._everywhere():
            if delivery.token == token and delivery.holds:
                delivery.robbed = True
                alone = len(process.in_hand) == 1 and delivery.stage in BEGUN
                self.promises.interrupted_alone[event] += alone
                self.promises.windows[event] += delivery.stage in {"owned", "running", "effective"}

    def _do_renew(self, number: int) -> None:
        held = self._live(number).in_hand
        answers = self._claims.renew([(delivery.event_id, delivery.token) for delivery in held])
        for delivery, ok in zip(held, answers, strict=True):
            delivery.lost = delivery.lost or not ok
            if ok:
                self._over.discard(delivery.token)

    def _do_begin(self, number: int, name: str) -> None:
        process = self._live(number)
        delivery = self._delivery(process, name)
        if delivery.lost:
            process.wait(delivery)
            return
        if delivery.crashes and not self._claims.start(delivery.event_id, delivery.token):
            process.give_back(delivery)
            return
        if delivery.crashes:
            self._announced(process, delivery)
        others = [
            other
            for _, other in self._everywhere()
            if other is not delivery and other.event_id == delivery.event_id and not other.robbed
            if other.stage in {"running", "effective"}
        ]
        event, replay_count = delivery.event_id, delivery.story.replay_count
        self.promises.begins(event, replay_count, others, maybe_done=delivery.maybe_done, robbed=delivery.robbed)
        delivery.started, delivery.stage = True, "running"
        if self.system.outside:
            if self.promises.row.get(event) == "sent":
                process.returned(delivery, None)
            else:
                self.promises.row[event] = "sending"

    def _announced(self, process: Process, delivery: Delivery) -> None:
        if self._holder.get(delivery.event_id) != delivery.token:
            raise Broken(f"{delivery.event_id} may start although its claim is somebody else's")
        if len(process.in_hand) > 1:
            raise Broken(f"{delivery.event_id} was interrupted before and runs beside others")

    def _do_run(self, number: int, name: str) -> None:
        process = self._live(number)
        delivery = self._delivery(process, name)
        event, replay_count = delivery.event_id, delivery.story.replay_count
        outcome = self.system.outcome(event, replay_count, max(1, self.promises.runs[event, replay_count]))
        if delivery.stage == "running" and self._fails_before(process, delivery, outcome):
            return
        found = bool(self.promises.applied[event]) and not self.system.outside
        if delivery.stage == "running" and not found:
            self.promises.takes_effect(event, delivery.value or b"")
            if self.system.outside:
                delivery.stage = "effective"
                return
        if outcome == "killafter" and not found:
            self.promises.dies_of(event, replay_count)
            self._do_kill(number, delivery)
        elif outcome == "after" and not found:
            self.promises.windows[event] += 1
            process.returned(delivery, RuntimeError("after the effect"))
        else:
            if self.system.outside:
                self.promises.row[event] = "sent"
            process.returned(delivery, None)

    def _fails_before(self, process: Process, delivery: Delivery, outcome: str) -> bool:
        event, replay_count = delivery.event_id, delivery.story.replay_count
        if outcome == "kill" and not self.down:
            self.promises.dies_of(event, replay_count)
            self._do_kill(process.number, delivery)
            return True
        error = handler_error(outcome, down=self.down)
        if error is None:
            return False
        self.promises.excused[event] += self.down
        process.returned(delivery, error)
        return True

    def _do_conclude(self, number: int, name: str) -> None:
        process = self._live(number)
        process.conclude(self._delivery(process, name))

    def _do_tell(self, number: int, name: str, fate: str) -> None:
        process = self._live(number)
        delivery = self._delivery(process, name)
        event, token = delivery.event_id, delivery.token
        if delivery.stage == "completing":
            answers = self._call(fate, lambda: self._complete(event, token))
        else:
            release = process.release_of(delivery)
            answers = self._call(fate, lambda: self._release(release))
        if answers is not None:
            process.told(delivery, ok=answers[0])

    def _complete(self, event: str, token: str) -> list[bool]:
        answers = self._freed(event, token, self._claims.complete([(event, token)]))
        if answers[0]:
            self.promises.completed.add(event)
        return answers

    def _release(self, release: Release) -> list[bool]:
        answers = self._freed(release.event_id, release.token, self._claims.release([release]))
        if answers[0] and (release.started or (release.routed and release.routed[0] > self._replays[release.event_id])):
            self.promises.interrupted_alone.pop(release.event_id, None)
        return answers

    def _freed(self, event: str, token: str, answers: list[bool]) -> list[bool]:
        if answers[0]:
            if self._holder.get(event) not in {None, token}:
                raise Broken(f"the claim of {event} was ended by somebody who does not hold it")
            self._holder.pop(event, None)
        return answers

    def _call(self, fate: str, call: Callable[[], Any]) -> Any:
        """Call Redis; None when the caller gets no answer."""
        if fate == "late":
            self._late.append(call)
        elif fate != "unheard":
            answer = call()
            return answer if fate == "answered" else None
        return None

    # -- the end ------------------------------------------------------------------------------------------------

    def at_rest(self) -> bool:
        """Whether nothing is left to do."""
        working = any(process.deliveries for process in self.processes if process is not None)
        replaying = self.replays_left and self.replayable()
        return not (working or self._late or replaying) and self.broker.done()

    def judge(self) -> None:
        """Judge the end: every event had its effect or lies among the dead letters, with a reason, once."""
        letters = self.broker.open_letters()
        for event, which in sorted({record for partition in self.system.source for record in partition}):
            value = f"{event} {which}".encode()
            mine = [letter for letter in letters.values() if who_is(letter) == (event, value)]
            applied = value in self.promises.applied[event] or (
                self.promises.forgotten and bool(self.promises.applied[event])
            )
            if not applied and not mine:
                raise Broken(f"{event} is lost: neither applied nor among the dead letters")
            if len(mine) > 1:
                raise Broken(f"{event} has {len(mine)} open dead letters")
            words = {word for runs in self.system.scripts[event] for word in runs}
            excused = self.promises.forgotten or self.promises.excused[event] or words & {"after", "killafter"}
            if applied and mine and not excused:
                raise Broken(f"{event} had its effect and lies among the dead letters without a cause")
        for letter_id, letter in self.broker.dead_letters():
            self.seen.add(header(letter.headers, DLQ_DISPOSITION) or "")
            self._judge_letter(letter_id, who_is(letter)[0], letter.headers)

    def _judge_letter(self, letter_id: str, event: str, headers: Any) -> None:
        attempts = integer(headers, DLQ_DELIVERY_COUNT) or 0
        if attempts > 1 + self.system.tiers:
            raise Broken(f"{event} is dead after {attempts} attempts")
        replayed = letter_id in self.broker.replayed
        if header(headers, DLQ_DISPOSITION) == Disposition.POISON_CRASH and replayed:
            ran = (event, (integer(headers, DLQ_REPLAY_COUNT) or 0) + 1) in self.promises.ran_replay
            if not ran and not self.promises.applied[event]:
                raise Broken(f"{event} was poison, was replayed, and never ran")

    # -- helpers ------------------------------------------------------------------------------------------------

    def _places(self, partition: int) -> list[Place]:
        return [place for place in self.broker.places if place[1] == partition]

    def _live(self, number: int) -> Process:
        process = self.processes[number]
        assert process is not None
        return process

    @staticmethod
    def _delivery(process: Process, name: str) -> Delivery:
        return next(delivery for delivery in process.deliveries if delivery.name == name)

    def _everywhere(self) -> list[tuple[Process, Delivery]]:
        return [(process, delivery) for process in self.processes if process for delivery in process.deliveries]
