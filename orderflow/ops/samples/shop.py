"""The sample files as values, and the seed that a shop starts with."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter

from consumers.inventory import fixtures, stock
from orderflow.core import database
from orderflow.core.settings import Settings
from producers import customers
from producers.orders import CancellationReason

FOLDER = Path(__file__).parent
CUSTOMERS = FOLDER / "customers.json"
STOCK = FOLDER / "stock.json"
ORDERS = FOLDER / "orders.json"

Oddity = Literal["sent_twice", "out_of_stock", "busy_mail_server", "unknown_customer"]


class _Sample(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SampleLine(_Sample):
    """One article of a sample order."""

    sku: str
    quantity: int
    unit_price: Decimal


class SampleOrder(_Sample):
    """An order, how it is `paid` and why it is `cancelled`, if at all, and what is odd about it."""

    customer_id: UUID
    channel: str
    currency: str
    lines: tuple[SampleLine, ...]
    paid: str | None
    cancelled: CancellationReason | None
    odd: Oddity | None


@dataclass(frozen=True, slots=True)
class Seeded:
    """How many articles and customers were put into a shop that had none."""

    articles: int
    customers: int


def orders() -> Sequence[SampleOrder]:
    """Return the sample orders."""
    return TypeAdapter(list[SampleOrder]).validate_json(ORDERS.read_bytes())


def addresses() -> dict[UUID, str]:
    """Return each sample customer's email address."""
    return {customer_id: entry.email for customer_id, entry in customers.parse(CUSTOMERS.read_bytes())}


def seed(settings: Settings) -> Seeded:
    """Put the sample stock and customers into a shop that has none; what is there already stays as it is."""
    articles = people = 0
    with database.connect(settings.database, "inventory") as connection:
        if not stock.levels(connection):
            articles = stock.load(connection, fixtures.read(STOCK))
    with database.connect(settings.database, "api") as connection:
        found = connection.execute("SELECT EXISTS (SELECT FROM api.customers)").fetchone()
        if not (found and found[0]):
            people = customers.put(connection, customers.parse(CUSTOMERS.read_bytes()))
    return Seeded(articles, people)
