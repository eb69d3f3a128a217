"""What the groups' tests share: tables, customers, and a mail server that answers as told."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import psycopg
import pytest

from orderflow.core.settings import Settings
from orderflow.ops.provision import database as tables


@pytest.fixture
def provisioned(settings: Settings) -> Settings:
    """Settings of a database with all tables; its pool gives up within a second."""
    tables.apply(settings)
    hasty = settings.database.model_copy(update={"pool_timeout_seconds": 1.0})
    return settings.model_copy(update={"database": hasty})


@pytest.fixture
def admin(provisioned: Settings) -> Iterator[psycopg.Connection]:
    """A superuser's connection to the same database."""
    with psycopg.connect(provisioned.database.dsn.get_secret_value(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def customer(admin: psycopg.Connection) -> Callable[..., UUID]:
    """Add a customer to the directory and return its id."""

    def add(email: str, name: str = "Kim Lee", locale: str = "en") -> UUID:
        customer_id = uuid4()
        admin.execute(
            "INSERT INTO api.customers (customer_id, email, name, locale) VALUES (%s, %s, %s, %s)",
            (customer_id, email, name, locale),
        )
        return customer_id

    return add


@dataclass
class ScriptedMailServer:
    """A mail server on a real socket; `answers` replaces what it says to a command (`… once`: once), None is silence.

    Besides the commands of SMTP there are `CONNECT` (the greeting) and `END` (after the message).
    """

    answers: dict[str, str | None] = field(default_factory=dict)
    on_end: Callable[[], object] = lambda: None
    connections: int = 0
    messages: list[bytes] = field(default_factory=list)
    port: int = 0
    open_sockets: list[socketserver.StreamRequestHandler] = field(default_factory=list)

    def hang_up(self) -> None:
        """Close every connection from our side."""
        for handler in self.open_sockets:
            with contextlib.suppress(OSError):  # the other side was first
                handler.connection.shutdown(socket.SHUT_RDWR)
        self.open_sockets.clear()


class _Session(socketserver.StreamRequestHandler):
    script: ScriptedMailServer

    def handle(self) -> None:
        self.script.connections += 1
        self.script.open_sockets.append(self)
        self._say("CONNECT", "220 ready")
        while line := self.rfile.readline():
            verb = line.split()[0].decode().upper().split(":")[0]
            if verb == "EHLO":
                self._say(verb, "250-scripted\r\n250 AUTH PLAIN")
            elif verb == "DATA":
                self._say(verb, "354 go on")
                if "DATA" not in self.script.answers:
                    self._message()
            else:
                self._say(verb, "221 bye" if verb == "QUIT" else "250 OK")

    def _message(self) -> None:
        content = b""
        while not content.endswith(b"\r\n.\r\n"):
            content += self.rfile.readline()
        self.script.messages.append(content)
        self.script.on_end()
        self._say("END", "250 stored")

    def _say(self, verb: str, usual: str) -> None:
        answer = self.script.answers.pop(f"{verb} once", None) or self.script.answers.get(verb, usual)
        if answer is not None:
            self.wfile.write(f"{answer}\r\n".encode())


@pytest.fixture
def mail_server() -> Iterator[ScriptedMailServer]:
    """A mail server that answers as the test tells it."""
    script = ScriptedMailServer()

    class Session(_Session):
        pass

    Session.script = script
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        server.daemon_threads = True
        server.block_on_close = False
        script.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield script
        script.hang_up()
        server.shutdown()
        thread.join(5)
