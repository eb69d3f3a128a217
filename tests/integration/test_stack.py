"""The local stack on real parts."""

import psycopg
import redis

from orderflow.core.settings import Settings
from orderflow.ops.stack.stack import LocalStack


def test_every_part_answers(stack: LocalStack) -> None:
    assert {part.name: part.state for part in stack.status()} == {
        "Kafka": "running",
        "Redis": "running",
        "PostgreSQL": "running",
        "mail sink": "running",
    }


def test_a_test_gets_its_own_database_and_redis(settings: Settings) -> None:
    with psycopg.connect(settings.database.dsn.get_secret_value()) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        ).fetchone() == (0,)
    with redis.Redis.from_url(settings.redis.url.get_secret_value()) as client:
        assert client.dbsize() == 0
