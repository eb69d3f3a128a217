"""The process of the mail sink: an SMTP server that keeps every mail and delivers none.

A recipient's address can ask to be refused, so that a fault can be made from outside:

    name+550@shop.example      always answered 550
    name+451x2@shop.example    answered 451 the first two times, then accepted

Any code from 400 to 599 works, and any count. What was refused is noted beside the mails and
counted from there, so a restart of the sink does not begin again.
"""

import argparse
import asyncio
import contextlib
import re
import signal
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from orderflow.ops.stack.inbox import Inbox
from orderflow.ops.stack.layout import HOST

_SCRIPT = re.compile(r"\+(?P<code>[45]\d\d)(?:x(?P<times>\d+))?@")
_REASONS = {4: "try again later, as the address asks", 5: "never, as the address asks"}


def scripted(recipient: str, refused_before: int) -> int | None:
    """Return the code to refuse this recipient with, or None to accept it."""
    script = _SCRIPT.search(recipient)
    if script is None or (script["times"] is not None and refused_before >= int(script["times"])):
        return None
    return int(script["code"])


class Handler:
    """aiosmtpd's hooks: refuse by the address, store the rest."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._refused = inbox.refused()

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        """Answer RCPT TO."""
        recipient = address.lower()
        code = scripted(recipient, self._refused[recipient])
        if code is not None:
            self._refused[recipient] += 1
            self._inbox.refuse(recipient, code)
            return f"{code} {_REASONS[code // 100]}"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        """Store the mail before it is accepted."""
        content = envelope.original_content or b""
        self._inbox.deliver(envelope.mail_from or "", envelope.rcpt_tos, content)
        return "250 stored"


async def serve(port: int, folder: Path) -> None:
    """Serve until SIGTERM."""
    loop = asyncio.get_running_loop()
    handler = Handler(Inbox(folder))
    server = await loop.create_server(
        lambda: SMTP(handler, hostname="orderflow", ident="orderflow mail sink", enable_SMTPUTF8=True, loop=loop),
        HOST,
        port,
    )
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with server:
        await stop.wait()


def main() -> None:
    """Run the sink: `python -m orderflow.ops.stack.mail_sink --port 1025 --folder .orderflow/mail`."""
    parser = argparse.ArgumentParser(description="keep every mail, deliver none")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments.port, arguments.folder))


if __name__ == "__main__":
    main()
