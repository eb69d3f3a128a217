"""Callers that order, pay and cancel over HTTP, and note each promise that they were given."""

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg

from tests.checker.facts import Ack

PLENTY = ("TEA-100", "MUG-BLUE", "PLATE-26")
SCARCE = "LAST-ONES"
ON_HAND = {**dict.fromkeys(PLENTY, 10_000_000), SCARCE: 40}
CALLERS = 3
TIMEOUT_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Customers:
    """Whom orders are for; the mails of some must end among the dead letters."""

    well: Sequence[UUID]
    busy: Sequence[UUID]
    erased: Sequence[UUID]
    refused: Sequence[UUID]
    unknown: Sequence[UUID]

    @property
    def dead(self) -> set[str]:
        return {str(customer) for customer in (*self.refused, *self.unknown)}

    @classmethod
    def of(cls, seed: int) -> "Customers":
        chance = random.Random(seed)

        def some(number: int) -> list[UUID]:
            return [UUID(int=chance.getrandbits(128), version=4) for _ in range(number)]

        return cls(some(40), some(200), some(2), some(2), some(2))

    def store(self, connection: psycopg.Connection) -> None:
        """Put them into the directory of the order API."""
        people = [(customer, f"{customer}@shop.example") for customer in self.well]
        # Refused for now, twice: the busy ones are served one after the other.
        people += [(customer, f"{customer}+451x2@shop.example") for customer in self.busy]
        people += [(customer, f"{customer}+550@shop.example") for customer in self.refused]
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO api.customers (customer_id, email, name, locale) VALUES (%s, %s, 'Kim Lee', 'en')", people
            )
            cursor.executemany(
                "INSERT INTO api.customers (customer_id, erased_at) VALUES (%s, now())",
                [(customer,) for customer in self.erased],
            )


@dataclass
class Load:
    """`rate` orders a second, all callers together."""

    port: int
    key: str
    customers: Customers
    rate: float
    seed: int
    acks: list[Ack] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)
    _done: threading.Event = field(default_factory=threading.Event)
    _busy: Iterator[UUID] | None = None

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self._busy = iter(self.customers.busy)
        threads = [threading.Thread(target=self._call, args=(number,), daemon=True) for number in range(CALLERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._done.set()
            for thread in threads:
                thread.join(2 * TIMEOUT_SECONDS)

    def _call(self, number: int) -> None:
        chance = random.Random(self.seed * 100 + number)
        caller = _Caller(self.port, self.key, self._done)
        pause = CALLERS / self.rate
        while not self._done.is_set():
            began = time.monotonic()
            self._order(caller, chance)
            self._done.wait(max(0.0, pause - (time.monotonic() - began)))

    def _order(self, caller: "_Caller", chance: random.Random) -> None:
        articles = chance.sample(PLENTY, chance.randint(1, 3)) + [SCARCE] * (chance.random() < 0.05)
        body = {
            "customer_id": str(self._customer(chance)),
            "currency": "EUR",
            "lines": [{"sku": sku, "quantity": chance.randint(1, 3), "unit_price": "2.50"} for sku in articles],
        }
        placed = self._promised(caller, "/v1/orders", body)
        if placed is None:
            return
        path = f"/v1/orders/{placed['order_id']}"
        if chance.random() < 0.4:
            paid = {"payment_id": str(uuid4()), "amount": placed["total"], "method": "card"}
            self._promised(caller, f"{path}/payment", paid)
        if chance.random() < 0.25:
            self._promised(caller, f"{path}/cancellation", {"reason": "customer_request"})

    def _promised(self, caller: "_Caller", path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        status, answer = caller.post(path, body)
        if status != 201:
            self.refused[status] = self.refused.get(status, 0) + 1
            return None
        self.acks.append(Ack(answer["order_id"], answer["version"], time.time()))
        return answer

    def _customer(self, chance: random.Random) -> UUID:
        drawn = chance.random()
        if drawn < 0.01:
            return chance.choice(self.customers.refused)
        if drawn < 0.02:
            return chance.choice(self.customers.unknown)
        if drawn < 0.03:
            return chance.choice(self.customers.erased)
        if drawn < 0.06 and self._busy is not None:
            # Each is refused twice in all, so each serves one order.
            return next(self._busy, self.customers.well[0])
        return chance.choice(self.customers.well)


class _Caller:
    """Asks until there is an answer, always with the same Idempotency-Key."""

    def __init__(self, port: int, key: str, done: threading.Event) -> None:
        self._port, self._key, self._done = port, key, done
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        key = uuid4().hex
        headers = {
            "Authorization": f"Bearer {self._key}",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        }
        while True:
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
                self._connection.request("POST", path, json.dumps(body), headers)
                answer = self._connection.getresponse()
                content = answer.read()
                if answer.status < 500 and answer.status != 409:
                    return answer.status, json.loads(content) if content else {}
                status = answer.status
            except (OSError, http.client.HTTPException):
                self._connection, status = None, 0
            if self._done.wait(0.2):
                return status, {}
            if status == 409 and not path.endswith("orders"):
                return status, {}  # not in a state to be paid
