"""The email group on a real PostgreSQL and on real mail servers."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import UUID, uuid4

import psycopg
import pytest
from structlog.testing import capture_logs

from consumers.email.group import Mail, SentUnrecorded, confirm, open_mail
from consumers.runtime.group import Outcome
from orderflow.core.settings import Settings
from orderflow.testing.samples import delivery_of, order_created
from retry.errors import Outage, Reject, Retry
from schemas.events import OrderCreated
from tests.stacks.interface import Stack

Customers = Callable[..., UUID]


class MailServer(Protocol):
    on_end: Callable[[], object]
    messages: list[bytes]
    port: int


@pytest.fixture
def mail(provisioned: Settings) -> Iterator[Mail]:
    """The group on the stack's mail sink."""
    with open_mail(provisioned) as opened:
        yield opened


def scripted(provisioned: Settings, server: MailServer, **smtp: Any) -> AbstractContextManager[Mail]:
    """Return the group on the scripted mail server."""
    settings = provisioned.smtp.model_copy(update={"port": server.port, "timeout_seconds": 0.5} | smtp)
    return open_mail(provisioned.model_copy(update={"smtp": settings}))


def send(mail: Mail, event: OrderCreated, *, maybe_done: bool = False) -> Outcome:
    return confirm(event, delivery_of(event, "email", maybe_done=maybe_done), mail)


def rows(admin: psycopg.Connection) -> list[tuple[Any, ...]]:
    return admin.execute("SELECT event_id, state, ended_at IS NOT NULL FROM email.deliveries").fetchall()


def test_one_mail_goes_to_the_directorys_address_in_the_customers_language(
    mail: Mail, stack: Stack, customer: Customers, admin: psycopg.Connection
) -> None:
    address = f"{uuid4()}@customers.example"
    event = order_created({"TEA-100": 2}, customer_id=customer(address, "Åse", "nb-NO"))

    assert send(mail, event) is Outcome.PROCESSED
    assert send(mail, event) is Outcome.DUPLICATE
    assert send(mail, event, maybe_done=True) is Outcome.DUPLICATE

    (got,) = [one for one in stack.mail.messages() if address in one.recipients]
    assert got.message_id == f"<{event.event_id}@shop.example>"
    assert got.subject == f"Din bestilling {event.order_id}"
    assert "Hei Åse" in got.text
    assert "25,00\xa0EUR" in got.text
    assert rows(admin) == [(event.event_id, "sent", True)]


def test_a_mail_that_may_be_out_goes_again_under_the_same_message_id(
    provisioned: Settings, mail_server: MailServer, customer: Customers, admin: psycopg.Connection
) -> None:
    event = order_created(customer_id=customer("kim@customers.example"))
    admin.execute(
        "INSERT INTO email.deliveries (event_id, state, message_id) VALUES (%s, 'sending', '<first@shop.example>')",
        (event.event_id,),
    )

    with scripted(provisioned, mail_server) as mail:
        assert send(mail, event, maybe_done=True) is Outcome.PROCESSED

    assert b"Message-ID: <first@shop.example>" in mail_server.messages[0]
    assert rows(admin) == [(event.event_id, "sent", True)]


def test_a_transient_refusal_is_a_retry_until_the_server_takes_it(
    mail: Mail, stack: Stack, customer: Customers, admin: psycopg.Connection
) -> None:
    address = f"{uuid4()}+451x2@customers.example"
    event = order_created(customer_id=customer(address))

    for _ in range(2):
        with pytest.raises(Retry, match="answered 451"):
            send(mail, event)
        assert rows(admin) == [(event.event_id, "sending", False)]
    assert send(mail, event) is Outcome.PROCESSED

    assert [one.message_id for one in stack.mail.messages() if address in one.recipients] == [
        f"<{event.event_id}@shop.example>"
    ]


def test_a_refused_recipient_is_a_reject_that_does_not_name_them(mail: Mail, customer: Customers) -> None:
    event = order_created(customer_id=customer(f"{uuid4()}+550@customers.example"))

    with pytest.raises(Reject) as refusal:
        send(mail, event)

    assert str(refusal.value) == "the mail server answered 550"


def test_an_unknown_customer_and_an_unusable_address_are_rejected_and_leave_no_row(
    mail: Mail, customer: Customers, admin: psycopg.Connection
) -> None:
    with pytest.raises(Reject, match="not in the directory"):
        send(mail, order_created())
    with pytest.raises(Reject, match="address cannot be used"):
        send(mail, order_created(customer_id=customer("kim@customers.example\r\nBcc: eve@evil.example")))

    assert rows(admin) == []


def test_an_erased_customer_is_skipped_for_good(mail: Mail, customer: Customers, admin: psycopg.Connection) -> None:
    event = order_created(customer_id=customer("kim@customers.example"))
    admin.execute("UPDATE api.customers SET email = NULL, name = NULL, locale = NULL, erased_at = now()")

    assert send(mail, event) is Outcome.SKIPPED
    assert send(mail, event) is Outcome.SKIPPED

    assert rows(admin) == [(event.event_id, "skipped", True)]


def test_a_name_cannot_inject_a_header(provisioned: Settings, mail_server: MailServer, customer: Customers) -> None:
    event = order_created(customer_id=customer("kim@customers.example", "Kim\r\nBcc: eve@evil.example\r\n\r\nHi"))

    with scripted(provisioned, mail_server) as mail:
        send(mail, event)

    head, _, _ = mail_server.messages[0].partition(b"\r\n\r\n")
    assert b"\r\nbcc:" not in head.lower()


def test_a_server_that_is_not_there_is_an_outage_and_work_goes_on_when_it_is(
    provisioned: Settings, mail_server: MailServer, customer: Customers, admin: psycopg.Connection
) -> None:
    event = order_created(customer_id=customer("kim@customers.example"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with scripted(provisioned, mail_server, port=taken.getsockname()[1]) as mail, pytest.raises(Outage):
            send(mail, event)
    assert rows(admin) == [(event.event_id, "sending", False)]

    with scripted(provisioned, mail_server) as mail:
        assert send(mail, event) is Outcome.PROCESSED


def test_a_mail_that_could_not_be_noted_promises_nothing(
    provisioned: Settings, mail_server: MailServer, customer: Customers, admin: psycopg.Connection
) -> None:
    event = order_created(customer_id=customer("kim@customers.example"))
    mail_server.on_end = lambda: admin.execute("REVOKE UPDATE ON email.deliveries FROM orderflow_email")

    with scripted(provisioned, mail_server) as mail:
        with pytest.raises(SentUnrecorded, match="InsufficientPrivilege"):
            send(mail, event)
        assert rows(admin) == [(event.event_id, "sending", False)]
        mail_server.on_end = lambda: None
        admin.execute("GRANT UPDATE ON email.deliveries TO orderflow_email")
        with capture_logs() as lines:
            assert send(mail, event, maybe_done=True) is Outcome.PROCESSED

    first, second = mail_server.messages
    assert first.split(b"Message-ID: ")[1].split(b"\r\n")[0] == second.split(b"Message-ID: ")[1].split(b"\r\n")[0]
    assert [line["event"] for line in lines] == ["sending again what may have been sent"]
    assert "kim" not in str(lines).lower()
