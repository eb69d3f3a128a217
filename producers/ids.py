"""New ids: UUIDv7, whose time prefix keeps the indexes of the tables they key compact."""

from uuid import UUID

from uuid_utils import uuid7


def new_id() -> UUID:
    """Return a new UUIDv7 as the standard library's type."""
    return UUID(int=uuid7().int)
