import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from consumers.runtime import loading
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import load

GROUP = """
from consumers.runtime.group import APPLIED, ConsumerGroup, DlqPolicy
group = ConsumerGroup("{name}", owner="team-a", slo_seconds=60,
    dlq=DlqPolicy(alert="a", replay="r", delete_when={{APPLIED}}, keep_days=1))
other = 1
"""

Write = Callable[[str, str], None]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return a function that writes a module into the working folder, which is not on the path."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_a_group_of_another_team_is_loaded_from_the_working_folder(module: Write) -> None:
    module("team_a", GROUP.format(name="billing"))

    assert loading.load_group("team_a:group").name == "billing"
    assert loading.group_name("team_a:group") == "billing"


def test_the_working_folder_never_shadows_what_is_installed(module: Write) -> None:
    module("json", "raise SystemExit('the wrong json')")
    module("team_b", "import json\n" + GROUP.format(name="billing"))
    del sys.modules["json"]

    assert loading.load_group("team_b:group").name == "billing"


def test_the_name_of_a_built_in_group_is_known_without_importing_it() -> None:
    assert loading.group_names(load({})) == ["email", "inventory", "audit"]


@pytest.mark.parametrize("spec", ["emial", "a b", "module:", ":group", "module:attribute:more", "../x:y"])
def test_what_is_neither_a_name_nor_a_path_is_refused_with_the_names(spec: str) -> None:
    with pytest.raises(Misconfigured, match="it is one of email, inventory, audit, or module:attribute"):
        loading.load_group(spec)


def test_a_missing_module_says_where_to_run(module: Write) -> None:
    del module
    with pytest.raises(Misconfigured, match="no module nowhere_to_be_found: run this in the folder that holds it"):
        loading.load_group("nowhere_to_be_found:group")


def test_a_missing_attribute_and_a_wrong_one_are_told_apart(module: Write) -> None:
    module("team_c", GROUP.format(name="billing"))

    with pytest.raises(Misconfigured, match="module team_c has no such attribute"):
        loading.load_group("team_c:grupo")
    with pytest.raises(Misconfigured, match="module team_c has a int there, no ConsumerGroup"):
        loading.load_group("team_c:other")


def test_a_module_that_fails_says_why_and_where(module: Write) -> None:
    module("team_d", "x = 1\nraise ValueError('no such thing')")
    module("team_e", "import surely_not_installed")

    with pytest.raises(Misconfigured, match=r"team_d cannot be imported: ValueError: no such thing \(.*team_d\.py:2\)"):
        loading.load_group("team_d:group")
    with pytest.raises(Misconfigured, match=r"team_e cannot be imported: ModuleNotFoundError: .*surely_not_installed"):
        loading.load_group("team_e:group")


def test_a_group_that_nobody_answers_for_says_so_itself(module: Write) -> None:
    module("team_f", GROUP.format(name="billing").replace('owner="team-a"', 'owner=""'))

    with pytest.raises(Misconfigured, match="group billing has no owner"):
        loading.load_group("team_f:group")


def test_two_groups_of_one_name_are_refused(module: Write) -> None:
    module("team_g", GROUP.format(name="email"))
    settings = load({"ORDERFLOW_GROUPS": "email,team_g:group"})

    with pytest.raises(Misconfigured, match="ORDERFLOW_GROUPS has two groups of the name email"):
        loading.group_names(settings)


def test_a_configured_group_is_found_by_its_name_and_listed_when_another_is_asked_for(module: Write) -> None:
    module("team_h", GROUP.format(name="billing"))
    configured = ["email", "nowhere_to_be_found:group", "team_h:group"]

    assert loading.load_group("billing", configured) is loading.load_group("team_h:group")
    assert loading.group_name("billing", configured) == "billing"
    assert loading.is_listed("billing", configured)
    assert loading.is_listed("team_h:group", configured)
    assert not loading.is_listed("team_i:group", configured)
    assert not loading.is_listed("audit", configured)
    with pytest.raises(Misconfigured, match="one of email, inventory, audit, team_h:group, or module:attribute"):
        loading.load_group("biling", ["email", "team_h:group"])


def test_a_configured_group_that_cannot_be_loaded_is_told_when_no_other_has_the_name(module: Write) -> None:
    del module
    with pytest.raises(Misconfigured, match="no module nowhere_to_be_found"):
        loading.load_group("billing", ["nowhere_to_be_found:group"])
