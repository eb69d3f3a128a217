"""Consumer groups for tests: a name of their own, so that two tests never share claims or positions."""

import secrets
from typing import Any

from consumers.runtime.group import APPLIED, DISCARDED, ConsumerGroup, DlqPolicy


def make_group(**fields: Any) -> ConsumerGroup:
    """Return a group without handlers; every field can be overridden."""
    defaults: dict[str, Any] = {
        "name": f"t{secrets.token_hex(4)}",
        "owner": "team-test",
        "slo_seconds": 60.0,
        "dlq": DlqPolicy(
            alert="nobody", replay="never", delete_when={DISCARDED, APPLIED}, keep_days=1, note="a test's own"
        ),
    }
    return ConsumerGroup(**{**defaults, **fields})
