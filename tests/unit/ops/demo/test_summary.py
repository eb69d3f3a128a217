import io

import pytest
from rich.console import Console

from orderflow.ops.demo import summary
from orderflow.ops.demo.accounting import Books, Difference, Line
from orderflow.ops.demo.odd import Fate
from orderflow.ops.demo.run import Result

LINE = Line("email", published=352, applied=199, stale=0, skipped=151, dead=2, pending=0)
FATE = Fate("an order of an unknown customer", "dead letter PERMANENT in email", right=True)


def result(*differences: Difference, fate: Fate = FATE) -> Result:
    return Result(200, Books([LINE], 199, 199, differences), [fate], 31.4, None)


def shown(told: Result) -> str:
    file = io.StringIO()
    summary.show(told, Console(file=file, width=80))
    return file.getvalue()


def test_a_right_run_says_so() -> None:
    told = shown(result())
    assert "✓ They balance" in told
    assert "✓  an order of an unknown customer  dead letter PERMANENT in email" in told
    assert "✗" not in told
    assert not any(line.endswith(" ") for line in told.splitlines())


@pytest.mark.parametrize(
    ("first", "told"), [(None, "orderflow up"), ("source .venv/bin/activate", "source .venv/bin/activate")]
)
def test_what_is_next_works_in_a_plain_shell(first: str | None, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "activation", lambda: first)
    lines = shown(result()).splitlines()
    after = lines[lines.index("Next") + 1 :]
    assert after[0].startswith(f"{told}  ")
    assert any(line.startswith("orderflow mail ls  ") for line in after)


def test_differences_are_listed_and_a_long_list_is_cut() -> None:
    differences = [Difference("audit", f"event {number}", "is lost") for number in range(25)]
    told = shown(result(*differences))
    assert "✗ They do not balance: 25 differences" in told
    assert "audit: event 19 is lost" in told
    assert "event 20" not in told
    assert "and 5 more (--json lists all)" in told
    assert len(summary.as_json(result(*differences))["differences"]) == 25


@pytest.mark.parametrize(
    "wrong",
    [result(Difference("audit", "event 1", "is lost")), result(fate=Fate("garbage", "no dead letter", right=False))],
)
def test_a_difference_or_a_wrong_fate_makes_the_run_wrong(wrong: Result) -> None:
    assert result().right
    assert not wrong.right
    assert "✗" in shown(wrong)
    assert summary.as_json(wrong)["right"] is False
