"""Email: one confirmation per order, to the address in our own directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from uuid import UUID

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool

from consumers.email import deliveries, directory
from consumers.email.deliveries import State
from consumers.email.letters import UnusableAddress, confirmation, domain_of
from consumers.email.mailer import Mailer
from consumers.runtime import postgres
from consumers.runtime.group import APPLIED, DISCARDED, ConsumerGroup, Delivery, DlqPolicy, Outcome
from orderflow.core import clock, log
from orderflow.core.settings import Settings
from retry.errors import Reject
from schemas.events import OrderCreated

_RECORD_TRIES = 2
_log = log.get(__name__)


class SentUnrecorded(Exception):
    """Raised when the server took the mail and the database could not note it: it may go out again."""


@dataclass(frozen=True, slots=True)
class Mail:
    """What the handler needs: the group's tables, the mail server, and whom the mail is from."""

    pool: ConnectionPool[Connection]
    mailer: Mailer
    sender: str

    def message_id(self, event_id: UUID) -> str:
        """Return the Message-ID of an event's mail; the same however often it is sent."""
        return f"<{event_id}@{domain_of(self.sender)}>"


@contextmanager
def open_mail(settings: Settings) -> Iterator[Mail]:
    """Open tables and mailer. Raises `Misconfigured` when the database or a table is not there.

    The mail server is first asked for the first mail: while it is down, work waits.
    """
    with postgres.opened(settings, "email", deliveries.RELATION, directory.RELATION) as pool:
        mailer = Mailer(settings.smtp)
        try:
            yield Mail(pool, mailer, settings.smtp.sender)
        finally:
            mailer.close()


group = ConsumerGroup(
    "email",
    owner="team-mail",
    slo_seconds=120,
    max_age=timedelta(hours=24),
    setup=open_mail,
    dlq=DlqPolicy(
        alert="mail-oncall",
        replay="after the customer's entry or the cause is mended, within a day of the order",
        delete_when={APPLIED, DISCARDED},
        keep_days=30,
        note="A replay mails nobody twice who has a row `sent`. Orders over 24 h old end as expired.",
    ),
)


@group.on(OrderCreated)
def confirm(event: OrderCreated, delivery: Delivery, mail: Mail) -> Outcome:
    """Mail the confirmation, unless it was sent or the customer was erased.

    Raises `Reject` for an unknown customer or a refused address, `Retry` and `Outage` as the mail
    server and the database say; `Unanswered` and `SentUnrecorded` when the mail may be out already.
    """
    with postgres.failures_named(), mail.pool.connection() as connection:
        letter = _prepare(connection, event, mail)
    if isinstance(letter, Outcome):
        return letter
    if delivery.maybe_done:
        _log.warning("sending again what may have been sent", event_id=str(event.event_id))
    mail.mailer.send(letter)
    _record_sent(mail, event.event_id)
    return Outcome.PROCESSED


def _prepare(connection: Connection, event: OrderCreated, mail: Mail) -> Outcome | EmailMessage:
    """Return how it ended already, or the letter to send; in one transaction with the row that says so."""
    attempt = deliveries.begin(connection, event.event_id, mail.message_id(event.event_id))
    if attempt.state is not State.SENDING:
        return Outcome.DUPLICATE if attempt.state is State.SENT else Outcome.SKIPPED
    customer = directory.find(connection, event.customer_id)
    if customer is None:
        raise Reject("the customer is not in the directory")
    if isinstance(customer, directory.Erased):
        deliveries.end(connection, event.event_id, State.SKIPPED)
        return Outcome.SKIPPED
    try:
        return confirmation(event, customer, sender=mail.sender, message_id=attempt.message_id, now=clock.utc_now())
    except UnusableAddress as error:
        raise Reject(str(error)) from None


def _record_sent(mail: Mail, event_id: UUID) -> None:
    # Not as an outage: that would promise that nothing had happened.
    for remaining in reversed(range(_RECORD_TRIES)):
        try:
            with mail.pool.connection() as connection:
                deliveries.end(connection, event_id, State.SENT)
        except psycopg.Error as error:
            if not remaining:
                raise SentUnrecorded(f"PostgreSQL: {type(error).__name__}") from error
        else:
            return
