"""What a role may do, and where the secrets are."""

import re

import pytest

from tests.unit.compose.composefile import PROJECT, ROLES, SECRETS, SERVICES, TEXT, VARIABLE, filled_in


@pytest.mark.parametrize("service", sorted(ROLES))
def test_a_role_can_write_nowhere_but_in_tmp_and_has_no_privileges(service: str) -> None:
    entry = SERVICES[service]

    assert entry["read_only"] is True
    assert entry["tmpfs"] == ["/tmp"]
    assert entry["cap_drop"] == ["ALL"]
    assert entry["security_opt"] == ["no-new-privileges:true"]
    assert not {"cap_add", "privileged", "user", "volumes"} & set(entry)


def test_no_secret_stands_in_the_file_and_none_has_a_default() -> None:
    asked = {(found["name"], found["kind"]) for found in VARIABLE.finditer(TEXT)}

    assert {name for name, kind in asked if kind != "-"} == set(SECRETS)
    assert not {name for name, kind in asked if kind != "?"} & set(SECRETS)
    assert not re.findall(r"(?i)(?:password|auth|secret)\w*: (?!\$)\S", TEXT)
    for name in SECRETS:
        with pytest.raises(AssertionError, match=name):
            filled_in(TEXT, {other: value for other, value in SECRETS.items() if other != name})
    assert "/.env" in (PROJECT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_variables_explained_at_the_top_are_those_of_the_file() -> None:
    top, body = TEXT.split("\nname: ", 1)

    assert set(re.findall(r"[A-Z]+(?:_[A-Z]+)*_(?:PORT|PASSWORD)\b", top)) == {
        found["name"] for found in VARIABLE.finditer(body)
    }
