"""From smtplib's errors to one sentence: what is wrong with the mail server, and which setting mends it."""

import smtplib
import socket
import ssl

from orderflow.core.causes import tls
from orderflow.core.causes.start import START_IT

_CERTIFICATE = {
    tls.Certificate.UNTRUSTED: (
        "shows a certificate that nobody whom we trust has signed: add its authority to this machine's "
        "(or name it in SSL_CERT_FILE)"
    ),
    tls.Certificate.OTHER_NAME: (
        "shows a certificate for another host name: set ORDERFLOW_SMTP__HOST to a name that stands in it"
    ),
    tls.Certificate.OUT_OF_DATE: "shows a certificate that is not valid today: renew it, or set this machine's clock",
}
_CODES = {
    # RFC 4954.
    530: "wants TLS or a login first (530): set ORDERFLOW_SMTP__STARTTLS=true, and ORDERFLOW_SMTP__USERNAME",
    535: "refuses our login (535): set ORDERFLOW_SMTP__USERNAME and ORDERFLOW_SMTP__PASSWORD",
    538: "takes logins over TLS only (538): set ORDERFLOW_SMTP__STARTTLS=true",
}
_OUT_OF_REACH = "is out of reach ({said}): set ORDERFLOW_SMTP__HOST and ORDERFLOW_SMTP__PORT"
# The first class that fits decides.
_CLASSES: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "cannot be found, no machine has this name: set ORDERFLOW_SMTP__HOST"),
    (
        ConnectionRefusedError,
        (
            f"does not answer (nothing listens there: connection refused): {START_IT} "
            "or set ORDERFLOW_SMTP__HOST and ORDERFLOW_SMTP__PORT"
        ),
    ),
    (
        TimeoutError,
        (
            "does not answer in time (a port of implicit TLS, as 465, keeps silent too): set ORDERFLOW_SMTP__PORT "
            "to one of plain SMTP or STARTTLS"
        ),
    ),
    (
        smtplib.SMTPException,
        "does not speak SMTP with us ({said}): set ORDERFLOW_SMTP__HOST and ORDERFLOW_SMTP__PORT",
    ),
    (ssl.SSLError, "fails at TLS ({said}): set ORDERFLOW_SMTP__STARTTLS=false, or mend its TLS"),
)


def sentence(error: BaseException, where: str) -> str:
    """Return what is wrong with the mail server at `where` (host:port)."""
    return f"the mail server at {where} {_what(error)}"


def _what(error: BaseException) -> str:
    certificate = tls.inside(error)
    if certificate is not None:
        return _CERTIFICATE[tls.certificate_fault(certificate)]
    if isinstance(error, smtplib.SMTPResponseException):
        return _CODES.get(error.smtp_code, f"answered {error.smtp_code}: look at its log")
    if isinstance(error, smtplib.SMTPNotSupportedError):
        if "STARTTLS" in str(error):
            return "does not offer STARTTLS: set ORDERFLOW_SMTP__STARTTLS=false, or another ORDERFLOW_SMTP__PORT"
        return "takes no login: unset ORDERFLOW_SMTP__USERNAME, or set ORDERFLOW_SMTP__STARTTLS=true"
    said = str(error) or type(error).__name__
    # smtplib says that the server hung up where our own patience ended: what lies below decides.
    chain = tls.chain(error)
    told = next((told for kind, told in _CLASSES if any(isinstance(one, kind) for one in chain)), _OUT_OF_REACH)
    return told.format(said=said)
