"""The mail sink: what an address asks for, what is kept, what is read back."""

import asyncio
import mailbox
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiosmtpd.smtp import Envelope, Session
from typer.testing import CliRunner

from orderflow.cli import mail as mail_commands
from orderflow.core.errors import NothingMatched
from orderflow.ops.stack.inbox import Inbox
from orderflow.ops.stack.mail_sink import Handler, scripted

MAIL = (
    b"From: shop@shop.example\r\nTo: ann@example.org\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
    b"Message-ID: <1@shop>\r\n\r\nHello\r\n"
)


@pytest.mark.parametrize(
    ("recipient", "refused_before", "code"),
    [
        ("ann@example.org", 0, None),
        ("ann+news@example.org", 0, None),
        ("ann+451x2@example.org", 0, 451),
        ("ann+451x2@example.org", 1, 451),
        ("ann+451x2@example.org", 2, None),
        ("ann+550@example.org", 1_000, 550),
        ("ann+250@example.org", 0, None),
        ("ann@example+550.org", 0, None),
    ],
)
def test_an_address_says_how_it_wants_to_be_answered(recipient: str, refused_before: int, code: int | None) -> None:
    assert scripted(recipient, refused_before) == code


def rcpt(handler: Handler, envelope: Envelope, addresses: Sequence[str]) -> list[str]:
    async def ask() -> list[str]:
        return [await handler.handle_RCPT(None, Session(loop), envelope, one, []) for one in addresses]  # type: ignore[arg-type]

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(ask())
    finally:
        loop.close()


def test_refusals_are_counted_over_a_restart_of_the_sink(tmp_path: Path) -> None:
    address, inbox = "Ann+451x2@example.org", Inbox(tmp_path)
    first = rcpt(Handler(inbox), Envelope(), [address])
    second = rcpt(Handler(inbox), Envelope(), [address])
    envelope = Envelope()
    third = rcpt(Handler(inbox), envelope, [address])
    assert [answer[0][:3] for answer in (first, second, third)] == ["451", "451", "250"]
    assert envelope.rcpt_tos == [address]
    assert [(refusal.recipient, refusal.code) for refusal in inbox.refusals()] == [(address.lower(), 451)] * 2


def test_a_mail_keeps_its_envelope_and_its_identity(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    assert inbox.mails() == []
    inbox.deliver("orders@shop.example", ["ann@example.org", "bob@example.org"], MAIL)
    (mail,) = inbox.mails()
    assert mail.number == 1
    assert mail.sender == "orders@shop.example"
    assert mail.recipients == ("ann@example.org", "bob@example.org")
    assert mail.message_id == "<1@shop>"
    assert mail.subject == "Grüße"
    assert mail.text.strip() == "Hello"


def test_mails_are_numbered_in_the_order_of_arrival(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    for number in range(20):
        inbox.deliver("a@b.c", ["d@e.f"], MAIL.replace(b"<1@shop>", f"<{number}@shop>".encode()))
    assert [mail.message_id for mail in inbox.mails()] == [f"<{number}@shop>" for number in range(20)]


def test_a_half_written_mail_is_not_there_yet(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    inbox.deliver("a@b.c", ["d@e.f"], MAIL)
    (tmp_path / "maildir" / "tmp" / "1.half").write_bytes(MAIL[:20])
    assert len(inbox.mails()) == 1
    assert len(mailbox.Maildir(tmp_path / "maildir")) == 1


def test_a_mail_without_the_usual_headers_is_still_shown(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    inbox.deliver("", ["d@e.f"], b"\r\n\xff\xfe")
    (mail,) = inbox.mails()
    assert (mail.sender, mail.message_id, mail.subject) == ("", "", "")


def test_a_mail_is_found_by_number_or_message_id(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    inbox.deliver("a@b.c", ["d@e.f"], MAIL)
    assert inbox.find("1") == inbox.find("<1@shop>") == inbox.find("1@shop")
    with pytest.raises(NothingMatched, match="orderflow mail ls"):
        inbox.find("2")


def test_the_commands_read_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERFLOW_STATE_DIR", str(tmp_path))
    inbox = Inbox(tmp_path / "mail")
    inbox.deliver("orders@shop.example", ["ann@example.org"], MAIL)
    inbox.refuse("bob+550@example.org", 550)
    runner = CliRunner()
    listed = runner.invoke(mail_commands.app, ["ls"])
    assert "ann@example.org" in listed.output
    assert "bob" not in listed.output
    assert runner.invoke(mail_commands.app, ["ls", "--json", "--to", "bob@example.org"]).output.strip() == "[]"
    assert '"code": 550' in runner.invoke(mail_commands.app, ["ls", "--refused", "--json"]).output
    assert "Hello" in runner.invoke(mail_commands.app, ["show", "1"]).output
    assert '"message_id": "<1@shop>"' in runner.invoke(mail_commands.app, ["show", "1", "--json"]).output
    assert isinstance(runner.invoke(mail_commands.app, ["show", "7"]).exception, NothingMatched)
