"""What the tests of faults share: a worker that is a process, so that it can die."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orderflow.core.settings import Settings
from orderflow.testing import tuned

StartWorker = Callable[[Settings, str], subprocess.Popen[bytes]]


@pytest.fixture
def few_partitions(settings: Settings) -> Settings:
    """Settings with one partition and one quick retry topic: small things start and end quickly."""
    one = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 1})})
    return tuned(one, retry_seconds=(1,), lease_seconds=2.0, revoke_budget_seconds=2.0)


def environment(settings: Settings, folder: Path) -> dict[str, str]:
    """Return the variables by which a process has these settings."""
    worker = settings.worker
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "ORDERFLOW_KAFKA__SOURCE_TOPIC": settings.kafka.source_topic,
        "ORDERFLOW_KAFKA__PARTITIONS": str(settings.kafka.partitions),
        "ORDERFLOW_DATABASE__DSN": settings.database.dsn.get_secret_value(),
        "ORDERFLOW_REDIS__URL": settings.redis.url.get_secret_value(),
        "ORDERFLOW_WORKER__LEASE_SECONDS": str(worker.lease_seconds),
        "ORDERFLOW_WORKER__RETRY_SECONDS": ",".join(map(str, worker.retry_seconds)),
    }


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Start `orderflow worker doomed:group` in a process; `doomed.py` holds the code given. Killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(settings: Settings, code: str) -> subprocess.Popen[bytes]:
        (tmp_path / "doomed.py").write_text(code, encoding="utf-8")
        with (tmp_path / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "orderflow", "worker", "doomed:group"],
                cwd=tmp_path,
                env=environment(settings, tmp_path),
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(10)
