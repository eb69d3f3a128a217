"""What can be done to the shop: each fault is begun, lasts, is mended, and is noted with its real times."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import redis

from orderflow.ops.stack.part import Part
from tests.chaos.proxy import Proxy
from tests.chaos.roles import Role
from tests.chaos.schedule import Planned, Strike
from tests.chaos.world import SIDES, World
from tests.checker.facts import Fault, Kind


class Strikes:
    """Carries out planned faults on a world, each in a thread of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._threads: list[threading.Thread] = []
        # A server may take long to come back: the next fault of it begins when it has.
        self._servers = {role: threading.Lock() for role in ("kafka", "redis", "postgres", "mail")}
        self.done: list[str] = []
        self.failed: list[str] = []
        kafka, stack = world.stack.kafka, world.stack
        self._ways: dict[Strike, Callable[[Planned], str]] = {
            Strike.KILL_WORKER: partial(self._kill, "worker"),
            Strike.KILL_RELAY: partial(self._kill, "relay"),
            Strike.KILL_API: partial(self._kill, "api"),
            Strike.FREEZE_WORKER: partial(self._freeze, "worker"),
            Strike.FREEZE_WORKER_LONG: partial(self._freeze, "worker"),
            Strike.FREEZE_RELAY: partial(self._freeze, "relay"),
            Strike.RESTART_WORKER: partial(self._restart, "worker"),
            Strike.RESTART_RELAY: partial(self._restart, "relay"),
            Strike.ADD_WORKER: self._add,
            Strike.REMOVE_WORKER: partial(self._restart, "worker"),
            Strike.RESTART_KAFKA: partial(self._down, "kafka", kafka.stop, kafka.start),
            Strike.KILL_KAFKA: partial(self._down, "kafka", kafka.kill, kafka.start),
            Strike.FREEZE_KAFKA: partial(self._asleep, "kafka", kafka.brokers[0]),
            Strike.CUT_KAFKA: self._cut_kafka,
            Strike.RESTART_REDIS: partial(self._down, "redis", stack.redis.stop, stack.redis.start),
            Strike.KILL_REDIS: partial(self._down, "redis", stack.redis.kill, stack.redis.start),
            Strike.FREEZE_REDIS: partial(self._asleep, "redis", stack.redis),
            Strike.FLUSH_REDIS: self._flush,
            Strike.CUT_REDIS: self._cut_redis,
            Strike.RESTART_POSTGRES: partial(self._down, "postgres", stack.postgres.stop, stack.postgres.start),
            Strike.FREEZE_POSTGRES: partial(self._asleep, "postgres", stack.postgres),
            Strike.CUT_POSTGRES: partial(self._cut, "postgres", world.postgres_proxy),
            Strike.MAIL_DOWN: partial(self._down, "mail", stack.mail.stop, stack.mail.start),
            Strike.CUT_MAIL: partial(self._cut, "mail", world.mail_proxy),
        }

    def begin(self, planned: Planned) -> None:
        """Do it, beside whatever else is going on."""
        thread = threading.Thread(target=self._carry_out, args=(planned,), name=planned.strike, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Wait until all is mended."""
        for thread in self._threads:
            thread.join(180)

    def _carry_out(self, planned: Planned) -> None:
        try:
            whom = self._ways[planned.strike](planned)
            self.done.append(f"{planned.at:6.1f} s  {planned.strike} ({whom}, {planned.seconds:.1f} s)")
        except Exception as error:  # noqa: BLE001 - told in the report: a fault that could not be made proves nothing
            self.failed.append(f"{planned.at:6.1f} s  {planned.strike}: {type(error).__name__}: {error}")

    @contextmanager
    def _noted(self, kind: Kind, role: str, group: str = "", name: str = "") -> Iterator[None]:
        """Note a fault with its times; of one that never ends, in case the run does."""
        began = time.time()
        try:
            yield
        finally:
            self._world.note(Fault(kind, role, began, time.time(), group, name or role))

    def _chosen(self, kind: str, planned: Planned, *, spare: bool = False) -> Role:
        roles = self._world.roles.of(kind, spare=spare)
        return roles[planned.target % len(roles)]

    def _kill(self, kind: str, planned: Planned) -> str:
        role = self._chosen(kind, planned)
        with role.lock, self._noted(Kind.KILL, kind, role.group, role.name):
            role.kill()
        return role.name

    def _freeze(self, kind: str, planned: Planned) -> str:
        role = self._chosen(kind, planned)
        with self._noted(Kind.FREEZE, kind, role.group, role.name):
            role.daemon.pause()
            time.sleep(planned.seconds)
            role.daemon.resume()
        return role.name

    def _restart(self, kind: str, planned: Planned) -> str:
        role = self._chosen(kind, planned)
        with role.lock, self._noted(Kind.STOP, kind, role.group, role.name):
            role.stop()
            time.sleep(planned.seconds)
            role.start()
        return role.name

    def _add(self, planned: Planned) -> str:
        role = self._chosen("worker", planned, spare=True)
        with role.lock:
            with self._noted(Kind.START, "worker", role.group, role.name):
                role.start()
                # It needs some seconds before it is a member at all.
                time.sleep(planned.seconds + self._world.shape.lease)
            with self._noted(Kind.STOP, "worker", role.group, role.name):
                role.stop()
        return role.name

    def _down(self, role: str, stop: Callable[[], None], start: Callable[[], None], planned: Planned) -> str:
        with self._servers[role], self._noted(Kind.AWAY, role):
            stop()
            time.sleep(planned.seconds)
            start()
        return role

    def _asleep(self, role: str, part: Part, planned: Planned) -> str:
        with self._servers[role], self._noted(Kind.FREEZE, role):
            part.pause()
            time.sleep(planned.seconds)
            part.resume()
        return role

    def _flush(self, _planned: Planned) -> str:
        with (
            self._servers["redis"],
            self._noted(Kind.FLUSH, "redis"),
            redis.Redis.from_url(self._world.stack.redis.url) as client,
        ):
            client.flushall()
        return "redis"

    def _cut_kafka(self, planned: Planned) -> str:
        side = SIDES[planned.target % len(SIDES)]
        self._cut("kafka", self._world.kafka_sides[side], planned)
        return f"workers on the {side.lower()}"

    def _cut_redis(self, planned: Planned) -> str:
        role = self._chosen("worker", planned)
        self._cut("redis", self._world.redis_proxies[role.name], planned, role.group, f"redis for {role.name}")
        return role.name

    def _cut(self, role: str, proxy: Proxy, planned: Planned, group: str = "", name: str = "") -> str:
        with self._noted(Kind.CUT, role, group, name):
            if planned.target % 4 < 2:
                proxy.hang()
            else:
                proxy.cut()
            time.sleep(planned.seconds)
            proxy.mend()
        return role
