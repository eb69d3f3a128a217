"""What may be deleted of a table of ours, as a plain value; `orderflow janitor` does it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import LiteralString


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows of one table that nobody needs any more.

    `condition` is SQL that may use `%(before)s`, the moment `kept` ago by the database's clock. `key` is the primary
    key, or an indexed column and the rest of it: rows are gone through in this order, once a run.
    """

    table: LiteralString
    key: LiteralString
    condition: LiteralString
    kept: timedelta
