"""What a mail server's answers do, on a real socket."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from consumers.email.directory import Customer
from consumers.email.letters import confirmation
from consumers.email.mailer import Mailer, Unanswered
from orderflow.core import clock
from orderflow.core.settings import SmtpSettings
from orderflow.testing.samples import order_created
from retry.errors import Outage, Reject, Retry

KIM = Customer("kim@customers.example", "Kim", "en")


class MailServer(Protocol):
    answers: dict[str, str | None]
    connections: int
    messages: list[bytes]
    port: int

    def hang_up(self) -> None: ...


@contextmanager
def mailer_for(server: MailServer, **smtp: Any) -> Iterator[Mailer]:
    mailer = Mailer(SmtpSettings(**({"port": server.port, "timeout_seconds": 0.5} | smtp)))
    try:
        yield mailer
    finally:
        mailer.close()


def send(mailer: Mailer, number: int = 1) -> None:
    message_id = f"<{number}@shop.example>"
    mailer.send(
        confirmation(order_created(), KIM, sender="orders@shop.example", message_id=message_id, now=clock.utc_now())
    )


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("CONNECT", "421 too busy"),
        ("CONNECT", "554 not you"),
        ("CONNECT", None),
        ("EHLO", None),
        ("AUTH", "535 5.7.8 wrong"),
        ("MAIL", "421 closing"),
        ("MAIL", "550 not this sender"),
        ("MAIL", None),
        ("RCPT", "421 closing"),
        ("RCPT", "530 authenticate first"),
        ("RCPT", None),
        ("DATA", "421 closing"),
        ("END", "421 closing"),
    ],
)
def test_what_refuses_all_of_us_is_an_outage(command: str, answer: str | None, mail_server: MailServer) -> None:
    mail_server.answers[command] = answer

    with mailer_for(mail_server, username="orderflow") as mailer:
        with pytest.raises(Outage):
            send(mailer)
        mail_server.answers.clear()
        mail_server.answers["AUTH"] = "235 welcome"
        mail_server.messages.clear()
        send(mailer)

    assert len(mail_server.messages) == 1


@pytest.mark.parametrize(
    ("command", "answer", "meaning"),
    [
        ("MAIL", "452 full", Retry),
        ("RCPT", "450 4.2.1 <kim@customers.example> later", Retry),
        ("DATA", "451 later", Retry),
        ("END", "451 later", Retry),
        ("RCPT", "550 5.1.1 <kim@customers.example> unknown", Reject),
        ("DATA", "554 no", Reject),
        ("END", "554 5.7.1 looks like spam", Reject),
        ("END", "whatever", Unanswered),
        ("END", None, Unanswered),
    ],
)
def test_what_is_about_this_mail_concerns_this_mail_alone(
    command: str, answer: str | None, meaning: type[Exception], mail_server: MailServer
) -> None:
    mail_server.answers[command] = answer

    with mailer_for(mail_server) as mailer:
        with pytest.raises(meaning) as failure:
            send(mailer)
        assert "kim" not in str(failure.value)
        mail_server.answers.clear()
        mail_server.messages.clear()
        send(mailer)

    assert len(mail_server.messages) == 1


def test_a_wrong_port_is_an_outage(mail_server: MailServer) -> None:
    with mailer_for(mail_server, port=1) as mailer, pytest.raises(Outage, match="ConnectionRefusedError"):
        send(mailer)


def test_a_server_without_starttls_is_an_outage_when_it_is_asked_for(mail_server: MailServer) -> None:
    with mailer_for(mail_server, starttls=True) as mailer, pytest.raises(Outage, match="SMTPNotSupportedError"):
        send(mailer)

    assert mail_server.messages == []


@pytest.mark.parametrize("end", ["hang up", "421"])
def test_a_connection_is_kept_and_a_stale_one_is_opened_again(end: str, mail_server: MailServer) -> None:
    with mailer_for(mail_server) as mailer:
        for number in range(3):
            send(mailer, number)
        assert mail_server.connections == 1
        if end == "hang up":
            mail_server.hang_up()
        else:
            mail_server.answers["MAIL once"] = "421 idle for too long"
        send(mailer, 3)

    assert mail_server.connections == 2
    assert len(mail_server.messages) == 4


def test_threads_have_connections_of_their_own(mail_server: MailServer) -> None:
    together = threading.Barrier(4)

    def first_of_a_thread(number: int) -> None:
        send(mailer, number)
        together.wait(10)

    with mailer_for(mail_server, timeout_seconds=10) as mailer, ThreadPoolExecutor(4) as threads:
        list(threads.map(first_of_a_thread, range(4)))
        list(threads.map(lambda number: send(mailer, number), range(4, 40)))

    assert mail_server.connections == 4
    sent = sorted(int(message.split(b"Message-ID: <")[1].split(b"@")[0]) for message in mail_server.messages)
    assert sent == list(range(40))
