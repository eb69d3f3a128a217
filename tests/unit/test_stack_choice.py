"""Which stack the tests use: containers where an engine answers, else the local one, else a skip, which CI refuses."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from orderflow.core.errors import Misconfigured
from orderflow.ops.stack.stack import LocalStack
from tests.stacks import choice, containers


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    monkeypatch.delenv("CI", raising=False)


# Both are caught, or a wrong skip would skip the test that should tell.
EITHER = (pytest.skip.Exception, pytest.fail.Exception)


def refuse(*_: object) -> NoReturn:
    raise containers.NoContainers("no image can be pulled")


def test_without_an_engine_the_local_stack_is_used_and_nothing_is_said(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="error"), choice.containers(None, tmp_path) as running:
        assert running is None


def test_an_engine_without_the_images_gives_way_to_the_local_stack_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(containers, "find_engine", lambda: None)
    monkeypatch.setattr(containers, "ContainerStack", refuse)

    with (
        pytest.warns(UserWarning, match="no image can be pulled; using the local stack"),
        choice.containers(None, tmp_path) as running,
    ):
        assert running is None


def test_where_one_answers_containers_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Running:
        def __init__(self, _: Path) -> None: ...
        def __enter__(self) -> str:
            return "containers"

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(containers, "find_engine", lambda: None)
    monkeypatch.setattr(containers, "ContainerStack", Running)

    for chosen in (None, "docker"):
        with choice.containers(chosen, tmp_path) as running:
            assert str(running) == "containers"


@pytest.mark.parametrize("chosen", ["local", "somewhere/.orderflow"])
def test_no_engine_is_asked_when_something_else_was_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: str
) -> None:
    monkeypatch.setattr(containers, "find_engine", lambda: pytest.fail("it was asked"))

    with choice.containers(chosen, tmp_path) as running:
        assert running is None


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_what_was_asked_for_and_is_not_there_skips_at_home_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)

    with pytest.raises(EITHER, match="no Docker engine answers") as asked, choice.containers("docker", tmp_path):
        pass
    with pytest.raises(EITHER, match="there is no stack in") as joined, choice.local(str(tmp_path / "no"), tmp_path):
        pass
    assert [asked.type, joined.type] == [outcome, outcome]


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_local_stack_that_does_not_start_skips_at_home_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    def broken(_: LocalStack) -> NoReturn:
        raise Misconfigured("no Redis server for this machine")

    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(LocalStack, "__enter__", broken)

    with pytest.raises(EITHER, match="no Redis server") as told, choice.local("local", tmp_path):
        pass
    assert told.type is outcome


def test_an_engine_on_another_machine_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        def __init__(self, **_: object) -> None:
            self.client = SimpleNamespace(ping=lambda: True, close=lambda: None)

        def host(self) -> str:
            return "build.example"

    monkeypatch.setattr(containers, "DockerClient", Elsewhere)

    with pytest.raises(containers.NoContainers, match=r"build\.example"):
        containers.find_engine()


def test_a_worker_of_xdist_is_told_what_was_chosen(pytestconfig: pytest.Config) -> None:
    hook = pytestconfig.pluginmanager.hook.pytest_configure_node
    ours = next(found for found in hook.get_hookimpls() if "tests" in str(found.plugin_name)).function
    node = SimpleNamespace(workerinput={}, config=pytestconfig)

    ours(node)

    assert choice.VARIABLE in node.workerinput
