"""A client of the order API: places the sample orders over HTTP, several at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any, Self
from uuid import UUID, uuid4

import httpx

from orderflow.core.errors import OrderflowError
from orderflow.ops.demo.facts import CANCELLED, CREATED, PAID, Change
from orderflow.ops.samples.shop import SampleOrder

AT_ONCE = 8
_CREATED = 201


class NotPlaced(OrderflowError):
    """Raised when the API answers anything but 201."""


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """A sample order, the id it was given, the changes that were answered 201, and whether one was a replay."""

    sample: SampleOrder
    order_id: UUID
    changes: tuple[Change, ...]
    replayed: bool


class OrderClient:
    """Sends every request under an Idempotency-Key of its own; use it as a context manager."""

    def __init__(self, url: str, key: str) -> None:
        self._stopped = Event()
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=30.0,
            # A proxy of the environment has nothing to do with this machine's own shop.
            trust_env=False,
            limits=httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE),
        )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._http.close()

    def stop(self) -> None:
        """Begin no further order."""
        self._stopped.set()

    def place(self, order: SampleOrder) -> PlacedOrder:
        """Place an order, then pay and cancel it where the sample says so. Raises `NotPlaced`."""
        key = str(uuid4())
        body = {
            "customer_id": str(order.customer_id),
            "currency": order.currency,
            "channel": order.channel,
            "lines": [{"sku": x.sku, "quantity": x.quantity, "unit_price": str(x.unit_price)} for x in order.lines],
        }
        answer = self._post("/v1/orders", body, key)
        order_id, total = UUID(answer.json()["order_id"]), answer.json()["total"]
        changes = [_change(CREATED, answer)]
        replayed = False
        if order.odd == "sent_twice":
            again = self._post("/v1/orders", body, key)
            replayed = again.headers.get("Idempotent-Replayed") == "true"
            changes.append(_change(CREATED, again))
        if order.paid is not None:
            payment = {"payment_id": str(uuid4()), "amount": total, "method": order.paid}
            changes.append(_change(PAID, self._post(f"/v1/orders/{order_id}/payment", payment)))
        if order.cancelled is not None:
            reason = {"reason": order.cancelled.value}
            changes.append(_change(CANCELLED, self._post(f"/v1/orders/{order_id}/cancellation", reason)))
        return PlacedOrder(order, order_id, tuple(changes), replayed)

    def place_all(self, orders: Sequence[SampleOrder], each: Callable[[PlacedOrder], None]) -> list[PlacedOrder]:
        """Place all, `AT_ONCE` at a time; `each` is told of every one, from several threads. Raises `NotPlaced`."""

        def one(order: SampleOrder) -> PlacedOrder:
            if self._stopped.is_set():
                raise NotPlaced("the client was stopped")
            placed = self.place(order)
            each(placed)
            return placed

        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="orders")
        try:
            return list(pool.map(one, orders))
        finally:
            pool.shutdown(cancel_futures=True)

    def _post(self, path: str, body: dict[str, Any], key: str | None = None) -> httpx.Response:
        try:
            answer = self._http.post(path, json=body, headers={"Idempotency-Key": key or str(uuid4())})
        except httpx.HTTPError as error:
            raise NotPlaced(f"the order API did not answer POST {path}: {type(error).__name__}") from error
        if answer.status_code != _CREATED:
            raise NotPlaced(f"the order API answered {answer.status_code} to POST {path}: {answer.text}")
        return answer


def _change(type_name: str, answer: httpx.Response) -> Change:
    order = answer.json()
    return Change(type_name, UUID(order["order_id"]), order["version"])
