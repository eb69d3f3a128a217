from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orderflow.cli.mail import ls, short_time
from orderflow.ops.stack.inbox import Inbox


@pytest.fixture
def east_of_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock shows three hours more than UTC."""
    import time

    with monkeypatch.context() as patched:
        patched.setenv("TZ", "EAST-3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("east_of_greenwich")
def test_a_time_of_today_is_short_and_that_of_another_day_has_its_date() -> None:
    at = datetime(2026, 11, 28, 20, 30, 15, tzinfo=UTC)
    assert short_time(at, at + timedelta(minutes=20)) == "23:30:15"
    assert short_time(at, at + timedelta(hours=1)) == "2026-11-28 23:30"


def test_mails_are_a_line_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    subject = "Your order 01a2295f-10d3-7568-8f8d-9676d672ca7a"
    content = f"Subject: {subject}\r\nMessage-ID: <1@shop.example>\r\n\r\nThank you.\r\n".encode()
    for name in ("ada", "grace"):
        Inbox(Path(".orderflow/mail")).deliver("orders@shop.example", [f"{name}@post.example"], content)

    ls()

    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["number", "received", "to", "subject"]
    assert [line.split(maxsplit=3)[0] for line in lines] == ["1", "2"]
    assert all(line.endswith(subject) and "@post.example" in line for line in lines)
