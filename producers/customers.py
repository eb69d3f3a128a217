"""The customer directory: the one place where a customer's name and address stand."""

import json
from collections.abc import Iterable
from uuid import UUID

from psycopg import Connection
from pydantic import TypeAdapter, ValidationError

from orderflow.core.errors import OrderflowError
from producers.bodies import CustomerEntry, Id

_PUT = """
INSERT INTO api.customers (customer_id, name, email, locale) VALUES (%s, %s, %s, %s)
ON CONFLICT (customer_id) DO UPDATE
SET name = excluded.name, email = excluded.email, locale = excluded.locale, updated_at = now(), erased_at = NULL
"""


class FileEntry(CustomerEntry):
    """One customer of a file: the body of `PUT /v1/customers/{id}` and the id."""

    customer_id: Id


class BadFile(OrderflowError):
    """Raised when a file of customers cannot be read; names the places, never what stands there."""


_FILE = TypeAdapter(list[FileEntry])

# Only the random id stays, with the time, so that a mail that comes too late is skipped.
_ERASE = """
UPDATE api.customers SET name = NULL, email = NULL, locale = NULL, updated_at = now(), erased_at = now()
WHERE customer_id = %s AND erased_at IS NULL
"""


def parse(content: bytes) -> list[tuple[UUID, CustomerEntry]]:
    """Read a JSON list of customers. Raises `BadFile`, also for unknown fields."""
    try:
        entries = _FILE.validate_python(json.loads(content))
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        places = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found[:5])
        message = f"{len(found)} places in the file are wrong, mend them and load it again: {places}"
        raise BadFile(message) from None
    except ValueError:
        message = "the file is no JSON in UTF-8; it must hold a list of customers"
        raise BadFile(message) from None
    return [(entry.customer_id, entry) for entry in entries]


def put(connection: Connection, entries: Iterable[tuple[UUID, CustomerEntry]]) -> int:
    """Write entries, replacing what stood there; return how many."""
    rows = [(customer_id, entry.name, entry.email, entry.locale) for customer_id, entry in entries]
    with connection.cursor() as cursor:
        cursor.executemany(_PUT, rows)
    return len(rows)


def erase(connection: Connection, customer_id: UUID) -> None:
    """Forget a customer; nothing happens for one who is unknown or erased already."""
    connection.execute(_ERASE, (customer_id,))
