"""API keys: who calls. A key is `ofk_<id>_<secret>`; only the secret's hash is kept.

The secret has 256 random bits, so a plain SHA-256 is enough: there is nothing to guess.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from orderflow.core import clock
from orderflow.core.errors import Misconfigured

PREFIX = "ofk"
LOCAL_OWNER = "local"
OWNER = re.compile(r"[a-z][a-z0-9-]{0,63}")
"""Form of the name that orders and Idempotency-Keys belong to."""

# How long a revoked key may go on working; saves a query per request.
REMEMBERED_SECONDS = 5.0
_REMEMBERED_KEYS = 1_000

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")

_INSERT = "INSERT INTO api.keys (key_id, owner, secret_sha256) VALUES (%s, %s, %s)"
_FIND = "SELECT owner, secret_sha256 FROM api.keys WHERE key_id = %s AND revoked_at IS NULL"
_REVOKE = "UPDATE api.keys SET revoked_at = now() WHERE key_id = %s AND revoked_at IS NULL"
_LIST = "SELECT key_id, owner, created_at, revoked_at FROM api.keys ORDER BY created_at, key_id"


class Unauthenticated(Exception):
    """Raised when a request carries no key that counts (401)."""


class Forbidden(Exception):
    """Raised when `auth=off` meets a request that did not come from this machine directly (403)."""


def new_key(connection: Connection, owner: str) -> str:
    """Make a key for `owner` and return it; nobody can show it again."""
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    connection.execute(_INSERT, (key_id, owner, _digest(secret)))
    return f"{PREFIX}_{key_id}_{secret}"


def keys(connection: Connection) -> list[dict[str, Any]]:
    """Return all keys without their secrets, oldest first."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_LIST).fetchall()


def revoke(connection: Connection, key_id: str) -> bool:
    """Revoke a key; return whether there was one to revoke. API processes notice within `REMEMBERED_SECONDS`."""
    return connection.execute(_REVOKE, (key_id,)).rowcount == 1


@dataclass(frozen=True, slots=True)
class _Remembered:
    owner: str
    until: float


class KeyRing:
    """Tells whose key a request carries. Safe to share between threads."""

    def __init__(self, pool: ConnectionPool[Connection]) -> None:
        self._pool = pool
        self._remembered: dict[bytes, _Remembered] = {}

    def remembered(self, headers: Mapping[str, str]) -> str | None:
        """Return the owner of a key that was checked moments ago, without asking the database.

        Raises `Unauthenticated` when there is no key in the request at all.
        """
        known = self._remembered.get(_digest(_bearer(headers)))
        return known.owner if known and clock.monotonic() < known.until else None

    def owner(self, headers: Mapping[str, str]) -> str:
        """Return the key's owner. Raises `Unauthenticated`, and `psycopg.OperationalError` without a database."""
        token = _bearer(headers)
        prefix, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        if prefix != PREFIX or not secret or not (key_id.isascii() and key_id.isalnum()):
            raise Unauthenticated("this is no API key of ours; `orderflow keys new NAME` makes one")
        with self._pool.connection() as connection:
            found = connection.execute(_FIND, (key_id,)).fetchone()
        # Compared even when there is no such key, so that the time tells nothing.
        owner, expected = found or ("", bytes(hashlib.sha256().digest_size))
        if not hmac.compare_digest(_digest(secret), expected):
            raise Unauthenticated("the API key is unknown or was revoked")
        if len(self._remembered) >= _REMEMBERED_KEYS:
            self._remembered.clear()
        self._remembered[_digest(token)] = _Remembered(owner, clock.monotonic() + REMEMBERED_SECONDS)
        return str(owner)


class OpenHouse:
    """`auth=off`: everybody on this machine is `LOCAL_OWNER`."""

    def remembered(self, headers: Mapping[str, str]) -> str:
        """Return the one owner. Raises `Forbidden` for what a proxy or a foreign web page may have sent."""
        return self.owner(headers)

    def owner(self, headers: Mapping[str, str]) -> str:
        """Return the one owner. Raises `Forbidden` as `remembered` does."""
        forwarded = [name for name in _FORWARDED if name in headers]
        if forwarded:
            raise Forbidden(f"auth=off does not answer forwarded requests ({forwarded[0]} is set); set auth=on")
        host = headers.get("host", "")
        if not is_loopback(host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host):
            raise Forbidden("auth=off answers to this machine's own names only (127.0.0.1, localhost); set auth=on")
        return LOCAL_OWNER


def is_loopback(host: str) -> bool:
    """Whether this name or address means this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def assert_loopback(host: str) -> None:
    """Refuse to serve the network without keys. Raises `Misconfigured`."""
    if not is_loopback(host):
        message = (
            f"auth=off is for this machine only, and the API would listen on {host}: "
            "set ORDERFLOW_API__AUTH=on, or ORDERFLOW_API__HOST=127.0.0.1"
        )
        raise Misconfigured(message)


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("send your API key as `Authorization: Bearer ofk_...`")
    return token.strip()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
