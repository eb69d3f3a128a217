"""A reader in another folder than the one where `orderflow up` ran is told so, and nobody else is."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from psycopg import OperationalError

from orderflow.cli import mail
from orderflow.core import database, kafka_reach
from orderflow.core.elsewhere import hint
from orderflow.core.errors import Misconfigured, NothingMatched
from orderflow.core.settings import LOCAL_ENV_FILE, DatabaseSettings, KafkaSettings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, where nothing ever ran."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORDERFLOW_STATE_DIR", raising=False)
    return tmp_path


def test_a_default_address_without_the_local_file_names_the_folder(folder: Path) -> None:
    assert hint(DatabaseSettings(), "dsn") == (
        f" (there is no .orderflow/env in {folder}: run this in the folder where `orderflow up` ran)"
    )


@pytest.mark.usefixtures("folder")
def test_an_address_that_was_set_is_no_matter_of_folders() -> None:
    elsewhere = DatabaseSettings.model_validate({"dsn": "postgresql://127.0.0.1:1/orderflow"})
    assert hint(elsewhere, "dsn") == ""
    with pytest.raises(Misconfigured) as refused:
        database.connect(elsewhere)
    assert ".orderflow/env" not in str(refused.value)


@pytest.mark.usefixtures("folder")
def test_where_the_local_file_is_the_folder_is_the_right_one() -> None:
    LOCAL_ENV_FILE.parent.mkdir()
    LOCAL_ENV_FILE.touch()
    assert hint(KafkaSettings(), "bootstrap_servers") == ""


def test_the_errors_of_database_and_kafka_end_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        """The client of a cluster that never answers, so that no test asks whoever has the default port."""

        def __init__(self, _: object) -> None: ...

        def list_topics(self, timeout: float) -> None:
            del timeout
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

        def poll(self, _: float) -> None: ...

    def refuses(*_: object, **__: object) -> None:
        raise OperationalError("no password supplied")

    monkeypatch.setattr(kafka_reach, "AdminClient", Nobody)
    monkeypatch.setattr(database, "psycopg_connect", refuses)

    with pytest.raises(Misconfigured, match=f"no .orderflow/env in {folder}: run this in the folder where"):
        database.connect(DatabaseSettings())
    with pytest.raises(Misconfigured, match=f"no .orderflow/env in {folder}: run this in the folder where"):
        kafka_reach.answered_admin({}, KafkaSettings(start_timeout_seconds=0.01))


def test_mails_are_asked_for_where_no_mail_sink_ran(folder: Path) -> None:
    said = f"no mail sink ran in {folder}/.orderflow: run this in the folder where `orderflow up` ran"
    with pytest.raises(NothingMatched, match=said):
        mail.ls()
    with pytest.raises(NothingMatched, match=said):
        mail.show("1")
