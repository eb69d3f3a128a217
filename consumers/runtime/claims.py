"""The claim before work: who may run an event now, decided by Redis and by Redis' clock alone.

One Lua script per transition (`lua/`), so that no crash can fall between two commands. Every script
may be repeated with the same token after a lost answer: CLAIM answers what it answered before, START,
RENEW and COMPLETE say yes again, RELEASE says LOST and changes nothing.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from orderflow.core.causes import redis as causes
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import RedisSettings
from retry.story import Pair

__all__ = [
    "Answer",
    "ClaimReply",
    "ClaimRequest",
    "Claims",
    "ClaimsDown",
    "Pair",
    "Release",
    "address",
    "connect",
    "payload_hash",
]

_SCRIPTS = Path(__file__).parent / "lua"


class Answer(StrEnum):
    """What Redis says to a claim."""

    OWNED = "owned"  # run the handler
    UNSURE = "unsure"  # owned; an earlier run may have had its effect
    ALONE = "alone"  # not owned: claim it again when nothing else is claimed, and nothing beside it
    BUSY = "busy"  # not owned: somebody's lease lasts `busy_ms` more; neither commit nor route nor count an attempt
    DONE = "done"  # the effect is there
    SUPERSEDED = "superseded"  # a later copy is safely in a topic; drop this one
    MISMATCH = "mismatch"  # the same event id with other bytes
    POISON = "poison"  # owned; it took the process with it three times


_ANSWERS = {answer.value.encode(): answer for answer in Answer}


@dataclass(slots=True)
class ClaimRequest:
    """One record that asks to run; `token` is new for every try, `alone` says that the caller holds no other claim."""

    event_id: str
    token: str
    payload_hash: bytes
    pair: Pair
    alone: bool


@dataclass(slots=True)
class ClaimReply:
    """Redis' answer. `busy_ms` and `owner` (the owner's token) are set when BUSY; call `start` when `crashes` > 0."""

    answer: Answer
    crashes: int
    busy_ms: int
    owner: str


@dataclass(frozen=True, slots=True)
class Release:
    """One claim to give back, only after its handler's thread has returned.

    `started` says whether the handler ran; a POISON that goes to the dead letters counts as started.
    `unsure` says that its effect may be there. `routed` is the pair of a copy whose delivery report said yes.
    """

    event_id: str
    token: str
    unsure: bool
    started: bool
    routed: Pair | None


class ClaimsDown(Exception):
    """Raised when Redis gave no answer, or an error for one: nothing is known about any call of the batch."""


class Claims:
    """The claims of one group.

    `lease_seconds` is how long a claim lasts without `renew`, `ttl` how long a done mark is remembered.
    Raises `Misconfigured` for a lease that would not exclude anybody, or that outlives its own key.
    """

    def __init__(self, client: redis.Redis, group: str, *, lease_seconds: float, ttl: timedelta) -> None:
        """Read the scripts from their files; talk to nobody."""
        lease_ms = round(lease_seconds * 1000) if math.isfinite(lease_seconds) else 0
        if lease_ms < 1:
            raise Misconfigured(
                f"a lease of {lease_seconds} s excludes nobody: set ORDERFLOW_WORKER__LEASE_SECONDS > 0"
            )
        ttl_ms = ttl // timedelta(milliseconds=1)
        if ttl_ms <= 2 * lease_ms:
            message = f"claims kept for {ttl} would end within their lease: raise ORDERFLOW_WORKER__CLAIM_TTL_HOURS"
            raise Misconfigured(message)
        self._redis = client
        self._group = group
        self._lease_ms, self._ttl_ms = lease_ms, ttl_ms
        self._prefix = f"idem:{group}:0:"
        self.idempotency_epoch = 0
        self._claim = _Script("claim")
        self._start = _Script("start")
        self._complete = _Script("complete")
        self._renew = _Script("renew")
        self._release = _Script("release")

    def load(self) -> None:
        """Check the server, read the group's idempotency epoch and load the scripts.

        Raises `Misconfigured` when Redis does not answer, may evict claims, or holds a broken epoch.
        """
        try:
            policy = self._redis.info("memory").get("maxmemory_policy")
            stored = self._redis.get(f"epoch:{self._group}")
            for script in (self._claim, self._start, self._complete, self._renew, self._release):
                self._redis.script_load(script.text)
        except (RedisError, OSError) as error:
            raise Misconfigured(causes.sentence(error, address(self._redis))) from None
        if policy != "noeviction":
            message = (
                f"Redis at {address(self._redis)} has maxmemory-policy {policy}: it would forget claims, "
                f"events would run twice. Set `maxmemory-policy noeviction` in its configuration, now or by "
                f"`redis-cli CONFIG SET maxmemory-policy noeviction`"
            )
            raise Misconfigured(message)
        self.idempotency_epoch = _epoch(stored, self._group)
        self._prefix = f"idem:{self._group}:{self.idempotency_epoch}:"

    def claim(self, requests: Sequence[ClaimRequest]) -> list[ClaimReply]:
        """Ask for these records in one round trip. Raises `ClaimsDown`; ask again with the same tokens then."""
        calls = [
            (
                self._prefix + request.event_id,
                (request.token, request.payload_hash, self._lease_ms, self._ttl_ms, *request.pair, int(request.alone)),
            )
            for request in requests
        ]
        return [
            ClaimReply(_ANSWERS[answer], crashes, busy_ms, owner.decode())
            for answer, crashes, busy_ms, owner in self._run(self._claim, calls)
        ]

    def start(self, event_id: str, token: str) -> bool:
        """Announce a run whose claim has `crashes` > 0. False: the claim is lost, claim again. Raises `ClaimsDown`."""
        return self._yes(self._start, [(self._prefix + event_id, (token, self._ttl_ms))])[0]

    def complete(self, claims: Sequence[tuple[str, str]]) -> list[bool]:
        """Record that these (event id, token) had their effect. False: lost, claim again. Raises `ClaimsDown`."""
        return self._yes(self._complete, [(self._prefix + event, (token, self._ttl_ms)) for event, token in claims])

    def renew(self, claims: Sequence[tuple[str, str]]) -> list[bool]:
        """Extend the leases of these (event id, token) from now. False: lost. Raises `ClaimsDown`."""
        return self._yes(
            self._renew, [(self._prefix + event, (token, self._lease_ms, self._ttl_ms)) for event, token in claims]
        )

    def release(self, releases: Sequence[Release]) -> list[bool]:
        """Give these claims back. False: it was no longer held, which changes nothing. Raises `ClaimsDown`."""
        return self._yes(
            self._release,
            [
                (
                    self._prefix + release.event_id,
                    (release.token, self._ttl_ms, int(release.unsure), int(release.started), *(release.routed or ())),
                )
                for release in releases
            ],
        )

    def time_ms(self) -> int:
        """Return Redis' clock in epoch milliseconds. Raises `ClaimsDown`."""
        seconds, micros = _answered(self._redis.time)
        return int(seconds) * 1000 + int(micros) // 1000

    def _yes(self, script: "_Script", calls: Sequence[tuple[str, Sequence[Any]]]) -> list[bool]:
        return [answer == 1 for answer in self._run(script, calls)]

    def _run(self, script: "_Script", calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Run a script once per call in one pipeline; what the server had forgotten is loaded and run again."""
        answers = self._pipelined(script, calls)
        forgotten = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if forgotten:
            # A server that was restarted or flushed. Only these are repeated: the others have been applied.
            _answered(lambda: self._redis.script_load(script.text))
            for i, answer in zip(forgotten, self._pipelined(script, [calls[i] for i in forgotten]), strict=True):
                answers[i] = answer
        for answer in answers:
            if isinstance(answer, Exception):
                raise ClaimsDown(str(answer)) from answer
        return answers

    def _pipelined(self, script: "_Script", calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for key, arguments in calls:
            pipeline.evalsha(script.sha, 1, key, *arguments)
        answers: list[Any] = _answered(lambda: pipeline.execute(raise_on_error=False))
        return answers


class _Script:
    """The text of one transition and the digest by which the server knows it."""

    def __init__(self, name: str) -> None:
        self.text = (_SCRIPTS / f"{name}.lua").read_text(encoding="utf-8")
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def connect(settings: RedisSettings) -> redis.Redis:
    """Return a client whose calls end within about twice `timeout_seconds` and are never repeated behind our back.

    It connects at the first call. A hidden retry would double the time for which the worker's loop stands.
    Raises `Misconfigured` for what is no URL of Redis.
    """
    try:
        return redis.Redis.from_url(
            settings.url.get_secret_value(),
            socket_timeout=settings.timeout_seconds,
            socket_connect_timeout=settings.timeout_seconds,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )
    except ValueError:
        # Its own words may quote the URL, password and all.
        message = "ORDERFLOW_REDIS__URL is no URL of Redis: redis://USER:PASSWORD@HOST:PORT/DB, rediss:// with TLS"
        raise Misconfigured(message) from None


def payload_hash(value: bytes | None) -> bytes:
    """Return 8 bytes of the value's sha256; eight zero bytes for a record without a value."""
    return bytes(8) if value is None else hashlib.sha256(value).digest()[:8]


def _answered(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RedisError, OSError) as error:
        raise ClaimsDown(str(error)) from error


def address(client: redis.Redis) -> str:
    """Return where the client connects to, without its password."""
    where = client.connection_pool.connection_kwargs
    return str(where.get("path") or f"{where.get('host', '127.0.0.1')}:{where.get('port', 6379)}")


def _epoch(stored: bytes | str | None, group: str) -> int:
    if stored is None:
        return 0
    if not stored.isdigit():
        raise Misconfigured(f"epoch:{group} in Redis is {stored!r}, not a number: put the last epoch of the group back")
    return int(stored)
