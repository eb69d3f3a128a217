"""The commands as a person runs them: what they print, and their exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orderflow.core.settings import Settings

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def orderflow(settings: Settings, tmp_path: Path) -> Run:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ORDERFLOW_")} | {
        "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "ORDERFLOW_KAFKA__SOURCE_TOPIC": settings.kafka.source_topic,
        "ORDERFLOW_KAFKA__PARTITIONS": "2",
        "ORDERFLOW_DATABASE__DSN": settings.database.dsn.get_secret_value(),
        "ORDERFLOW_GROUPS": "email,audit",
    }

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "orderflow", *arguments]
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.mark.long
def test_the_path_from_nothing_to_groups_that_may_start(orderflow: Run, settings: Settings) -> None:
    assert orderflow("topics", "check").returncode == 78
    assert orderflow("db", "check").returncode == 78

    provisioned = json.loads(orderflow("provision", "--json").stdout)
    assert provisioned["groups"] == ["email", "audit"]

    assert orderflow("topics", "check").returncode == 0
    assert json.loads(orderflow("db", "check", "--json").stdout) == []
    listed = json.loads(orderflow("groups", "ls", "--json").stdout)
    assert [(one["group"], one["state"], one["committed"]) for one in listed] == [
        ("email", "EMPTY", {"0": 0, "1": 0}),
        ("audit", "EMPTY", {"0": 0, "1": 0}),
    ]
    table = orderflow("groups", "ls").stdout
    assert f"{settings.kafka.source_topic}.email" in table
    assert "2 of 2 partitions" in table


def test_a_refusal_is_one_sentence_and_exit_code_5(orderflow: Run) -> None:
    orderflow("provision")

    refused = orderflow("groups", "init", "email", "--from", "now")

    assert refused.returncode == 5
    assert refused.stderr.startswith("orderflow: group email has positions on 2 of 2 partitions")
    assert refused.stderr.count("\n") == 1
    moved = orderflow("groups", "init", "email", "--from", "now", "--overwrite", "--json")
    assert json.loads(moved.stdout)["offsets"] == {"0": 0, "1": 0}


def test_init_without_a_place_or_with_a_wrong_one_is_a_usage_error(orderflow: Run) -> None:
    assert orderflow("groups", "init", "email").returncode == 2
    wrong = orderflow("groups", "init", "email", "--from", "2026-01-31T08:00")
    assert wrong.returncode == 2
    assert "no offset from UTC" in wrong.stderr


def test_an_unknown_group_names_those_that_there_are(orderflow: Run) -> None:
    unknown = orderflow("groups", "init", "emial", "--from", "earliest")

    assert unknown.returncode == 78
    assert unknown.stderr == "orderflow: no group 'emial': it is one of email, inventory, audit, or module:attribute\n"


def test_a_group_of_another_team_is_found_in_the_working_folder(orderflow: Run, tmp_path: Path) -> None:
    (tmp_path / "billing.py").write_text(
        "from consumers.runtime.group import APPLIED, ConsumerGroup, DlqPolicy\n"
        "group = ConsumerGroup('billing', owner='team-billing', slo_seconds=60,\n"
        "    dlq=DlqPolicy(alert='a', replay='r', delete_when={APPLIED}, keep_days=1))\n",
        encoding="utf-8",
    )

    applied = orderflow("topics", "apply", "--group", "billing:group", "--json")

    assert applied.returncode == 0, applied.stderr
    assert any(name.endswith(".billing.dlq") for name in json.loads(applied.stdout)["created"])
