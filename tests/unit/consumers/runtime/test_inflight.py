"""In flight: what is claimed, and who waits behind it."""

from collections.abc import Callable

from consumers.runtime.inflight import InFlight
from consumers.runtime.record import Record

MakeRecord = Callable[..., Record]


def test_a_claim_is_in_hand_until_it_is_removed(make_record: MakeRecord) -> None:
    in_flight = InFlight()
    first, second = make_record(token="a"), make_record(token="b")
    in_flight.add(first)
    in_flight.add(second)
    assert (len(in_flight), "a" in in_flight, set(in_flight)) == (2, True, {first, second})
    assert in_flight.remove(first) == []
    assert (len(in_flight), "a" in in_flight, set(in_flight)) == (1, False, {second})


def test_who_waits_behind_a_claim_is_handed_back_with_it_once(make_record: MakeRecord) -> None:
    in_flight = InFlight()
    owner, behind, later = make_record(token="a"), make_record(), make_record()
    in_flight.add(owner)
    in_flight.chain(behind, "a")
    in_flight.chain(later, "a")
    assert in_flight.remove(owner) == [behind, later]
    assert in_flight.remove(owner) == []


def test_removing_what_was_never_added_changes_nothing(make_record: MakeRecord) -> None:
    in_flight = InFlight()
    in_flight.add(make_record(token="a"))
    assert in_flight.remove(make_record(token="")) == []
    assert len(in_flight) == 1


def test_iteration_bears_removals(make_record: MakeRecord) -> None:
    in_flight = InFlight()
    for token in "abc":
        in_flight.add(make_record(token=token))
    for record in in_flight:
        in_flight.remove(record)
    assert len(in_flight) == 0
