"""Each promise broken on purpose, in a history that is clean but for that: the checker must say so, and name it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.checker.check import Verdict, check
from tests.checker.facts import Claim, Commit, Effect, Fault, Kind, Outcome, Place, Run
from tests.checker.findings import Finding
from tests.checker.history import SOURCE, History, an_id, copy_of

SHORT, LONG, DLQ = (f"{SOURCE}.email.{end}" for end in ("retry.1s", "retry.2s", "dlq"))


def only(history: History, rule: str, event_id: str | None = None) -> Finding:
    """Check; return the one finding, which must be of this rule."""
    verdict = check(history.facts())
    assert [finding.rule for finding in verdict.findings] == [rule], [str(one) for one in verdict.findings]
    (finding,) = verdict.findings
    assert not verdict.clean
    assert event_id is None or finding.event_id == event_id
    return finding


def verdict_of(history: History) -> Verdict:
    return check(history.facts())


def rules(history: History) -> set[str]:
    return {finding.rule for finding in verdict_of(history).findings}


def test_a_clean_history_passes_and_its_books_balance(history: History) -> None:
    verdict = verdict_of(history)
    assert [str(finding) for finding in verdict.findings] == []
    assert verdict.clean
    email, inventory, audit = verdict.lines
    assert (email.all, email.applied, email.dead, email.pending, email.doubled) == (6, 5, 1, 0, 0)
    assert (inventory.all, inventory.applied) == (12, 12)
    assert (audit.all, audit.applied) == (12, 12)


@pytest.mark.parametrize("name", ["email", "inventory", "audit"])
def test_a_lost_event_is_named_with_its_story(history: History, name: str) -> None:
    lost = history.ids[6]
    history.without_effect(name, lost)
    history.change(name, claims=[])
    history.faults.append(
        Fault(Kind.KILL, "worker", history.records[SOURCE][6].at, history.records[SOURCE][6].at, name)
    )
    verdict = verdict_of(history)
    found = {finding.rule: finding for finding in verdict.findings}
    # It was committed, so that is wrong too.
    assert set(found) >= {"nothing lost", "effect before commit"}
    finding = found["nothing lost"]
    assert (finding.group, finding.event_id) == (name, lost)
    story = "\n".join(finding.story)
    assert f"published at {SOURCE}:0:6" in story
    assert f"{name} commits {SOURCE}:0 at 7" in story
    assert "FAULT kill of worker" in story
    line = next(line for line in verdict.lines if line.group == name)
    assert line.lost == 1
    assert not line.balances


def test_what_is_begun_and_has_no_end_is_lost(history: History) -> None:
    lost = history.ids[6]
    history.change(
        "email",
        effects=[
            replace(one, outcome=Outcome.BEGUN) if one.event_id == lost else one
            for one in history.groups["email"].effects
        ],
        claims=[],
    )
    assert "nothing lost" in rules(history)


def test_what_is_noted_as_sent_and_never_arrived_is_lost(history: History) -> None:
    mails = [replace(one, what="mail") for one in history.groups["email"].effects]
    history.change("email", mails=True, effects=[*history.groups["email"].effects, *mails[1:]])
    only(history, "nothing lost", mails[0].event_id)


def test_what_is_pending_is_not_lost_but_not_drained_either(history: History) -> None:
    last = history.ids[-1]
    history.without_effect("audit", last)
    history.change("audit", claims=[], committed={(SOURCE, 0): 11}, commits=history.groups["audit"].commits[:-1])
    history.audit.pop()
    verdict = check(replace(history.facts(), drained=False))
    assert verdict.findings == []
    assert verdict.lines[2].pending == 1
    only(history, "drained", last)


def test_an_audit_row_twice_is_found(history: History) -> None:
    history.audit.append(history.audit[3])
    only(history, "exactly once", history.ids[3])


def test_an_audit_row_with_another_hash_is_found(history: History) -> None:
    history.audit[3] = replace(history.audit[3], sha256=bytes(32))
    only(history, "exactly once", history.ids[3])


def test_an_audit_row_that_names_another_place_is_found(history: History) -> None:
    history.audit[3] = replace(history.audit[3], place=Place(SOURCE, 0, 4))
    only(history, "exactly once", history.ids[3])


def test_stock_reserved_twice_is_found(history: History) -> None:
    history.reservations[an_id(0), "TEA"] = 4
    only(history, "exactly once", history.ids[1])


def test_stock_not_given_back_is_found(history: History) -> None:
    history.reservations[an_id(1), "TEA"] = 2
    only(history, "exactly once", history.ids[3])


def test_reserved_pieces_that_no_order_holds_are_found(history: History) -> None:
    facts = history.facts()
    assert facts.stock is not None
    odd = replace(facts, stock=replace(facts.stock, reserved={"TEA": 9}))
    assert {finding.rule for finding in check(odd).findings} == {"exactly once"}


def test_an_inventory_effect_twice_is_wrong_whatever_happened(history: History) -> None:
    first = history.again("inventory", history.ids[5], 1.0)
    history.faults.append(Fault(Kind.FLUSH, "redis", first.at, first.at))
    history.faults.append(Fault(Kind.KILL, "worker", first.at, first.at, "inventory"))
    only(history, "exactly once", history.ids[5])


def test_a_mail_twice_without_a_reason_is_found(history: History) -> None:
    history.again("email", history.ids[6], 3.0)
    finding = only(history, "twice only in a window", history.ids[6])
    assert finding.group == "email"
    assert verdict_of(history).lines[0].doubled == 1


@pytest.mark.parametrize(
    ("kind", "role", "seconds"),
    [
        (Kind.KILL, "worker", 0.0),
        (Kind.FREEZE, "worker", 4.0),
        (Kind.FLUSH, "redis", 0.0),
        (Kind.AWAY, "redis", 4.0),
        (Kind.AWAY, "postgres", 1.0),
        (Kind.AWAY, "mail", 1.0),
    ],
)
def test_a_mail_twice_in_a_window_is_explained(history: History, kind: Kind, role: str, seconds: float) -> None:
    first = history.again("email", history.ids[6], 6.0)
    history.faults.append(Fault(kind, role, first.at + 0.01, first.at + 0.01 + seconds))
    verdict = verdict_of(history)
    assert verdict.findings == []
    assert verdict.lines[0].doubled == 1


def test_what_broke_long_before_a_second_mail_does_not_explain_it_once_the_first_was_noted(history: History) -> None:
    group = history.groups["email"]
    history.change("email", effects=[*group.effects, *(replace(one, what="mail") for one in group.effects)])
    twice = next(one for one in group.effects if one.event_id == history.ids[6])
    history.change("email", effects=[*history.groups["email"].effects, replace(twice, what="mail", at=twice.at + 60.0)])
    history.faults.append(Fault(Kind.FLUSH, "redis", twice.at + 20.0, twice.at + 20.0))
    only(history, "twice only in a window", twice.event_id)
    history.faults.append(Fault(Kind.FLUSH, "redis", twice.at + 55.0, twice.at + 55.0))
    assert verdict_of(history).clean


@pytest.mark.parametrize(
    ("kind", "role", "later", "seconds", "group"),
    [
        (Kind.KILL, "worker", 0.01, 0.0, "inventory"),
        (Kind.KILL, "worker", 30.0, 0.0, "email"),
        (Kind.KILL, "worker", -30.0, 0.0, "email"),
        (Kind.FREEZE, "worker", 0.01, 0.3, "email"),
        (Kind.STOP, "worker", 0.01, 0.0, "email"),
        (Kind.AWAY, "kafka", 0.01, 4.0, ""),
        (Kind.KILL, "relay", 0.01, 0.0, ""),
        (Kind.AWAY, "mail", 5.0, 0.5, ""),
    ],
)
def test_a_mail_twice_is_not_explained_by_what_is_no_window(
    history: History, kind: Kind, role: str, later: float, seconds: float, group: str
) -> None:
    first = history.again("email", history.ids[6], 4.0)
    began = first.at + later
    if role == "mail":
        began = first.at - 10.0
    history.faults.append(Fault(kind, role, began, began + seconds, group))
    only(history, "twice only in a window", history.ids[6])


def test_an_early_retry_is_found_by_the_run_that_the_handler_noted(history: History) -> None:
    runs = history.groups["email"].runs or ()
    history.change("email", runs=[replace(run, at=run.at - 0.5) if run.attempt == 3 else run for run in runs])
    only(history, "no early retry", history.ids[4])


def test_an_early_retry_is_found_by_the_times_of_its_copies(history: History) -> None:
    history.change("email", runs=None)
    history.records[LONG] = [replace(record, at=record.at - 0.2) for record in history.records[LONG]]
    only(history, "no early retry", history.ids[4])


def test_a_commit_that_goes_back_is_found(history: History) -> None:
    commits = list(history.groups["audit"].commits)
    commits.insert(6, Commit((SOURCE, 0), 3, commits[5].at + 0.01))
    history.change("audit", commits=commits)
    finding = only(history, "offsets", history.ids[2])
    assert "went back from 6 to 3" in finding.how
    assert f"audit commits {SOURCE}:0 at 3" in "\n".join(finding.story)


def test_a_late_request_explains_a_commit_that_goes_back_but_not_where_it_ends(history: History) -> None:
    commits = list(history.groups["audit"].commits)
    commits.insert(6, Commit((SOURCE, 0), 3, commits[5].at + 0.01))
    history.change("audit", commits=commits)
    history.faults.append(Fault(Kind.FREEZE, "kafka", commits[3].at, commits[4].at))
    assert verdict_of(history).clean
    history.change("audit", committed={(SOURCE, 0): 3})
    assert "offsets" in rules(history)


def test_a_commit_beyond_the_end_is_found(history: History) -> None:
    commits = list(history.groups["audit"].commits)
    # It ended there later: the end at that moment counts.
    commits[5] = replace(commits[5], offset=8)
    commits[6] = replace(commits[6], offset=8)
    history.change("audit", commits=commits)
    told = [finding.how for finding in verdict_of(history).findings if finding.rule == "offsets"]
    assert f"{SOURCE}:0 was committed at 8, its end was 6" in told


def test_a_position_that_was_set_back_is_found(history: History) -> None:
    history.change("audit", committed={(SOURCE, 0): 5})
    assert rules(history) == {"offsets", "drained"}


def test_a_commit_before_the_effect_is_found_even_without_a_crash(history: History) -> None:
    late = history.ids[5]
    history.change(
        "inventory",
        effects=[
            replace(one, at=one.at + 0.5) if one.event_id == late else one
            for one in history.groups["inventory"].effects
        ],
    )
    only(history, "effect before commit", late)


def test_a_commit_before_the_copy_is_found(history: History) -> None:
    history.records[SHORT] = [replace(one, at=one.at + 0.5) for one in history.records[SHORT]]
    history.change("email", runs=None)
    found = {(finding.rule, finding.event_id) for finding in verdict_of(history).findings}
    assert ("effect before commit", history.ids[4]) in found


@pytest.mark.parametrize("what", ["key", "value", "headers", "partition"])
def test_an_altered_copy_is_found(history: History, what: str) -> None:
    (copy,) = history.records[LONG]
    changes: dict[str, dict[str, Any]] = {
        "key": {"key": b"other"},
        "value": {"value": (copy.value or b"") + b" "},
        "headers": {"headers": copy.headers[1:]},
        "partition": {"place": copy.place._replace(partition=1)},
    }
    history.records[LONG] = [replace(copy, **changes[what])]
    history.change("email", runs=None, committed={**history.groups["email"].committed, (LONG, 1): 1}, commits=[])
    only(history, "byte-equal", history.ids[4])


def test_too_many_attempts_are_found(history: History) -> None:
    extra = Run(history.ids[4], 4, Place(LONG, 0, 0), history.records[SOURCE][4].at + 3.25)
    history.change("email", runs=[*(history.groups["email"].runs or ()), extra])
    only(history, "attempts", history.ids[4])


def test_an_attempt_that_was_not_counted_is_found_and_a_crash_explains_it(history: History) -> None:
    first = (history.groups["email"].runs or ())[2]
    history.change("email", runs=[*(history.groups["email"].runs or ()), replace(first, at=first.at + 5.0)])
    only(history, "attempts", first.event_id)
    history.faults.append(Fault(Kind.KILL, "worker", first.at + 0.1, first.at + 0.1, "email"))
    assert verdict_of(history).clean


def test_two_copies_of_one_hop_are_found_and_a_broker_that_was_away_explains_them(history: History) -> None:
    (copy,) = history.records[LONG]
    history.records[LONG].append(replace(copy, place=copy.place._replace(offset=1), at=copy.at + 1.0))
    history.change("email", committed={**history.groups["email"].committed, (LONG, 0): 2})
    only(history, "attempts", history.ids[4])
    history.faults.append(Fault(Kind.AWAY, "kafka", copy.at, copy.at + 0.5))
    assert verdict_of(history).clean


def test_a_death_that_nothing_asked_for_is_found(history: History) -> None:
    history.change("email", may_die=frozenset())
    only(history, "nothing flushed into the DLQ", history.ids[4])


def test_two_identities_of_one_death_are_found(history: History) -> None:
    source = history.records[SOURCE][4]
    told = {"dlq.id": "d2", "__dlq.errors.disposition": "EXHAUSTED"}
    history.records[DLQ].append(copy_of(source, DLQ, source.at + 3.4, offset=1, attempts=3, told=told))
    history.faults.append(Fault(Kind.AWAY, "kafka", source.at + 3.3, source.at + 3.4))
    only(history, "one dlq.id per death", history.ids[4])


def test_what_is_applied_and_dead_is_found(history: History) -> None:
    history.change(
        "email",
        effects=[
            *history.groups["email"].effects,
            Effect(history.ids[4], Outcome.APPLIED, history.records[SOURCE][4].at + 9.0),
        ],
    )
    only(history, "one end", history.ids[4])


def test_an_effect_of_an_event_that_was_never_published_is_found(history: History) -> None:
    history.change("email", effects=[*history.groups["email"].effects, Effect(an_id(9), Outcome.APPLIED, 1.0)])
    only(history, "no invention", an_id(9))


def test_a_promise_that_was_never_stored_is_found(history: History) -> None:
    facts = history.facts()
    broken = replace(facts, outbox=history.outbox[:-1])
    assert {finding.rule for finding in check(broken).findings} == {"acknowledged", "as stored"}


def test_a_row_that_never_reached_the_topic_is_found(history: History) -> None:
    extra = replace(history.outbox[0], event_id=an_id(8), version=9)
    history.outbox.append(extra)
    assert rules(history) == {"acknowledged"}


def test_a_reported_record_that_is_not_there_is_found(history: History) -> None:
    broken = replace(history.facts(), reported=[Place(SOURCE, 0, 99)])
    (finding,) = check(broken).findings
    assert finding.rule == "acknowledged"


def test_versions_out_of_order_are_found(history: History) -> None:
    first, second = history.events[Place(SOURCE, 0, 0)], history.events[Place(SOURCE, 0, 1)]
    history.events[Place(SOURCE, 0, 0)] = replace(first, order_version=2)
    history.events[Place(SOURCE, 0, 1)] = replace(second, order_version=1)
    assert "version order" in rules(history)


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (Claim(an_id(100), "C", -1), "never expires"),
        (Claim(an_id(104), "C", 9), "has no effect"),
        (Claim(an_id(100), "P", 9), "still claimed"),
    ],
)
def test_a_claim_that_is_wrong_in_the_end_is_found(history: History, claim: Claim, told: str) -> None:
    history.change("email", claims=[claim])
    assert told in only(history, "claims", claim.event_id).how
