"""Every error of the order API as `application/problem+json` (RFC 9457); none repeats what was sent."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from psycopg import OperationalError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from orderflow.core import clock, log
from producers.auth import Forbidden, Unauthenticated
from producers.idempotency import InProgress, Reused
from producers.orders import NotInState, WrongAmount
from producers.store import OrderUnknown

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
BACKLOG_RETRY_SECONDS = 5
# A body of many small mistakes must not be answered with a larger list of them.
SHOWN_ERRORS = 20

_log = log.get(__name__)
_limit = log.RateLimited(every=5.0)


class FieldError(BaseModel):
    """One thing that is wrong in a body: where (JSON pointer) and what."""

    pointer: str
    detail: str


class ProblemBody(BaseModel):
    """RFC 9457; `errors` stands on 422 for a body's fields."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | None = None
    errors: list[FieldError] | None = None


class Problem(HTTPException):
    """Raised to answer with a problem; `kind` becomes the type `urn:orderflow:problem:<kind>`."""

    def __init__(self, status: int, detail: str, *, kind: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.kind = kind


def body(
    status: int, detail: str | None = None, *, kind: str | None = None, errors: list[FieldError] | None = None
) -> dict[str, Any]:
    """Return a problem as it goes into JSON."""
    made = ProblemBody(
        type=f"urn:orderflow:problem:{kind}" if kind else "about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=errors,
    )
    return made.model_dump(exclude_none=True)


def answer(
    status: int,
    detail: str | None = None,
    *,
    kind: str | None = None,
    errors: list[FieldError] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return the response that carries a problem."""
    content = body(status, detail, kind=kind, errors=errors)
    return JSONResponse(content, status, headers=dict(headers) if headers else None, media_type=MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that can answer with these problems."""
    schema = {"$ref": f"#/components/schemas/{ProblemBody.__name__}"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }


def install(app: FastAPI) -> None:
    """Let the app answer every error, its framework's included, with a problem."""

    def simple(status: int, kind: str, headers: Mapping[str, str] | None = None) -> Any:
        def handle(_request: Request, error: Exception) -> JSONResponse:
            return answer(status, str(error), kind=kind, headers=headers)

        return handle

    app.add_exception_handler(Unauthenticated, simple(401, "unauthenticated", {"WWW-Authenticate": "Bearer"}))
    app.add_exception_handler(Forbidden, simple(403, "forbidden"))
    app.add_exception_handler(OrderUnknown, simple(404, "order-unknown"))
    app.add_exception_handler(NotInState, simple(409, "not-in-state"))
    app.add_exception_handler(InProgress, simple(409, "in-progress", {"Retry-After": str(RETRY_SECONDS)}))
    app.add_exception_handler(Reused, simple(422, "idempotency-key-reused"))
    app.add_exception_handler(WrongAmount, simple(422, "wrong-amount"))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(OperationalError, _database_away)


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    found = [_field(one) for one in error.errors()[:SHOWN_ERRORS]]
    kinds = {one["type"] for one in error.errors()}
    kind = "personal-data" if "personal_data" in kinds else "invalid"
    where = found[0].pointer or "the request"
    return answer(422, f"{where}: {found[0].detail}", kind=kind, errors=found)


def _field(error: Mapping[str, Any]) -> FieldError:
    place, *path = error["loc"]
    steps = path if place == "body" else [place, *path]
    escaped = (str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    said = str(error["msg"]).removeprefix("Value error, ")
    return FieldError(pointer="".join(f"/{step}" for step in escaped), detail=said)


def _framework(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    phrase = HTTPStatus(error.status_code).phrase
    detail = error.detail if error.detail != phrase else None
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names the methods of the first route of this path only.
        path = getattr(request.scope.get("route"), "path", "")
        methods = [method.upper() for method in request.app.openapi()["paths"].get(path, ())]
        if methods:
            headers["Allow"] = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
    return answer(error.status_code, detail, kind=getattr(error, "kind", None), headers=headers)


def _database_away(_request: Request, error: Exception) -> JSONResponse:
    held = _limit.allow(type(error).__name__, clock.monotonic())
    if held is not None:
        _log.warning("the database is away", error=type(error).__name__, repeated=held)
    # The connection may have broken at COMMIT: the order may be stored.
    detail = "the database does not answer; send it again with the same Idempotency-Key, since it may have been stored"
    return answer(503, detail, kind="database-away", headers={"Retry-After": str(RETRY_SECONDS)})
