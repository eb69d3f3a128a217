"""The customer directory as the email group may see it: a view, read only."""

from dataclasses import dataclass, field
from uuid import UUID

from psycopg import Connection

RELATION = "email.directory"


@dataclass(frozen=True, slots=True)
class Customer:
    """Who is mailed, and in which language. Its repr tells nothing, so that no log can."""

    email: str = field(repr=False)
    name: str = field(repr=False)
    locale: str = field(repr=False)


class Erased:
    """A customer who was erased: known, and not to be mailed."""


def find(connection: Connection, customer_id: UUID) -> Customer | Erased | None:
    """Return the customer, `Erased`, or None for one whom nobody knows."""
    row = connection.execute(
        "SELECT email, name, locale, erased FROM email.directory WHERE customer_id = %s", (customer_id,)
    ).fetchone()
    if row is None:
        return None
    email, name, locale, erased = row
    return Erased() if erased else Customer(email, name, locale)
