import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from orderflow.cli.config import config, masked


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("postgresql://someone:hunter2@db.example:5432/shop", "postgresql://someone:***@db.example:5432/shop"),
        ("postgresql://someone@db.example/shop", "postgresql://someone@db.example/shop"),
        ("postgresql://someone@db.example/shop?password=hunter2", "***"),
        ("postgresql://someone:hunter2@a:1,b:2/shop", "***"),
        ("host=db.example password=hunter2", "***"),
        ("redis://:hunter2@cache.example:6379/0", "redis://:***@cache.example:6379/0"),
        ("hunter2", "***"),
    ],
)
def test_of_a_secret_only_what_is_no_secret_is_shown(secret: str, shown: str) -> None:
    assert masked(SecretStr(secret)) == shown


def test_every_setting_is_listed_with_the_value_in_force_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORDERFLOW_SMTP__PASSWORD", "hunter2")
    monkeypatch.setenv("ORDERFLOW_KAFKA__PARTITIONS", "24")

    config(as_json=True)
    printed = capsys.readouterr().out
    config()
    table = capsys.readouterr().out

    values = json.loads(printed)
    assert values["ORDERFLOW_KAFKA__PARTITIONS"] == 24
    assert values["ORDERFLOW_SMTP__PASSWORD"] == "***"
    assert values["ORDERFLOW_GROUPS"] == ["email", "inventory", "audit"]
    assert values["ORDERFLOW_WORKER__RETRY_SECONDS"] == [1, 5, 30]
    assert "hunter2" not in printed + table
    assert "ORDERFLOW_KAFKA__PARTITIONS" in table
