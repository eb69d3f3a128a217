"""From an exception that reached the top to one sentence and an exit code."""

import sys

from orderflow.core.errors import Misconfigured, OrderflowError

INTERRUPTED = 130


def sentence(error: BaseException) -> tuple[str, int] | None:
    """Return what to say and the exit code; None for what is a bug and deserves its traceback.

    Clients' libraries are looked up, not imported: one that is not loaded has raised nothing.
    """
    if isinstance(error, OrderflowError):
        return str(error), error.exit_code
    if _is(error, "psycopg", "OperationalError"):
        return _unreachable("PostgreSQL", error, "ORDERFLOW_DATABASE__DSN")
    if _is(error, "redis.exceptions", "ConnectionError") or _is(error, "redis.exceptions", "TimeoutError"):
        return _unreachable("Redis", error, "ORDERFLOW_REDIS__URL")
    if _is(error, "confluent_kafka", "KafkaException"):
        return _unreachable("Kafka", error.args[0], "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS")
    return None


def _is(error: BaseException, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(error, kind)


def _unreachable(service: str, said: object, setting: str) -> tuple[str, int]:
    reason = str(said).strip().splitlines()[0] if str(said).strip() else type(said).__name__
    message = f"{service} failed us ({reason}): is it running (`orderflow stack status`), and is {setting} right?"
    return message, Misconfigured.exit_code
