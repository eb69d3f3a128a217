"""What the tests of the checker share."""

import pytest

from tests.checker.history import History, clean


@pytest.fixture
def history() -> History:
    """A clean one, to break."""
    return clean()
