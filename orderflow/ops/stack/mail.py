"""The mail sink as a part of the stack; `mail_sink` says how an address asks to be refused."""

import os
import smtplib
import sys
from pathlib import Path

from orderflow.ops.stack.inbox import Inbox, Mail, Refusal
from orderflow.ops.stack.layout import HOST
from orderflow.ops.stack.part import Part, plain_environment
from orderflow.ops.stack.process import Command

_ASK_SECONDS = 2.0


class MailSink(Part):
    """An SMTP server that keeps every mail and delivers none."""

    port_option = "--smtp-port"

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("mail sink", folder, port)
        self._inbox = Inbox(folder)
        self.host = HOST

    def prepare(self) -> Command:
        """Make its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        argv = [
            sys.executable,
            "-m",
            "orderflow.ops.stack.mail_sink",
            "--port",
            str(self.port),
            "--folder",
            str(self.folder),
        ]
        python_path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        return Command(argv, plain_environment(PYTHONSAFEPATH="1", **python_path), self.folder)

    def answer(self) -> str | None:
        """Wait for the greeting, say NOOP."""
        try:
            with smtplib.SMTP(HOST, self.port, local_hostname="localhost", timeout=_ASK_SECONDS) as client:
                client.noop()
        except (OSError, smtplib.SMTPException):
            return None
        return "SMTP"

    def messages(self) -> list[Mail]:
        """Return every accepted mail, oldest first."""
        return self._inbox.mails()

    def refusals(self) -> list[Refusal]:
        """Return every recipient that was refused, oldest first."""
        return self._inbox.refusals()
