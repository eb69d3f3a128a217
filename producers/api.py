"""The order API: its routes. What an order may do stands in `orders`, what is stored in `store`."""

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Request, Response, Security
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer
from psycopg import Connection
from psycopg_pool import ConnectionPool
from pydantic import BaseModel

from orderflow.core import clock
from orderflow.core.metrics import Metrics
from producers import customers, problems
from producers.auth import KeyRing, OpenHouse
from producers.backlog import Gate
from producers.bodies import Cancellation, CustomerEntry, Id, OrderView, Payment, PlaceOrder, canonical_uuid
from producers.edge import BodyGuard, Shield, Watch
from producers.guarded import JSON, GuardedRoute
from producers.idempotency import Answer, IdempotencyKey
from producers.problems import Problem, ProblemBody, documented
from producers.store import Caller, OrderUnknown, Store


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes work with. `body_limit` in bytes.

    `patience_seconds`: how long after its arrival a request may begin to work with the database. Counted from there,
    and not from when it has a thread, or many waiting requests would wait for one another's time-outs.
    """

    pool: ConnectionPool[Connection]
    store: Store
    keys: KeyRing | OpenHouse
    gate: Gate
    metrics: Metrics
    body_limit: int
    idempotency_kept: timedelta
    patience_seconds: float = 5.0
    access_log: bool = False


def create_app(parts: Parts) -> FastAPI:
    """Return the ASGI application."""
    app = FastAPI(
        title="orderflow order API",
        version="1",
        summary="Stores orders and publishes what happens to them.",
        # Their pages would load scripts from elsewhere; /openapi.json is enough for tools.
        docs_url=None,
        redoc_url=None,
    )
    app.state.parts = parts
    app.state.keys = parts.keys
    problems.install(app)
    app.include_router(_orders)
    app.include_router(_health)
    app.add_middleware(BodyGuard, limit=parts.body_limit)
    app.add_middleware(Shield)
    app.add_middleware(Watch, metrics=parts.metrics, access_log=parts.access_log)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's documented way
    return app


def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


async def _accepting(request: Request) -> None:
    if _parts(request).gate.closed:
        raise Problem(
            503,
            "too many orders wait to be published; try again later",
            kind="backlog",
            headers={"Retry-After": str(problems.BACKLOG_RETRY_SECONDS)},
        )


Accepting = Depends(_accepting)
IdempotencyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Sent again with the same body within 24 hours, the first answer is given again.",
    ),
]
Traceparent = Annotated[str | None, Header(include_in_schema=False)]
# A string, since an id of a wrong form is an order that does not exist.
OrderId = Annotated[str, Path(description="The order's id.", json_schema_extra={"format": "uuid"})]

_orders = APIRouter(
    prefix="/v1", route_class=GuardedRoute, dependencies=[Security(HTTPBearer(auto_error=False, description="API key"))]
)
_health = APIRouter(include_in_schema=False)

_CREATED: dict[int | str, dict[str, Any]] = {
    201: {
        "model": OrderView,
        "description": "Stored; the event will be published.",
        "headers": {
            "Location": {"schema": {"type": "string"}, "required": True},
            "Idempotent-Replayed": {"schema": {"type": "string", "enum": ["true"]}},
        },
    }
}
_ANY = (401, 403, 413, 500, 503)
_CHANGE = {**_CREATED, **documented(400, 404, 409, 415, 422, *_ANY)}


@_orders.post(
    "/orders",
    status_code=201,
    responses={**_CREATED, **documented(400, 409, 415, 422, *_ANY)},
    dependencies=[Accepting],
)
def place_order(
    request: Request, body: PlaceOrder, idempotency_key: IdempotencyHeader = None, traceparent: Traceparent = None
) -> Response:
    """Place an order."""
    caller = _caller(request, body, idempotency_key, traceparent)
    return _created(_parts(request).store.place(caller, body))


@_orders.post("/orders/{order_id}/payment", status_code=201, responses=_CHANGE, dependencies=[Accepting])
def pay_order(
    request: Request,
    order_id: OrderId,
    body: Payment,
    idempotency_key: IdempotencyHeader = None,
    traceparent: Traceparent = None,
) -> Response:
    """Pay a placed order in full."""
    caller = _caller(request, body, idempotency_key, traceparent)
    return _created(_parts(request).store.pay(caller, _order_id(order_id), body))


@_orders.post("/orders/{order_id}/cancellation", status_code=201, responses=_CHANGE, dependencies=[Accepting])
def cancel_order(
    request: Request,
    order_id: OrderId,
    body: Cancellation,
    idempotency_key: IdempotencyHeader = None,
    traceparent: Traceparent = None,
) -> Response:
    """Cancel a placed or paid order."""
    caller = _caller(request, body, idempotency_key, traceparent)
    return _created(_parts(request).store.cancel(caller, _order_id(order_id), body))


@_orders.get("/orders/{order_id}", responses={200: {"model": OrderView}, **documented(404, *_ANY)})
def get_order(request: Request, order_id: OrderId) -> Response:
    """Show an order."""
    return Response(
        _parts(request).store.get(request.state.owner, _order_id(order_id), deadline=_deadline(request)),
        media_type=JSON,
    )


@_orders.put("/customers/{customer_id}", status_code=204, responses=documented(400, 415, 422, *_ANY))
def put_customer(request: Request, customer_id: Id, body: CustomerEntry) -> Response:
    """Write a customer's directory entry, new or changed."""
    with _parts(request).pool.connection(_deadline(request) - clock.monotonic()) as connection:
        customers.put(connection, [(customer_id, body)])
    return Response(status_code=204)


@_orders.delete("/customers/{customer_id}", status_code=204, responses=documented(422, *_ANY))
def delete_customer(request: Request, customer_id: Id) -> Response:
    """Forget a customer: name, address and language are gone for good."""
    with _parts(request).pool.connection(_deadline(request) - clock.monotonic()) as connection:
        customers.erase(connection, customer_id)
    return Response(status_code=204)


@_health.get("/livez")
async def livez() -> dict[str, str]:
    """Say that the process turns; it looks at nothing else."""
    return {"status": "ok"}


@_health.get("/readyz")
def readyz(request: Request) -> dict[str, str]:
    """Say whether orders can be stored: the database answers. Kafka may be down."""
    _parts(request).store.ping(deadline=_deadline(request))
    return {"status": "ok"}


def _deadline(request: Request) -> float:
    arrived: float = request.state.arrived
    return arrived + _parts(request).patience_seconds


def _caller(request: Request, body: BaseModel, key: str | None, traceparent: str | None) -> Caller:
    owner: str = request.state.owner
    if key is None:
        return Caller(owner, None, traceparent, _deadline(request))
    sent = f"{request.method} {request.url.path}\n{body.model_dump_json()}"
    fingerprint = hashlib.sha256(sent.encode()).digest()
    kept = _parts(request).idempotency_kept
    return Caller(owner, IdempotencyKey(owner, key, fingerprint, kept), traceparent, _deadline(request))


def _order_id(text: str) -> UUID:
    try:
        return canonical_uuid(text)
    except ValueError:
        message = "there is no such order"
        raise OrderUnknown(message) from None


def _created(answer: Answer) -> Response:
    headers = {"Location": answer.location}
    if answer.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(answer.body, 201, headers, JSON)


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        parts = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
        made["components"]["schemas"].update(parts.pop("$defs", {}))
        made["components"]["schemas"][ProblemBody.__name__] = parts
        # The framework adds a 422 of its own form to every route with a parameter.
        made["components"]["schemas"].pop("HTTPValidationError", None)
        made["components"]["schemas"].pop("ValidationError", None)
        for operation in (what for verbs in made["paths"].values() for what in verbs.values()):
            if JSON in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
        app.openapi_schema = made
    return app.openapi_schema
