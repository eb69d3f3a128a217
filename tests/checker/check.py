"""All promises at once: from facts to findings, each with its story, and the books of each group."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.checker import claims, copies, fates, offsets, publishing, tables
from tests.checker.facts import Facts
from tests.checker.fates import Line
from tests.checker.findings import Finding
from tests.checker.log import GroupLog
from tests.checker.story import tell

# Worst first.
RULES = (
    "nothing lost",
    "acknowledged",
    "exactly once",
    "twice only in a window",
    "one end",
    "effect before commit",
    "no early retry",
    "nothing flushed into the DLQ",
)
# The first of a kind tell enough; a broken build breaks a promise for every event.
TOLD_PER_RULE = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """The books and what is wrong."""

    lines: Sequence[Line]
    findings: Sequence[Finding]
    doubled_in_topic: int

    @property
    def clean(self) -> bool:
        return not self.findings and all(line.balances for line in self.lines)


def check(facts: Facts) -> Verdict:
    """Prove every promise, or say by which event it is broken."""
    logs = [GroupLog(facts, group) for group in facts.groups]
    findings: list[Finding] = []
    told: Counter[tuple[str, str]] = Counter()
    anybody = logs[0] if logs else None
    for log, finding in [*((anybody, one) for one in publishing.check(facts)), *_of_groups(logs)]:
        told[finding.rule, finding.group] += 1
        if log is not None and told[finding.rule, finding.group] <= TOLD_PER_RULE:
            findings.append(finding.told(tell(log, finding)))
        else:
            findings.append(finding)
    findings.sort(key=lambda finding: RULES.index(finding.rule) if finding.rule in RULES else len(RULES))
    doubled = sum(len(records) - 1 for records in facts.published().values())
    return Verdict([fates.line(log) for log in logs], findings, doubled)


def _of_groups(logs: Sequence[GroupLog]) -> Iterator[tuple[GroupLog, Finding]]:
    for log in logs:
        for part in (fates, copies, offsets, claims):
            yield from ((log, finding) for finding in part.check(log))
        if log.group.name == "audit" and log.facts.audit is not None:
            yield from ((log, finding) for finding in tables.check_audit(log, log.facts.audit))
        if log.group.name == "inventory" and log.facts.stock is not None:
            yield from ((log, finding) for finding in tables.check_stock(log, log.facts.stock))
