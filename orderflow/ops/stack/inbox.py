"""The folder of the mail sink: a Maildir of what was accepted, and a list of what was refused.

The envelope is kept in the headers that mail servers use for it: `Return-Path` for the sender,
one `Delivered-To` for each recipient.
"""

import json
import mailbox
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from orderflow.core import clock
from orderflow.core.errors import NothingMatched

_MAILDIR = "maildir"
_REFUSALS = "refusals.jsonl"
# The numbers are not padded, so the keys do not sort as text.
_KEY = re.compile(r"(\d+)\.M(\d+)P\d+Q(\d+)")


@dataclass(frozen=True)
class Mail:
    """One accepted mail; `number` counts from 1 in the order of arrival."""

    number: int
    received_at: datetime
    sender: str
    recipients: tuple[str, ...]
    message_id: str
    subject: str
    text: str


@dataclass(frozen=True)
class Refusal:
    """One recipient that was answered with an error code."""

    at: datetime
    recipient: str
    code: int


class Inbox:
    """Reads and writes the folder; readers see a mail whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def deliver(self, sender: str, recipients: Sequence[str], content: bytes) -> None:
        """Store one mail (written aside, then renamed)."""
        envelope = [f"Return-Path: <{sender}>", *(f"Delivered-To: {recipient}" for recipient in recipients)]
        head = "".join(f"{line}\r\n" for line in envelope).encode()
        self._folder.mkdir(parents=True, exist_ok=True)
        mailbox.Maildir(self._folder / _MAILDIR).add(head + content)

    def refuse(self, recipient: str, code: int) -> None:
        """Note a refusal."""
        self._folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"at": clock.utc_now().isoformat(), "recipient": recipient, "code": code})
        with (self._folder / _REFUSALS).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def mails(self) -> list[Mail]:
        """Return every accepted mail, oldest first."""
        if not (self._folder / _MAILDIR).is_dir():
            return []
        box = mailbox.Maildir(self._folder / _MAILDIR, create=False)
        keys = sorted((_arrival(key), key) for key in box.keys())  # noqa: SIM118 - iterating a Maildir yields messages
        return [_parse(number, at, box.get_bytes(key)) for number, ((at, _), key) in enumerate(keys, start=1)]

    def find(self, name: str) -> Mail:
        """Return the mail with this number or Message-ID. Raises `NothingMatched`."""
        bare = name.strip("<>")
        for mail in self.mails():
            if name == str(mail.number) or mail.message_id.strip("<>") == bare:
                return mail
        message = f"no mail {name}; `orderflow mail ls` lists them"
        raise NothingMatched(message)

    def refusals(self) -> list[Refusal]:
        """Return every refusal, oldest first."""
        try:
            lines = (self._folder / _REFUSALS).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        read = map(json.loads, lines)
        return [Refusal(datetime.fromisoformat(one["at"]), one["recipient"], one["code"]) for one in read]

    def refused(self) -> Counter[str]:
        """Return how often each recipient was refused."""
        return Counter(refusal.recipient for refusal in self.refusals())


def _arrival(key: str) -> tuple[datetime, int]:
    """Return when a mail came and its number in that process, from a key like `1764444444.M83P42Q7.host`."""
    found = _KEY.match(key)
    if found is None:
        return datetime.fromtimestamp(0, UTC), 0
    seconds, micros, count = map(int, found.groups())
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros), count


def _parse(number: int, received_at: datetime, content: bytes) -> Mail:
    message = message_from_bytes(content, policy=policy.default)
    return Mail(
        number=number,
        received_at=received_at,
        sender=str(message.get("Return-Path", "")).strip("<>"),
        recipients=tuple(str(value) for value in message.get_all("Delivered-To", [])),
        message_id=str(message.get("Message-ID", "")),
        subject=str(message.get("Subject", "")),
        text=_text(message),
    )


def _text(message: EmailMessage) -> str:
    body = message.get_body(("plain", "html"))
    return "" if body is None else str(body.get_content())
