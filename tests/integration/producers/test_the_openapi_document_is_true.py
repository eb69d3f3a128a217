"""Schemathesis against the API as a process on a real PostgreSQL: what /openapi.json says is what is answered."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OPERATIONS = {
    ("POST", "/v1/orders"),
    ("GET", "/v1/orders/{order_id}"),
    ("POST", "/v1/orders/{order_id}/payment"),
    ("POST", "/v1/orders/{order_id}/cancellation"),
    ("PUT", "/v1/customers/{customer_id}"),
    ("DELETE", "/v1/customers/{customer_id}"),
}
_COUNTED = re.compile(r'_seconds_count\{method="(\w+)",route="([^"]+)",status="(\d+)"\} ([0-9.]+)')


def answered(metrics: str) -> Counter[tuple[str, str, int]]:
    """Return how often each operation was answered with each status, as the API itself counts."""
    return Counter({(verb, route, int(code)): int(float(n)) for verb, route, code, n in _COUNTED.findall(metrics)})


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_thousands_of_good_and_bad_requests_find_nothing_that_the_document_does_not_say(
    start_api: Callable[..., Any], tmp_path: Path, *, short: bool
) -> None:
    api = start_api(
        ORDERFLOW_API__BACKLOG_MAX_ROWS="1000000",
        ORDERFLOW_API__BACKLOG_MAX_AGE_SECONDS="86400",
        ORDERFLOW_LOG_LEVEL="warning",
    )
    examples, requests = (2, 250) if short else (2_000, 10_000)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{api.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {api.key}", "--max-examples", str(examples)),
            *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
            *("--phases", "coverage,fuzzing,stateful", "--continue-on-failure", "--seed", "1"),
        ],
        # It keeps what it learns in the working folder.
        cwd=tmp_path,
        env=os.environ | {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    counted = answered(api.metrics())
    table = [f"{number:7,} {status} {verb} {route}" for (verb, route, status), number in sorted(counted.items())]
    (tmp_path / "answers.txt").write_text("\n".join([run.stdout, *table]))
    assert run.returncode == 0, run.stdout[-8_000:]
    assert sum(counted.values()) >= requests
    assert not [what for what in counted if what[2] >= 500]
    for verb, route in OPERATIONS:
        statuses = {status for a, b, status in counted if (a, b) == (verb, route)}
        # A payment must be of the order's total: few made-up amounts are.
        assert statuses & {200, 201, 204} or route.endswith("/payment"), f"{verb} {route} never succeeded"
        assert {401, 404, 422} & statuses, f"{verb} {route} never refused"
    assert api.process.poll() is None
