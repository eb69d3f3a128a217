import pytest

from consumers.runtime.complaints import Complaints
from orderflow.core.holds import HoldReason
from retry.errors import Outage


def test_each_cause_is_told_once_in_a_while_and_foreign_words_never(capsys: pytest.CaptureFixture[str]) -> None:
    complaints = Complaints()

    for _ in range(1_000):
        complaints.held(HoldReason.OUTAGE, Outage("the mail server refuses our login (535)"))
        complaints.held(HoldReason.OUTAGE, ConnectionError("kim@shop.example is not reachable"))

    said = "".join(capsys.readouterr())
    assert said.count("refuses our login (535)") == 1
    assert said.count("ConnectionError") == 1
    assert "kim@" not in said
