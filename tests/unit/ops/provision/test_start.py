from datetime import UTC, datetime

import pytest

from orderflow.ops.provision.positions import parse_start


def test_words_and_moments_are_understood() -> None:
    assert parse_start("earliest") == "earliest"
    assert parse_start("now") == "now"
    assert parse_start("2026-01-31T08:00Z") == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert parse_start("2026-01-31T08:00:00.250+02:00") == datetime(2026, 1, 31, 6, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "latest", "EARLIEST", "2026-01-31", "2026-01-31T08:00", "1767225600", "-5"])
def test_what_could_be_meant_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_start(text)
