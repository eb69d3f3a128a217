"""What a test may ask of the fixture `stack`, whoever runs the parts: containers, or processes of this machine.

Whatever else a test needs (a log, a pid, other server settings, three brokers) it takes from `local_stack`, or starts
itself.
"""

from collections.abc import Sequence
from typing import Protocol

from orderflow.ops.stack.inbox import Mail, Refusal


class Server(Protocol):
    """One part. What it has stored outlives `stop` and `kill`, and so does its address."""

    def start(self) -> None:
        """Start it unless it runs; wait until it really answers."""

    def stop(self) -> None:
        """End it in good order."""

    def kill(self) -> None:
        """End it as SIGKILL does; it is gone when this returns."""

    def pause(self) -> None:
        """Freeze it: it keeps its connections and answers nothing."""

    def resume(self) -> None:
        """Go on after `pause`."""


class Broker(Server, Protocol):
    @property
    def address(self) -> str:
        """`host:port`."""


class Kafka(Server, Protocol):
    """All brokers as one part."""

    @property
    def brokers(self) -> Sequence[Broker]: ...

    @property
    def bootstrap_servers(self) -> str: ...


class Redis(Server, Protocol):
    @property
    def url(self) -> str: ...

    def url_of(self, database: int, /) -> str:
        """URL of a numbered database, 0 to 4095."""


class Postgres(Server, Protocol):
    @property
    def dsn(self) -> str:
        """DSN of the database `orderflow`, of a role that may make others."""

    def dsn_of(self, database: str, /) -> str: ...


class MailSink(Server, Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def messages(self) -> list[Mail]: ...

    def refusals(self) -> list[Refusal]: ...


class Stack(Protocol):
    """Kafka with quick groups, Redis, PostgreSQL and the mail sink whose refusals an address can ask for."""

    @property
    def kafka(self) -> Kafka: ...

    @property
    def redis(self) -> Redis: ...

    @property
    def postgres(self) -> Postgres: ...

    @property
    def mail(self) -> MailSink: ...

    def environment(self) -> dict[str, str]:
        """Return the `ORDERFLOW_*` variables that point every role at this stack."""
