"""Random walks of several workers over the real scripts, beside the rules written down in plain Python.

Every call may be repeated (its answer was lost) or arrive late; leases end, processes die, keys are lost.
After each call the answer, and what the server stored, must be what the rules say.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from consumers.runtime.claims import Answer, ClaimRequest, Claims, Pair, Release
from orderflow.ops.stack.redis import Redis

EVENTS = ["a", "b"]
HASHES = [b"one____", b"\x00\xff\r\nbin"]
OWNED = {Answer.OWNED, Answer.UNSURE, Answer.POISON}


@dataclass
class Claim:
    """What the rules know of one event."""

    payload_hash: bytes
    state: str = "R"
    token: str = ""
    over: bool = False  # the lease has ended
    crashes: int = 0
    unsure: bool = False
    announced: bool = False
    routed: Pair = (0, 0)


@dataclass
class Rules:
    """The transitions as sentences; one event each."""

    claims: dict[str, Claim] = field(default_factory=dict)

    def claim(self, request: ClaimRequest) -> tuple[Answer, int]:
        known = self.claims.get(request.event_id)
        claim = known or Claim(request.payload_hash)
        if claim.payload_hash != request.payload_hash:
            return Answer.MISMATCH, claim.crashes
        if claim.state == "C":
            return Answer.DONE, 0
        if request.pair < claim.routed:
            return Answer.SUPERSEDED, claim.crashes
        again = claim.state == "P" and claim.token == request.token
        if claim.state == "P" and not again:
            if not claim.over:
                return Answer.BUSY, claim.crashes
            if claim.crashes == 0 or claim.announced:
                claim.crashes += 1
            claim.state, claim.token, claim.unsure, claim.announced = "R", "", True, False
        if request.pair[0] > claim.routed[0]:
            claim.crashes = 0
        if not again and 0 < claim.crashes < 3 and not request.alone:
            return Answer.ALONE, claim.crashes
        claim.announced = claim.announced and again
        claim.state, claim.token, claim.over = "P", request.token, False
        claim.routed = max(claim.routed, request.pair)
        self.claims[request.event_id] = claim
        return self.granted(claim), claim.crashes

    @staticmethod
    def granted(claim: Claim) -> Answer:
        if claim.crashes >= 3:
            return Answer.POISON
        return Answer.UNSURE if claim.unsure else Answer.OWNED

    def held(self, event: str, token: str, states: str = "P") -> Claim | None:
        claim = self.claims.get(event)
        return claim if claim and claim.state in states and claim.token == token else None

    def start(self, event: str, token: str) -> bool:
        if claim := self.held(event, token):
            claim.announced = True
        return claim is not None

    def renew(self, event: str, token: str) -> bool:
        claim = self.held(event, token, "PC")
        if claim and claim.state == "P":
            claim.over = False
        return claim is not None

    def complete(self, event: str, token: str) -> bool:
        if claim := self.held(event, token, "PC"):
            claim.state, claim.crashes, claim.unsure, claim.announced = "C", 0, False, False
        return claim is not None

    def release(self, release: Release) -> bool:
        claim = self.held(release.event_id, release.token)
        if claim is None:
            return False
        claim.state, claim.token, claim.announced = "R", "", False
        claim.unsure |= release.unsure
        if release.started or (release.routed and release.routed[0] > claim.routed[0]):
            claim.crashes = 0
        claim.routed = max(claim.routed, release.routed or (0, 0))
        return True


pairs = st.tuples(st.integers(0, 2), st.integers(0, 12))
requests = st.builds(
    ClaimRequest,
    event_id=st.sampled_from(EVENTS),
    token=st.just(""),
    payload_hash=st.sampled_from([HASHES[0]] * 9 + [HASHES[1]]),
    pair=pairs,
    alone=st.booleans(),
)


class ClaimsMachine(RuleBasedStateMachine):
    """Several workers; a token that was granted stays in the bundle and may be used by a zombie for ever."""

    connect: ClassVar[Callable[[], tuple[Claims, redis.Redis]]]
    tried: Bundle[ClaimRequest] = Bundle("tried")
    late: Bundle[tuple[str, ClaimRequest]] = Bundle("late")

    @initialize()
    def begin(self) -> None:
        self.claims, self.client = type(self).connect()
        self.client.flushdb()
        self.expected = Rules()
        self.number = 0

    @rule(target=tried, wanted=requests)
    def claim(self, wanted: ClaimRequest) -> ClaimRequest:
        self.number += 1
        request = replace(wanted, token=f"token-{self.number}")
        self.ask(request)
        return request

    @rule(request=tried, alone=st.booleans())
    def claim_again_with_the_same_token(self, request: ClaimRequest, *, alone: bool) -> None:
        self.ask(replace(request, alone=alone))

    @rule(target=tried, wanted=st.lists(requests, min_size=2, max_size=5))
    def claim_many_in_one_call(self, wanted: list[ClaimRequest]) -> Any:
        self.number += 1
        many = [replace(one, token=f"token-{self.number}.{i}") for i, one in enumerate(wanted)]
        expected = [self.expected.claim(request) for request in many]
        assert [(reply.answer, reply.crashes) for reply in self.claims.claim(many)] == expected
        return multiple(*many)

    def ask(self, request: ClaimRequest) -> None:
        owner = self.expected.claims[request.event_id].token if request.event_id in self.expected.claims else ""
        expected = self.expected.claim(request)
        [reply] = self.claims.claim([request])
        assert (reply.answer, reply.crashes) == expected
        if reply.answer is Answer.BUSY:
            assert reply.owner == owner
            assert 0 < reply.busy_ms <= 30_000
        else:
            assert (reply.owner, reply.busy_ms) == ("", 0)

    @rule(request=tried)
    def start(self, request: ClaimRequest) -> None:
        expected = self.expected.start(request.event_id, request.token)
        assert self.claims.start(request.event_id, request.token) is expected

    @rule(request=tried)
    def renew(self, request: ClaimRequest) -> None:
        expected = self.expected.renew(request.event_id, request.token)
        assert self.claims.renew([(request.event_id, request.token)]) == [expected]

    @rule(request=tried)
    def complete(self, request: ClaimRequest) -> None:
        expected = self.expected.complete(request.event_id, request.token)
        assert self.claims.complete([(request.event_id, request.token)]) == [expected]

    @rule(request=tried, unsure=st.booleans(), started=st.booleans(), routed=st.none() | pairs, times=st.integers(1, 2))
    def release(self, request: ClaimRequest, routed: Pair | None, times: int, *, unsure: bool, started: bool) -> None:
        release = Release(request.event_id, request.token, unsure=unsure, started=started, routed=routed)
        for _ in range(times):
            expected = self.expected.release(release)
            assert self.claims.release([release]) == [expected]

    @rule(event=st.sampled_from(EVENTS))
    def the_lease_ends(self, event: str) -> None:
        claim = self.expected.claims.get(event)
        if claim and claim.state == "P":
            claim.over = True
            self.client.hset(f"idem:email:0:{event}", "exp", 1)

    @rule(event=st.sampled_from(EVENTS), token=st.integers(0, 10**6), announced=st.booleans())
    def its_owner_dies_alone(self, event: str, token: int, *, announced: bool) -> None:
        """What takes many steps to come about by chance: one more crash if its run was announced, else none."""
        claim = self.expected.claims.get(event)
        if claim is None or claim.state == "C":
            return
        self.the_lease_ends(event)
        request = ClaimRequest(event, f"dies-{token}", claim.payload_hash, claim.routed, alone=True)
        self.ask(request)
        if announced:
            self.start(request)
        self.the_lease_ends(event)

    @rule(event=st.sampled_from(EVENTS))
    def redis_loses_it(self, event: str) -> None:
        self.expected.claims.pop(event, None)
        self.client.delete(f"idem:email:0:{event}")

    @rule()
    def redis_forgets_the_scripts(self) -> None:
        self.client.script_flush()

    @rule(target=late, request=tried, kind=st.sampled_from(["start", "renew", "complete", "release", "claim"]))
    def a_call_stays_under_way(self, request: ClaimRequest, kind: str) -> tuple[str, ClaimRequest]:
        return kind, request

    @rule(call=consumes(late))
    def it_arrives(self, call: tuple[str, ClaimRequest]) -> None:
        kind, request = call
        if kind == "claim":
            self.ask(request)
        elif kind == "release":
            self.release(request, None, 1, unsure=False, started=False)
        else:
            getattr(self, kind)(request)

    @invariant()
    def the_server_holds_what_the_rules_say_and_nothing_without_an_end(self) -> None:
        if not hasattr(self, "expected"):
            return
        pipeline = self.client.pipeline(transaction=False)
        for event in EVENTS:
            pipeline.hgetall(f"idem:email:0:{event}")
            pipeline.pttl(f"idem:email:0:{event}")
        answers = pipeline.execute()
        for event, stored, left_ms in zip(EVENTS, answers[::2], answers[1::2], strict=True):
            claim = self.expected.claims.get(event)
            assert bool(stored) == (claim is not None)
            if claim is None:
                continue
            assert left_ms > 0
            assert (stored[b"st"].decode(), stored[b"tok"].decode()) == (claim.state, claim.token)
            assert (int(stored[b"crashes"]), stored[b"unsure"] == b"1") == (claim.crashes, claim.unsure)
            assert (int(stored[b"replay"]), int(stored[b"hop"])) == claim.routed
            if claim.state == "P":
                assert (stored[b"run"] == b"1", int(stored[b"exp"]) == 1) == (claim.announced, claim.over)


def test_the_scripts_keep_the_rules(open_claims: Callable[..., Claims], redis_server: Redis) -> None:
    claims = open_claims()
    with redis.Redis.from_url(redis_server.url) as client:

        class OnThisServer(ClaimsMachine):
            connect = staticmethod(lambda: (claims, client))

        run_state_machine_as_test(
            OnThisServer,
            settings=settings(
                max_examples=60,
                stateful_step_count=30,
                deadline=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.explicit, Phase.generate, Phase.shrink),
            ),
        )
