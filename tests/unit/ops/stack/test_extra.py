"""A machine without the extra `local`."""

import pytest
from typer.testing import CliRunner

from orderflow.cli import stack as stack_commands
from orderflow.core.errors import Misconfigured
from orderflow.ops.stack import extra


def test_a_missing_extra_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "jgo" else object())
    with pytest.raises(Misconfigured, match=r"needs jgo; .*pip install 'orderflow\[local\]'"):
        extra.require_extra()


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_every_command_of_the_stack_says_so(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda _: None)
    assert isinstance(CliRunner().invoke(stack_commands.app, [command]).exception, Misconfigured)
