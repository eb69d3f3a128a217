import importlib
from collections.abc import Callable
from typing import Never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.core.errors import OrderflowError
from retry.errors import Reject, Retry
from retry.failure import MESSAGE_BYTES, STACK_BYTES, Failure, cut
from retry.policy import Stage
from schemas.errors import NotFramed

SECRET = "ada@example.com"


def throw(error: BaseException, cause: BaseException | None = None, *, hidden: bool = False) -> Never:
    if hidden:
        raise error from None
    if cause is not None:
        raise error from cause
    raise error


def caught(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """The error as the worker meets it: with a traceback."""
    with pytest.raises(type(error)) as raised:
        throw(error, cause)
    return raised.value


def failure(error: BaseException, stage: Stage = Stage.HANDLE) -> Failure:
    return Failure.of(error, stage=stage, attempts=1, at_ms=1)


class TeamsOwn(Exception):
    """Not ours."""


class TeamsReject(Reject):
    """Ours by inheritance: whoever raises it knows that its message travels."""


@pytest.mark.parametrize("error", [ValueError(SECRET), TeamsOwn(SECRET), KeyError(SECRET), OSError(5, SECRET)])
def test_a_foreign_error_s_message_stays_here(error: Exception) -> None:
    told = failure(caught(error))
    assert told.message == ""
    assert SECRET not in repr(told)


@pytest.mark.parametrize("error", [Retry("slow"), TeamsReject("slow"), OrderflowError("slow"), NotFramed("slow")])
def test_our_own_error_s_message_travels(error: Exception) -> None:
    assert failure(caught(error)).message == "slow"


def test_a_cause_is_named_without_its_message() -> None:
    told = failure(caught(Retry("again"), caught(ConnectionResetError(SECRET))))
    assert "caused by ConnectionResetError" in told.stack
    assert SECRET not in told.stack


def hides_its_cause() -> Never:
    try:
        throw(ConnectionResetError(SECRET))
    except ConnectionResetError:
        throw(Retry("again"), hidden=True)


def test_a_hidden_cause_stays_hidden() -> None:
    with pytest.raises(Retry) as raised:
        hides_its_cause()
    assert raised.value.__context__ is not None
    assert "caused by" not in failure(raised.value).stack


def test_causes_in_a_circle_end() -> None:
    first, second = caught(ValueError()), caught(TypeError())
    first.__cause__, second.__cause__ = second, first
    assert failure(first).stack.count("caused by") == 1


def inner() -> Never:
    raise RuntimeError


def test_the_stack_is_file_line_and_function_innermost_first_without_this_machine_s_folders() -> None:
    with pytest.raises(RuntimeError) as raised:
        inner()
    first, second = failure(raised.value).stack.splitlines()
    assert first.endswith(" inner")
    assert second.endswith(" test_the_stack_is_file_line_and_function_innermost_first_without_this_machine_s_folders")
    for line in (first, second):
        file, _, rest = line.partition(":")
        assert file.endswith("test_failure.py")
        assert not file.startswith("/")
        assert rest.split(" ")[0].isdigit()


def test_a_library_s_frame_is_named_from_its_package_on() -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module("no_such_module_anywhere")
    assert "\nimportlib/__init__.py:" in failure(raised.value).stack


def recurse() -> Never:
    recurse()


def test_limits_hold_for_the_largest_error() -> None:
    with pytest.raises(RecursionError) as raised:
        recurse()
    told = failure(raised.value)
    assert 0 < len(told.stack.encode()) <= STACK_BYTES
    assert all(":" in line for line in told.stack.splitlines())
    long = failure(caught(Reject("é" * 100_000)))
    assert MESSAGE_BYTES - 1 <= len(long.message.encode()) <= MESSAGE_BYTES
    huge = type("N" * 10_000, (Exception,), {})
    assert len(failure(huge()).class_name.encode()) == 256


class Spiteful(Reject):
    def __str__(self) -> str:
        raise RuntimeError("not even my name")


def test_an_error_that_cannot_even_be_printed_is_told_by_its_class() -> None:
    told = failure(Spiteful())
    assert told.message == ""
    assert told.class_name.endswith("Spiteful")


def test_a_cause_that_cannot_be_asked_for_its_truth_is_told_like_any_other() -> None:
    class Unruly(Exception):
        def __bool__(self) -> bool:
            raise RuntimeError

    assert "Unruly" in failure(caught(ValueError(), cause=Unruly())).stack


def test_an_error_that_was_never_raised_has_no_stack() -> None:
    assert failure(Reject("never raised")).stack == ""


def fails_here(message: str) -> Never:
    raise ValueError(message)


def fails_there(message: str) -> Never:
    raise ValueError(message)


def raised_by(function: Callable[[str], Never], message: str = "") -> BaseException:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - whose it is, not what it says
        function(message)
    return raised.value


def test_equal_causes_share_a_fingerprint_and_others_do_not() -> None:
    here = failure(raised_by(fails_here, "one order")).fingerprint
    assert here == failure(raised_by(fails_here, "another order")).fingerprint
    assert here != failure(raised_by(fails_there)).fingerprint
    assert here != failure(raised_by(fails_here), Stage.DECODE).fingerprint
    assert failure(Reject()).fingerprint != failure(Retry()).fingerprint


def test_smaller_drops_the_stack_then_the_message_then_nothing_more() -> None:
    told = failure(caught(Reject("why")))
    without_stack = told.smaller()
    assert without_stack is not None
    assert (without_stack.stack, without_stack.message) == ("", "why")
    without_both = without_stack.smaller()
    assert without_both is not None
    assert (without_both.message, without_both.class_name) == ("", told.class_name)
    assert without_both.smaller() is None


@given(st.text(alphabet=st.characters(codec=None)), st.integers(0, 40))
def test_text_is_cut_between_characters(text: str, most: int) -> None:
    short = cut(text, most)
    assert len(short.encode()) <= most
    assert text.encode(errors="replace").decode().startswith(short)
