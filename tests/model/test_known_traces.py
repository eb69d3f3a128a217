"""Short traces, each of which has broken a promise when one rule was left out of the code."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model.system import System
from tests.model.walk import Trace, again
from tests.model.world import World

KNOWN = tomllib.loads(Path(__file__).with_name("known_traces.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_trace_breaks_no_promise(name: str, open_world: Callable[[System], World]) -> None:
    again(Trace.from_json(KNOWN[name]["trace"]), open_world)
