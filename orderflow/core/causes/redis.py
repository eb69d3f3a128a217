"""From redis-py's errors to one sentence: what is wrong, and what mends it."""

import re

from orderflow.core.causes import tls
from orderflow.core.causes.start import START_IT

_URL = "ORDERFLOW_REDIS__URL"

# Of the error's class and text, and of those below it, the first that is found decides. redis-py's classes are
# coarse (a missing and a wrong password are one); the texts are Redis' own.
_TEXTS: tuple[tuple[str, str], ...] = (
    (
        r"Authentication required|client already authenticated|NOAUTH",
        f"wants a password and got none: set {_URL}=redis://:PASSWORD@HOST:PORT/DB",
    ),
    (
        r"(?i)invalid username-password|WRONGPASS",
        f"refuses our user and password: set {_URL}=redis://USER:PASSWORD@HOST:PORT/DB",
    ),
    (
        r"NoPermissionError",
        (
            "lets us in without the rights that we need ({said}): give them to the user (`ACL SETUSER`), "
            f"or name another one in {_URL}"
        ),
    ),
    (r"(?i)DB index is out of range", f"has no database of this number: change the number at the end of {_URL}"),
    (r"BusyLoadingError", "is loading its data and answers nothing yet: wait, then run it again"),
    (r"ReadOnlyError", f"is a read-only replica: name the primary in {_URL}"),
    (r"OutOfMemoryError", "is full and refuses writes: give it more memory (`maxmemory`), claims need it"),
    (r"max number of clients", "has no connection left for us: raise its `maxclients`"),
    (r"SSL|ssl", f"does not speak TLS ({{said}}): write redis:// instead of rediss:// in {_URL}"),
    (
        r"gaierror|Name or service not known|nodename nor servname|name resolution",
        f"cannot be found, no machine has this name: set {_URL}",
    ),
    (
        r"[Rr]efused",
        (f"does not answer (nothing listens there: connection refused): {START_IT} or set {_URL}"),
    ),
    (r"Timeout|[Tt]imed out", f"does not answer in time: look whether it hangs, or set {_URL}"),
    (
        r"closed by server|[Rr]eset by peer|InvalidResponse|Protocol Error",
        f"ends our connections ({{said}}): if it wants TLS, write rediss:// in {_URL}",
    ),
)
_CERTIFICATE = {
    tls.Certificate.UNTRUSTED: (
        f"shows a certificate that nobody whom we trust has signed: add ?ssl_ca_certs=FILE to {_URL}"
    ),
    tls.Certificate.OTHER_NAME: f"shows a certificate for another host name: use a name that stands in it in {_URL}",
    tls.Certificate.OUT_OF_DATE: "shows a certificate that is not valid today: renew it, or set this machine's clock",
}


def sentence(error: BaseException, where: str) -> str:
    """Return what is wrong with Redis at `where` (host:port, no password) and which setting mends it."""
    said = " ".join(str(error).split()) or type(error).__name__
    certificate = tls.inside(error)
    if certificate is not None:
        return f"Redis at {where} {_CERTIFICATE[tls.certificate_fault(certificate)]}"
    words = "\n".join(f"{type(one).__name__}: {one}" for one in tls.chain(error))
    told = next((told for pattern, told in _TEXTS if re.search(pattern, words)), None)
    return f"Redis at {where} " + (told or f"failed us ({{said}}): look at its log, and at {_URL}").format(said=said)
