"""Runs the checks side by side: each in a thread of its own once what it needs is well, all within a time."""

import queue
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orderflow.core import clock, interrupt
from orderflow.core.errors import OrderflowError
from orderflow.core.settings import Settings
from orderflow.ops.doctor.checks import CHECKS, Check
from orderflow.ops.doctor.finding import Finding, State, failed, skipped

# What a service that hangs may cost beside Kafka's own time to start.
_MORE_SECONDS = 5.0
_TICK_SECONDS = 0.1
_ONE_BY_ONE = frozenset({"`orderflow db apply`", "`orderflow topics apply`"})
_AT_ONCE = "`orderflow provision` makes tables and topics"
_BAD = (State.FAILED, State.UNKNOWN, State.SKIPPED)


@dataclass(frozen=True, slots=True)
class Line:
    """One finding of one check."""

    check: str
    finding: Finding


def examine(settings: Settings, checks: Sequence[Check] = CHECKS, *, seconds: float | None = None) -> list[Line]:
    """Return what all checks found, in the order of the table.

    Ends after `seconds` (Kafka's start time-out and 5 s, unless given): what has not answered by then is UNKNOWN.
    Its thread is left behind and ends with the process.
    """
    limit = settings.kafka.start_timeout_seconds + _MORE_SECONDS if seconds is None else seconds
    until = clock.monotonic() + limit
    done: queue.SimpleQueue[tuple[str, list[Finding]]] = queue.SimpleQueue()
    found: dict[str, list[Finding]] = {}
    waiting = list(checks)
    running: set[str] = set()
    while waiting or running:
        waiting = _start_what_may(waiting, found, running, settings, done)
        try:
            name, findings = done.get(timeout=_TICK_SECONDS)
            found[name] = findings
            running.discard(name)
        except queue.Empty:
            interrupt.heed()
        if clock.monotonic() > until:
            break
    late = Finding(State.UNKNOWN, f"no answer within {limit:.0f} s", "look whether it hangs, then run it again")
    return at_once([Line(check.name, finding) for check in checks for finding in found.get(check.name, [late])])


def at_once(lines: Sequence[Line]) -> list[Line]:
    """Return the lines; where tables and topics are both missing, the one command that makes both mends them."""
    if not {line.finding.mend for line in lines} >= _ONE_BY_ONE:
        return list(lines)
    return [
        replace(line, finding=replace(line.finding, mend=_AT_ONCE)) if line.finding.mend in _ONE_BY_ONE else line
        for line in lines
    ]


def _start_what_may(
    waiting: Sequence[Check],
    found: dict[str, list[Finding]],
    running: set[str],
    settings: Settings,
    done: "queue.SimpleQueue[tuple[str, list[Finding]]]",
) -> list[Check]:
    still: list[Check] = []
    for check in waiting:
        before = found.get(check.needs) if check.needs else []
        if before is None:
            still.append(check)
        elif any(finding.state in _BAD for finding in before):
            found[check.name] = [skipped(f"because of: {check.needs}")]
        else:
            running.add(check.name)
            threading.Thread(target=_look, args=(check, settings, done), name=check.name, daemon=True).start()
    return still


def _look(check: Check, settings: Settings, done: "queue.SimpleQueue[tuple[str, list[Finding]]]") -> None:
    try:
        told = check.look(settings)
        findings = told if isinstance(told, list) else [told]
    except OrderflowError as error:
        findings = [failed(str(error))]
    except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
        findings = [Finding(State.UNKNOWN, f"{type(error).__name__}: {error}", "run it again; if it stays, report it")]
    done.put((check.name, findings))


def summary(lines: Sequence[Line]) -> str:
    """Return one sentence: that there is nothing to mend, or how many checks ended how."""
    counts = Counter(line.finding.state for line in lines)
    if verdict(lines) is not State.OK:
        return ", ".join(f"{counts[state]} {state}" for state in State if counts[state])
    told = f"Nothing to mend: {counts[State.OK]} checks passed"
    return f"{told}, {counts[State.SKIPPED]} could not be made" if counts[State.SKIPPED] else told


def verdict(lines: Sequence[Line]) -> State:
    """Return the worst that stands in the lines: FAILED, UNKNOWN, WARNING, or OK (a skipped look is no fault)."""
    states = {line.finding.state for line in lines}
    return next((state for state in (State.FAILED, State.UNKNOWN, State.WARNING) if state in states), State.OK)
