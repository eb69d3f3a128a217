"""When a retry is due, whatever the clocks say."""

from hypothesis import given
from hypothesis import strategies as st

from consumers.runtime.brokerclock import BrokerClock


@given(
    st.integers(-10_000_000, 10_000_000),
    st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 20_000)), min_size=1, max_size=20),
    st.integers(0, 30_000),
)
def test_no_retry_runs_before_its_time_on_the_brokers_clock(
    ahead: int, arrivals: list[tuple[int, int]], delay: int
) -> None:
    clock = BrokerClock()
    for appended, travel in sorted(arrivals):
        ours = appended + travel + ahead
        clock.arrived(appended, ours)
        assert clock.due(appended, delay) - ahead >= appended + delay


def test_one_quick_delivery_makes_later_ones_precise() -> None:
    clock = BrokerClock()
    clock.arrived(1_000, 501_003)
    clock.arrived(2_000, 509_000)  # this one was read seven seconds late
    assert clock.due(2_000, 5_000) == 2_000 + 5_000 + 500_003


def test_a_bound_is_forgotten_after_two_windows_since_clocks_drift() -> None:
    clock = BrokerClock()
    clock.arrived(0, 0)
    clock.arrived(300_000, 300_040)
    assert clock.due(300_000, 1_000) == 301_000
    clock.arrived(600_000, 600_080)
    assert clock.due(600_000, 1_000) == 601_040
