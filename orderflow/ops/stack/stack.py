"""All parts together: up, down, status, and the `with` form that leaves nothing behind."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from orderflow.core.errors import Misconfigured, Refused
from orderflow.ops.stack.kafka import Kafka
from orderflow.ops.stack.kafka_jars import ensure_jars
from orderflow.ops.stack.layout import Layout, Options, Ports
from orderflow.ops.stack.mail import MailSink
from orderflow.ops.stack.part import Part
from orderflow.ops.stack.postgres import Postgres
from orderflow.ops.stack.progress import Reporter
from orderflow.ops.stack.redis import Redis
from orderflow.ops.stack.taken import Wanted, assert_free
from orderflow.ops.stack.watchdog import Watchdog

PARTS = "Kafka, Redis, PostgreSQL and a mail sink"
"""What it is made of, for people."""

State = Literal["running", "silent", "dead", "stopped"]


@dataclass(frozen=True)
class PartStatus:
    """What one part does now; `said` is its own word, or the end of its log when it died."""

    name: str
    state: State
    port: int
    pid: int | None
    said: str
    log: Path


class LocalStack:
    """Kafka, Redis, PostgreSQL and the mail sink on loopback, with everything they keep under `state_dir`.

    As a context manager it takes free ports, starts everything, and on leaving stops it and removes
    what it stored; if this process is killed, a watchdog does the same. `up` and `down` are the
    parts of that for a stack that outlives its starter.
    """

    def __init__(self, state_dir: Path, layout: Layout | None = None, progress: Reporter | None = None) -> None:
        self.state_dir = state_dir.absolute()
        self.layout = layout or Layout(Ports.free())
        self._progress = progress
        self._watchdog: Watchdog | None = None
        self._joined = False
        self._make_parts()

    @classmethod
    def temporary(cls, state_dir: Path, options: Options | None = None, progress: Reporter | None = None) -> Self:
        """Return one for tests and the demo: free ports, quick groups, PostgreSQL without fsync."""
        chosen = options or Options(quick_groups=True, durable=False)
        return cls(state_dir, Layout(Ports.free(chosen.brokers), chosen), progress)

    @classmethod
    def join(cls, state_dir: Path) -> Self:
        """Return the stack of a state folder, running or not; as a context manager it is left as it was.

        Raises `Misconfigured` when there never was one.
        """
        layout = Layout.load(state_dir)
        if layout is None:
            message = f"there is no stack in {state_dir}; start one with `orderflow stack up`"
            raise Misconfigured(message)
        stack = cls(state_dir, layout)
        stack._joined = True
        return stack

    @property
    def parts(self) -> list[Part]:
        """Every process of the stack, each broker by itself."""
        return [*self.kafka.brokers, self.redis, self.postgres, self.mail]

    def wanted(self) -> list[Wanted]:
        """Return the ports of the parts that do not run."""
        asleep = [part for part in self.parts if not part.daemon.running]
        return [Wanted(port, part.name, part.port_option) for part in asleep for port in part.ports]

    def environment(self) -> dict[str, str]:
        """Return the `ORDERFLOW_*` variables that point every role at this stack."""
        return {
            "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "ORDERFLOW_KAFKA__REPLICATION_FACTOR": str(min(self.layout.options.brokers, 3)),
            "ORDERFLOW_REDIS__URL": self.redis.url,
            "ORDERFLOW_DATABASE__DSN": self.postgres.dsn,
            "ORDERFLOW_SMTP__HOST": self.mail.host,
            "ORDERFLOW_SMTP__PORT": str(self.mail.port),
        }

    def up(self) -> None:
        """Start what does not run; join what does.

        Raises `Misconfigured` for a taken port or jars that cannot be had, `Refused` when the data
        is of another number of brokers, `PartFailed` when a part dies or stays silent: then
        what this call started is stopped again.
        """
        self.state_dir.mkdir(parents=True, exist_ok=True)
        with self._alone():
            self._keep_what_was()
            asleep = [part for part in self.parts if not part.daemon.running]
            assert_free(self.wanted(), "orderflow stack up")
            ensure_jars(progress=self._progress)
            self.layout.save(self.state_dir)
            if self._watchdog is not None:
                self._watchdog.watch()
            try:
                self._together(self.kafka.start, self.redis.start, self.postgres.start, self.mail.start)
            except BaseException:
                self._together(*(part.stop for part in asleep))
                raise
            if self._watchdog is None:
                self._write_env()

    def down(self, *, wipe: bool = False) -> None:
        """Stop every part, also those that died or hang; `wipe` removes all that they stored too."""
        if not self.state_dir.is_dir():
            return
        with self._alone():
            self._together(self.kafka.stop, self.redis.stop, self.postgres.stop, self.mail.stop)
            (self.state_dir / "env").unlink(missing_ok=True)
            if wipe:
                self._wipe()

    def status(self) -> list[PartStatus]:
        """Ask every part."""
        with ThreadPoolExecutor(len(self.parts)) as pool:
            return list(pool.map(_status, self.parts))

    def __enter__(self) -> Self:
        """Start everything, unless the stack was joined."""
        if not self._joined:
            self._watchdog = Watchdog(self.state_dir)
            try:
                self.up()
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything and remove what it stored, unless the stack was joined."""
        if not self._joined:
            self.down(wipe=True)
            if self._watchdog is not None:
                self._watchdog.release()

    def _make_parts(self) -> None:
        ports, options = self.layout.ports, self.layout.options
        self.kafka = Kafka(self.state_dir, self.layout)
        self.redis = Redis(self.state_dir / "redis", ports.redis)
        self.postgres = Postgres(
            self.state_dir / "postgres", ports.postgres, self.layout.password, durable=options.durable
        )
        self.mail = MailSink(self.state_dir / "mail", ports.smtp)

    def _keep_what_was(self) -> None:
        """Take over the identity of the data that is there, and refuse what does not go with it."""
        was, asked = Layout.load(self.state_dir), self.layout
        if was is None:
            return
        if was.options.brokers != asked.options.brokers:
            message = (
                f"the data in {self.state_dir} is of {was.options.brokers} broker(s), not {asked.options.brokers}; "
                "`orderflow stack down --wipe` removes it"
            )
            raise Refused(message)
        runs = any(part.daemon.running for part in self.parts)
        if runs and was.ports != asked.ports:
            message = f"the stack in {self.state_dir} runs on other ports; `orderflow stack down` it first"
            raise Refused(message)
        self.layout = Layout(asked.ports, was.options if runs else asked.options, was.cluster_id, was.password)
        self._make_parts()

    @staticmethod
    def _together(*actions: Callable[[], None]) -> None:
        """Do all at once; raise the first error when all have ended."""
        with ThreadPoolExecutor(max(1, len(actions))) as pool:
            done = [pool.submit(action) for action in actions]
            wait(done)
        for future in done:
            future.result()

    def _wipe(self) -> None:
        for part in self.parts:
            part.wipe()
        for name in ("stack.json", "lock"):
            (self.state_dir / name).unlink(missing_ok=True)
        # Logs of roles may be there too; the folder itself goes only when it is empty.
        with contextlib.suppress(OSError):
            self.state_dir.rmdir()

    def _write_env(self) -> None:
        path = self.state_dir / "env"
        half = path.with_name("env.new")
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in self.environment().items())
        half.replace(path)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one `up` or `down` at a time work on this folder."""
        with (self.state_dir / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _status(part: Part) -> PartStatus:
    daemon, log = part.daemon, part.daemon.log
    if daemon.died:
        return PartStatus(part.name, "dead", part.port, None, daemon.log_end(), log)
    pid = daemon.pid
    if pid is None:
        return PartStatus(part.name, "stopped", part.port, None, "", log)
    said = part.answer()
    return PartStatus(
        part.name, "silent" if said is None else "running", part.port, pid, said or "gives no answer", log
    )
