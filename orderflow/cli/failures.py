"""From an exception that reached the top to one sentence and an exit code."""

import sys
from typing import TYPE_CHECKING

from orderflow.core.errors import Misconfigured, OrderflowError

if TYPE_CHECKING:
    from orderflow.core.settings import Settings

INTERRUPTED = 130


def sentence(error: BaseException) -> tuple[str, int] | None:
    """Return what to say and the exit code; None for what is a bug and deserves its traceback.

    Clients' libraries are looked up, not imported: one that is not loaded has raised nothing.
    """
    if isinstance(error, OrderflowError):
        return str(error), error.exit_code
    told = _of_a_service(error)
    return (told, Misconfigured.exit_code) if told else None


def _of_a_service(error: BaseException) -> str | None:
    if _is(error, "psycopg", "OperationalError"):
        from orderflow.core import database
        from orderflow.core.causes import postgres

        return postgres.sentence(error, database.address(_effective().database))
    if _is(error, "redis.exceptions", "ConnectionError") or _is(error, "redis.exceptions", "TimeoutError"):
        from orderflow.core.causes import redis

        return redis.sentence(error, "ORDERFLOW_REDIS__URL")
    if _is(error, "confluent_kafka", "KafkaException"):
        from orderflow.core.causes import kafka

        failed = error.args[0]
        found = kafka.finding(failed.code(), failed.str())
        if found is not None:
            return kafka.sentence(found, _effective().kafka)
        return f"Kafka failed us ({failed.str()}): look at its log, and at ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS"
    return None


def _is(error: BaseException, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(error, kind)


def _effective() -> "Settings":
    from orderflow.core import settings

    try:
        return settings.load()
    except OrderflowError:
        return settings.Settings()
