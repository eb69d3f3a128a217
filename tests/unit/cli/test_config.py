import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from orderflow.cli.config import config, masked
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import load


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

    rows = json.loads(printed)
    values = {name: row["value"] for name, row in rows.items()}
    assert rows["ORDERFLOW_KAFKA__PARTITIONS"]["source"] == "environment"
    assert rows["ORDERFLOW_KAFKA__SOURCE_TOPIC"]["source"] == "default"
    assert values["ORDERFLOW_KAFKA__PARTITIONS"] == 24
    assert values["ORDERFLOW_SMTP__PASSWORD"] == "***"
    assert values["ORDERFLOW_GROUPS"] == ["email", "inventory", "audit"]
    assert values["ORDERFLOW_WORKER__RETRY_SECONDS"] == [1, 5, 30]
    assert "hunter2" not in printed + table
    assert "ORDERFLOW_KAFKA__PARTITIONS" in table


def test_each_setting_says_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".orderflow").mkdir()
    (tmp_path / ".orderflow/env").write_text("ORDERFLOW_SMTP__PORT=2525\nORDERFLOW_API__PORT=8000\n")
    (tmp_path / "password").write_text("hunter2\n")
    monkeypatch.setenv("ORDERFLOW_SMTP__PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("ORDERFLOW_API__PORT", "8001")

    config(as_json=True)

    rows = json.loads(capsys.readouterr().out)
    assert rows["ORDERFLOW_SMTP__PORT"] == {"value": 2525, "source": ".orderflow/env"}
    assert rows["ORDERFLOW_API__PORT"] == {"value": 8001, "source": "environment"}
    assert rows["ORDERFLOW_SMTP__PASSWORD"] == {
        "value": "***",
        "source": "ORDERFLOW_SMTP__PASSWORD_FILE (environment)",
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("ORDERFLOW_KAFKA__BOOTSTRAP_SERVER", "did you mean ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS\\?"),
        ("ORDERFLOW_WORKER__SLOT", "did you mean ORDERFLOW_WORKER__SLOTS\\?"),
        (
            "ORDERFLOW_KAFAK__BOOTSTRAP_SERVERS",
            (
                "ORDERFLOW_KAFAK__BOOTSTRAP_SERVERS is not a setting of orderflow; "
                "did you mean ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS\\?"
            ),
        ),
        ("ORDERFLOW_NOTHING_LIKE_IT", "is not a setting of orderflow; `orderflow config`"),
    ],
)
def test_an_unknown_name_is_refused_with_the_one_that_may_be_meant(wrong: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=said):
        load({wrong: "1"}, env_file=tmp_path / "none")


def test_every_name_of_an_unknown_role_is_told(tmp_path: Path) -> None:
    wrong = {"ORDERFLOW_KAFAK__PARTITIONS": "1", "ORDERFLOW_KAFAK__SOURCE_TOPIC": "x"}
    with pytest.raises(Misconfigured) as refused:
        load(wrong, env_file=tmp_path / "none")
    for name in wrong:
        assert f"{name} is not a setting of orderflow; did you mean {name.replace('KAFAK', 'KAFKA')}?" in str(
            refused.value
        )
