"""SMTP: one connection per thread, and what a server's answers mean to a handler."""

import re
import smtplib
import ssl
import threading
from email.message import EmailMessage

from consumers.email.letters import domain_of
from orderflow.core.causes import smtp as smtp_causes
from orderflow.core.settings import SmtpSettings
from retry.errors import HandlerError, Outage, Reject, Retry

# RFC 5321, section 4.2.1.
_REPLY_CODES = range(200, 600)
_COMPLETED = range(200, 300)
_TRANSIENT = range(400, 500)
_PERMANENT = range(500, 600)
_CLOSING = 421
# RFC 4954: authentication required, mechanism too weak, credentials invalid, encryption required.
_REFUSES_US = frozenset({530, 534, 535, 538})
_ENHANCED_CODE = re.compile(rb"[245]\.\d{1,3}\.\d{1,3}(?= |$)")

Reply = tuple[int, bytes]


class Unanswered(Exception):
    """Raised when the server took the message and gave no answer: it may have been delivered."""


def failure(reply: Reply, *, about_recipient: bool) -> HandlerError:
    """Return what a refusal means.

    A permanent one about this recipient or message is a `Reject`; one about us, before a recipient was
    named, or in no words of SMTP's, an `Outage`. Of the server's words only the codes are kept: the rest
    may name the recipient.
    """
    code, text = reply
    enhanced = _ENHANCED_CODE.match(text)
    said = f"the mail server answered {code}{' ' + enhanced[0].decode() if enhanced else ''}"
    if code == _CLOSING or code in _REFUSES_US:
        return Outage(said)
    if code in _TRANSIENT:
        return Retry(said)
    return Reject(said) if code in _PERMANENT and about_recipient else Outage(said)


class Mailer:
    """Sends messages. Safe to share between threads: each keeps a connection of its own open."""

    def __init__(self, smtp: SmtpSettings) -> None:
        self._smtp = smtp
        self._where = f"{smtp.host}:{smtp.port}"
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._clients: set[smtplib.SMTP] = set()

    def send(self, message: EmailMessage) -> None:
        """Hand one message over to its first recipient; returns when the server has taken responsibility for it.

        Raises `Outage`, `Retry` or `Reject` when it certainly has not (see `failure`), and `Unanswered`
        when nobody can know. No call waits longer than `timeout_seconds` for an answer.
        """
        content = message.as_bytes()
        recipient = message["To"].addresses[0].addr_spec
        try:
            self._hand_over(content, recipient)
        except BaseException:
            self._drop()
            raise

    def close(self) -> None:
        """Take leave of the server on all connections."""
        with self._lock:
            clients, self._clients = self._clients, set()
        for client in clients:
            _leave(client)

    def _hand_over(self, content: bytes, recipient: str) -> None:
        try:
            client = self._begun()
            _accepted(client.rcpt(recipient), about_recipient=True)
        except OSError as error:  # smtplib's own errors are OSErrors too
            raise Outage(f"{smtp_causes.sentence(error, self._where)} ({type(error).__name__})") from error
        try:
            reply = client.data(content)
        except smtplib.SMTPDataError as refused:  # before it saw the message
            raise failure((refused.smtp_code, _bytes(refused.smtp_error)), about_recipient=True) from None
        except OSError as error:
            raise Unanswered(f"the mail server fell silent after the message: {type(error).__name__}") from error
        if reply[0] not in _REPLY_CODES:
            raise Unanswered("the mail server answered the message with no reply of SMTP's")
        _accepted(reply, about_recipient=True)

    def _begun(self) -> smtplib.SMTP:
        """Return a connection that has accepted our MAIL FROM."""
        kept: smtplib.SMTP | None = getattr(self._mine, "client", None)
        if kept is not None:
            try:
                reply = kept.mail(self._smtp.sender)
            except OSError:
                reply = (_CLOSING, b"")
            if reply[0] != _CLOSING:
                _accepted(reply, about_recipient=False)
                return kept
            # Closed by the server while we had nothing to say: no failure of anybody.
            self._drop()
        client = self._connected()
        _accepted(client.mail(self._smtp.sender), about_recipient=False)
        return client

    def _connected(self) -> smtplib.SMTP:
        smtp = self._smtp
        # The sender's domain as our name: the library would ask DNS for one, without a time limit.
        name = domain_of(smtp.sender)
        try:
            client = smtplib.SMTP(smtp.host, smtp.port, local_hostname=name, timeout=smtp.timeout_seconds)
            self._mine.client = client
            with self._lock:
                self._clients.add(client)
            if smtp.starttls:
                client.starttls(context=ssl.create_default_context())
            if smtp.username is not None:
                client.login(smtp.username, smtp.password.get_secret_value() if smtp.password else "")
            client.ehlo_or_helo_if_needed()
        except smtplib.SMTPResponseException as refused:  # greeting, EHLO, STARTTLS, AUTH: always about us
            raise Outage(smtp_causes.sentence(refused, self._where)) from None
        return client

    def _drop(self) -> None:
        client: smtplib.SMTP | None = self._mine.__dict__.pop("client", None)
        if client is not None:
            with self._lock:
                self._clients.discard(client)
            client.close()


def _accepted(reply: Reply, *, about_recipient: bool) -> None:
    if reply[0] not in _COMPLETED:
        raise failure(reply, about_recipient=about_recipient)


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _leave(client: smtplib.SMTP) -> None:
    try:
        client.quit()
    except OSError:
        client.close()
