"""Where the stack listens and keeps its things: pure values, written to `stack.json` in its folder."""

import random
import secrets
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from orderflow.core.errors import Misconfigured, Refused
from orderflow.ops.stack.process import read_json, write_json

HOST = "127.0.0.1"
# Below Linux's ephemeral range (32768-60999): no outgoing connection takes one of these
# between our check and the server's bind, nor while a killed part is down.
FREE_PORTS = range(20_000, 32_000)


def _secret() -> str:
    # 16 bytes in URL-safe base64 are what Kafka takes as a cluster id; a leading dash would read as an option.
    return "o" + secrets.token_urlsafe(16)[1:]


@dataclass(frozen=True)
class Ports:
    """Loopback ports; `kafka` and `controllers` have one for each broker."""

    kafka: tuple[int, ...]
    controllers: tuple[int, ...]
    redis: int
    postgres: int
    smtp: int

    @classmethod
    def fixed(
        cls, *, kafka: int = 9092, redis: int = 6379, postgres: int = 5432, smtp: int = 1025, brokers: int = 1
    ) -> Self:
        """Return the well-known ones: brokers from `kafka` upwards, their controllers right after them."""
        return cls(
            kafka=tuple(range(kafka, kafka + brokers)),
            controllers=tuple(range(kafka + brokers, kafka + 2 * brokers)),
            redis=redis,
            postgres=postgres,
            smtp=smtp,
        )

    @classmethod
    def free(cls, brokers: int = 1) -> Self:
        """Return ports that nothing listens on now."""
        taken = iter(free_ports(2 * brokers + 3))
        return cls(
            kafka=tuple(next(taken) for _ in range(brokers)),
            controllers=tuple(next(taken) for _ in range(brokers)),
            redis=next(taken),
            postgres=next(taken),
            smtp=next(taken),
        )


@dataclass(frozen=True)
class Options:
    """How the parts run.

    `quick_groups`: a KIP-848 rebalance takes 1.2 s instead of 5.2 s; for tests and the demo.
    `durable`: off is PostgreSQL without fsync, for tests and the demo: commits survive a SIGKILL, not a power cut.
    `kafka_heap_mb`: 256 is enough for tests; give benchmarks 1024, which also gets the full compiler.
    """

    brokers: int = 1
    quick_groups: bool = False
    durable: bool = True
    kafka_heap_mb: int = 256


@dataclass(frozen=True)
class Layout:
    """Everything needed to find a stack again, or to start it again as it was."""

    ports: Ports
    options: Options = field(default_factory=Options)
    cluster_id: str = field(default_factory=_secret)
    password: str = field(default_factory=_secret, repr=False)

    @classmethod
    def for_people(
        cls,
        was: Self | None,
        *,
        brokers: int | None = None,
        kafka: int | None = None,
        redis: int | None = None,
        postgres: int | None = None,
        smtp: int | None = None,
        quick_groups: bool = False,
    ) -> Self:
        """Return what `orderflow stack up` starts: what is asked for, else as `was` last time, else the fixed ports."""
        count = brokers or (was.options.brokers if was else 1)
        last = was.ports if was else Ports.fixed()
        # A list of another length, or from another first port, is laid out anew.
        first = kafka or last.kafka[0]
        fixed = Ports.fixed(
            kafka=first,
            redis=redis or last.redis,
            postgres=postgres or last.postgres,
            smtp=smtp or last.smtp,
            brokers=count,
        )
        return cls(fixed, Options(brokers=count, quick_groups=quick_groups))

    def save(self, state_dir: Path) -> None:
        """Write it, readable by the owner alone: it has PostgreSQL's password."""
        write_json(state_dir / "stack.json", asdict(self))

    @classmethod
    def load(cls, state_dir: Path) -> Self | None:
        """Return what `save` wrote, or None. Raises `Misconfigured` when it cannot be understood."""
        path = state_dir / "stack.json"
        try:
            saved = read_json(path)
            if saved is None:
                return None
            ports = saved.pop("ports")
            kafka, controllers = tuple(ports.pop("kafka")), tuple(ports.pop("controllers"))
            return cls(Ports(kafka, controllers, **ports), Options(**saved.pop("options")), **saved)
        except (ValueError, TypeError, KeyError, AttributeError):
            message = f"{path} cannot be understood; `orderflow stack down --wipe` clears it away"
            raise Misconfigured(message) from None


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports on which nothing listens. Raises `Refused` when there are not so many."""
    chosen: list[int] = []
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        if is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    message = f"no {count} free ports between {FREE_PORTS.start} and {FREE_PORTS.stop} on {HOST}"
    raise Refused(message)


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        # As the servers do: a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
