import redis

from orderflow.core.causes.redis import sentence
from orderflow.core.causes.start import START_IT


def test_a_server_that_is_not_there_is_started_as_every_other_part() -> None:
    refused = redis.ConnectionError("Error 111 connecting to 127.0.0.1:1. Connection refused.")
    assert f"connection refused): {START_IT} or set ORDERFLOW_REDIS__URL" in sentence(refused, "127.0.0.1:1")
