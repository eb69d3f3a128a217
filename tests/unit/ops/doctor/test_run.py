import threading
from collections.abc import Iterator

import pytest

from orderflow.cli.doctor import show
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.ops.doctor.checks import CHECKS, Check
from orderflow.ops.doctor.finding import Finding, State, failed, ok, skipped, warning
from orderflow.ops.doctor.run import Line, at_once, examine, summary, verdict


def states(checks: list[Check], seconds: float = 30.0) -> dict[str, State]:
    return {line.check: line.finding.state for line in examine(Settings(), checks, seconds=seconds)}


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds back a look until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_every_need_is_another_check_that_stands_before() -> None:
    names = [check.name for check in CHECKS]

    assert len(set(names)) == len(names)
    for number, check in enumerate(CHECKS):
        assert check.needs is None or check.needs in names[:number]


def test_what_needs_a_failed_check_is_skipped_and_so_is_what_needs_that() -> None:
    checks = [
        Check("a", lambda _: failed("broken")),
        Check("b", lambda _: pytest.fail("looked"), "a"),
        Check("c", lambda _: pytest.fail("looked"), "b"),
        Check("d", lambda _: warning("odd", "look")),
        Check("e", lambda _: ok("fine"), "d"),
    ]

    assert states(checks) == {
        "a": State.FAILED,
        "b": State.SKIPPED,
        "c": State.SKIPPED,
        "d": State.WARNING,
        "e": State.OK,
    }


def test_looks_run_side_by_side(gate: threading.Event) -> None:
    def waits(_: Settings) -> Finding:
        return ok("both") if gate.wait(30) else failed("alone")

    def frees(_: Settings) -> Finding:
        gate.set()
        return ok("freed")

    assert states([Check("waits", waits), Check("frees", frees)]) == {"waits": State.OK, "frees": State.OK}


def test_one_that_hangs_is_unknown_and_hides_no_other(gate: threading.Event) -> None:
    def hangs(_: Settings) -> Finding:
        gate.wait()
        return ok("late")

    checks = [Check("hangs", hangs), Check("after", lambda _: ok("never"), "hangs"), Check("other", lambda _: ok("a"))]

    assert states(checks, seconds=0.5) == {"hangs": State.UNKNOWN, "after": State.UNKNOWN, "other": State.OK}


def test_an_error_of_ours_is_its_sentence_and_any_other_is_unknown() -> None:
    def refuses(_: Settings) -> Finding:
        raise Misconfigured("set this")

    def breaks(_: Settings) -> Finding:
        raise ZeroDivisionError("bug")

    lines = examine(Settings(), [Check("refuses", refuses), Check("breaks", breaks)])

    assert [(line.finding.state, line.finding.what) for line in lines] == [
        (State.FAILED, "set this"),
        (State.UNKNOWN, "ZeroDivisionError: bug"),
    ]


def test_the_verdict_is_the_worst() -> None:
    lines = [Line("a", ok("")), Line("b", skipped("")), Line("c", warning("", ""))]
    assert verdict(lines[:2]) is State.OK
    assert verdict(lines) is State.WARNING
    assert verdict([*lines, Line("d", Finding(State.UNKNOWN, ""))]) is State.UNKNOWN
    assert verdict([Line("d", Finding(State.UNKNOWN, "")), Line("e", failed(""))]) is State.FAILED


def test_the_last_sentence_says_that_all_is_well_or_counts() -> None:
    well = [Line("a", ok("")), Line("b", ok(""))]
    assert summary(well) == "Nothing to mend: 2 checks passed"
    assert summary([*well, Line("c", skipped(""))]) == "Nothing to mend: 2 checks passed, 1 could not be made"
    assert summary([*well, Line("c", skipped("")), Line("d", warning("", ""))]) == "2 ok, 1 skipped, 1 warning"
    assert summary([*well, Line("e", failed(""))]) == "2 ok, 1 failed"


def test_missing_tables_and_topics_are_mended_by_one_command() -> None:
    tables = Line("tables", failed("none", "`orderflow db apply`"))
    topics = Line("topics", failed("none", "`orderflow topics apply`"))
    other = Line("disk", warning("full", "make room"))

    mends = [line.finding.mend for line in at_once([tables, topics, other])]

    assert mends == ["`orderflow provision` makes tables and topics"] * 2 + ["make room"]
    assert at_once([tables, other]) == [tables, other]
    assert at_once([topics, other]) == [topics, other]


def test_people_are_told_a_mend_once(capsys: pytest.CaptureFixture[str]) -> None:
    show(
        [Line("tables", failed("none", "provide")), Line("topics", failed("none", "provide")), Line("disk", ok("big"))]
    )

    shown = capsys.readouterr().out
    assert shown.count("provide") == 1
    assert shown.endswith("\n1 ok, 2 failed\n")
