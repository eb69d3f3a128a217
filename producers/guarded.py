"""What every call under /v1 passes first: its key, its content type, and JSON that is parsed without floats."""

import json
from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from producers.problems import Problem

if TYPE_CHECKING:
    from producers.auth import KeyRing, OpenHouse

JSON = "application/json"


class _ExactRequest(Request):
    """Parses JSON without floats: 0.1 is Decimal("0.1")."""

    async def json(self) -> Any:
        try:
            text = (await self.body()).decode()
            return json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_each_name_once)
        except (ValueError, RecursionError):
            raise Problem(400, "the body is no well-formed JSON in UTF-8", kind="malformed") from None


def _no_constant(_name: str) -> NoReturn:
    message = "NaN and Infinity are no JSON"
    raise ValueError(message)


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        message = "a name stands twice in one object"
        raise ValueError(message)
    return made


class GuardedRoute(APIRoute):
    """Asks for the key first, then for JSON, before anything of the body is looked at."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler behind ours."""
        inner = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle(request: Request) -> Response:
            keys: KeyRing | OpenHouse = request.app.state.keys
            owner = keys.remembered(request.headers) or await run_in_threadpool(keys.owner, request.headers)
            request.state.owner = owner
            if takes_body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
                raise Problem(415, f"send the body as {JSON}", kind="not-json")
            exact = _ExactRequest(request.scope, request.receive)
            if takes_body and not await exact.body():  # which the framework takes for a missing field
                raise Problem(400, "the body is empty", kind="malformed")
            return await inner(exact)

        return handle
