"""What stands in Redis in the end: every claim goes some day, none is still held, and "done" is true."""

from collections.abc import Iterator

from tests.checker.findings import Finding
from tests.checker.log import GroupLog


def check(log: GroupLog) -> Iterator[Finding]:
    name = log.group.name
    for claim in log.group.claims:
        if claim.ttl_ms < 0:
            yield Finding("claims", name, claim.event_id, "has a claim that never expires")
        if claim.state == "C" and claim.event_id not in log.ended:
            yield Finding("claims", name, claim.event_id, "is claimed as done and has no effect")
        if claim.state == "P" and log.facts.drained:
            yield Finding("claims", name, claim.event_id, "is still claimed although nothing is left to do")
