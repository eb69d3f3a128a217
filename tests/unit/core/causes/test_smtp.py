import smtplib
import socket

import pytest

from orderflow.core.causes.smtp import sentence
from orderflow.core.causes.start import START_IT


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (smtplib.SMTPAuthenticationError(535, b"5.7.8 no"), "refuses our login"),
        (smtplib.SMTPAuthenticationError(538, b"no"), "over TLS only"),
        (smtplib.SMTPHeloError(530, b"Must issue STARTTLS first"), "wants TLS or a login"),
        (smtplib.SMTPConnectError(554, b"go away"), "answered 554"),
        (smtplib.SMTPNotSupportedError("STARTTLS extension not supported by server."), "does not offer STARTTLS"),
        (smtplib.SMTPNotSupportedError("SMTP AUTH extension not supported by server."), "takes no login"),
        (smtplib.SMTPServerDisconnected("Connection unexpectedly closed"), "does not speak SMTP"),
        (socket.gaierror(-2, "Name or service not known"), "no machine has this name"),
        (ConnectionRefusedError(111, "Connection refused"), f"connection refused): {START_IT} or set"),
        (TimeoutError("timed out"), "does not answer in time"),
        (OSError(113, "No route to host"), "out of reach"),
    ],
)
def test_each_error_is_a_sentence(error: Exception, said: str) -> None:
    assert said in sentence(error, "mail.example:25")
