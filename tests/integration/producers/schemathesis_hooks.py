"""What schemathesis cannot know about the order API; loaded by its command line."""

import json
from typing import Any

import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

# Rules of which a schema cannot speak: the amount is another order's, the key was used before.
_RULES = ("wrong-amount", "idempotency-key-reused")


@schemathesis.check
def valid_data_is_taken(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> bool | None:
    """Fail when a body that the document calls valid is refused for its form (in place of their own check)."""
    if response.status_code == 422 and json.loads(response.content)["type"].rpartition(":")[2] in _RULES:
        return None
    return positive_data_acceptance(ctx, response, case)


@schemathesis.check
def every_answer_has_a_number(
    _ctx: schemathesis.CheckContext, response: schemathesis.Response, _case: schemathesis.Case[Any]
) -> bool | None:
    """Fail when an answer cannot be found again in the log."""
    assert response.headers.get("x-request-id"), "there is no X-Request-Id"
    return None
