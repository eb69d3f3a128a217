"""What is wrong with a server's certificate."""

import ssl
from enum import StrEnum

# OpenSSL's X509_V_ERR_... (openssl/x509_vfy.h).
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME = (62, 64)


class Certificate(StrEnum):
    """Why a certificate was not believed."""

    UNTRUSTED = "untrusted"  # signed by nobody whom we trust
    OTHER_NAME = "other_name"  # valid for other hosts
    OUT_OF_DATE = "out_of_date"  # not valid yet, or no more


def certificate_fault(error: ssl.SSLCertVerificationError) -> Certificate:
    """Return what the verification said."""
    if error.verify_code in _OTHER_NAME:
        return Certificate.OTHER_NAME
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        return Certificate.OUT_OF_DATE
    return Certificate.UNTRUSTED


def chain(error: BaseException) -> list[BaseException]:
    """Return the error and those that it came from, the outermost first."""
    found: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and seen not in found:
        found.append(seen)
        seen = seen.__cause__ or seen.__context__
    return found


def inside(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return the certificate's error that another one came from, however deep; None without one."""
    return next((one for one in chain(error) if isinstance(one, ssl.SSLCertVerificationError)), None)
