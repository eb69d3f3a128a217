"""Committed offsets: never backwards, never beyond the end, never past a record that is not resolved (G5)."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from tests.checker.copies import CLOCK_SECONDS
from tests.checker.facts import Commit, Partition, Record
from tests.checker.findings import Finding
from tests.checker.log import Copy, GroupLog
from tests.checker.windows import Windows


def check(log: GroupLog) -> Iterator[Finding]:
    history: dict[Partition, list[Commit]] = defaultdict(list)
    for commit in log.group.commits:
        history[commit.partition].append(commit)
    resolved = _Resolved(log)
    windows = Windows(log.facts.faults, log.group.name, log.group.lease)
    for (topic, number), commits in history.items():
        records = sorted(
            (record for record in log.facts.records.get(topic, ()) if record.place.partition == number),
            key=lambda record: record.place.offset,
        )
        times = [record.at for record in records]
        offsets = [record.place.offset for record in records]
        highest = 0
        for commit in commits:
            where = f"{topic}:{number}"
            if commit.offset < highest:
                # The broker fences nothing: an old request of the group's own, read late, sets it back until the next.
                if windows.kept_back(commit.at) is not None:
                    continue
                yield _finding(log, records, commit, "offsets", f"{where} went back from {highest} to {commit.offset}")
                continue
            there = bisect_right(times, commit.at + CLOCK_SECONDS)
            end = offsets[there - 1] + 1 if there else 0
            if commit.offset > end:
                how = f"{where} was committed at {commit.offset}, its end was {end}"
                yield _finding(log, records, commit, "offsets", how)
            for record in records[bisect_right(offsets, highest - 1) : bisect_right(offsets, commit.offset - 1)]:
                if not resolved.by(record, commit.at):
                    event_id = resolved.event_id(record)
                    how = f"was committed at {commit.offset} before its record was resolved"
                    yield Finding("effect before commit", log.group.name, event_id, how, record.place)
            highest = commit.offset
        final = log.group.committed.get((topic, number))
        if final is not None and final < highest:
            how = f"{topic}:{number} stands at {final}, {highest} was committed before"
            yield _finding(log, records, commits[-1], "offsets", how)


def _finding(log: GroupLog, records: list[Record], commit: Commit, rule: str, how: str) -> Finding:
    """Name the event of the last record that the commit passes: its story has the commits around it."""
    passed = [record for record in records if record.place.offset < commit.offset]
    place = passed[-1].place if passed else None
    event = log.facts.events.get(place) if place else None
    return Finding(rule, log.group.name, event.event_id if event else "", how, place)


class _Resolved:
    """Says whether a record needed nothing more at some time."""

    def __init__(self, log: GroupLog) -> None:
        self._log = log
        self._copies = {copy.record.place: copy for copy in log.copies}

    def event_id(self, record: Record) -> str:
        copy = self._copies.get(record.place)
        if copy is not None:
            return self._log.event_of(copy)
        event = self._log.facts.events.get(record.place)
        return event.event_id if event else ""

    def by(self, record: Record, at: float) -> bool:
        """Its effect was there, or a later copy of it; or it is of a type that the group does not handle."""
        at += CLOCK_SECONDS
        copy = self._copies.get(record.place)
        origin = copy.origin if copy else record.place
        event = self._log.facts.events.get(origin)
        if event is not None and event.type_name not in self._log.group.handles:
            return True
        event_id = event.event_id if event else ""
        if self._log.ended.get(event_id, float("inf")) <= at:
            return True
        hop = copy.hop if copy else (-1, 0)
        return any(
            other.record.at <= at and _later(other, hop) and (event_id or other.origin == origin)
            for other in self._log.copies_of.get(event_id, ())
        )


def _later(copy: Copy, hop: tuple[int, int]) -> bool:
    return copy.dead or copy.hop > hop
