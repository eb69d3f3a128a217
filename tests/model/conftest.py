"""Worlds for these tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.model.system import System
from tests.model.world import World
from tests.model.worlds import worlds


@pytest.fixture(scope="module")
def open_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[System], World]]:
    """Make a new world on an empty Redis."""
    with worlds(tmp_path_factory.mktemp("model")) as open_one:
        yield open_one
