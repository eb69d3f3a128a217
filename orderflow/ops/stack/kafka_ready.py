"""Whether Kafka is ready, by what it answers: an open port only means that the socket is there."""

import socket
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

_ASK_SECONDS = 2.0
_ADMIN_ENDS_SECONDS = 30.0
# Ids that Kafka's hash (Java's String.hashCode modulo 4) spreads over all four partitions of
# __consumer_offsets and of __transaction_state, so that every coordinator has answered.
_IDS = tuple(f"orderflow-ready-{n}" for n in range(4))


def broker_answers(address: str, node_id: int) -> str | None:
    """Return a word when this broker answers and stands in its own metadata, else None."""
    host, _, port = address.rpartition(":")
    try:
        # librdkafka would wait and log after a refused connection; a socket tells at once.
        socket.create_connection((host, int(port)), timeout=_ASK_SECONDS).close()
        found = AdminClient(_client(address)).list_topics(timeout=_ASK_SECONDS)
    except (OSError, KafkaException):
        return None
    return f"Apache Kafka, {len(found.brokers)} broker(s)" if node_id in found.brokers else None


def coordinators_answer(bootstrap_servers: str) -> str | None:
    """Return a word when every group coordinator and every transaction coordinator answers, else None.

    Asking creates `__consumer_offsets` and `__transaction_state` on a new cluster.
    """
    with ThreadPoolExecutor(len(_IDS) + 1) as pool:
        asked = [pool.submit(_groups_answer, bootstrap_servers)]
        asked += [pool.submit(_transactions_answer, bootstrap_servers, name) for name in _IDS]
        return "coordinators" if all(future.result() for future in asked) else None


def _groups_answer(bootstrap_servers: str) -> bool:
    admin = AdminClient(_client(bootstrap_servers))
    try:
        asked = list(admin.describe_consumer_groups(list(_IDS), request_timeout=_ASK_SECONDS).values())
    except KafkaException:
        return False
    # All of them, also after one failed: librdkafka aborts the whole process (rdkafka_queue.h, "eonce->refcnt > 0")
    # when an admin client is dropped while a request of it is still out.
    wait(asked, timeout=_ADMIN_ENDS_SECONDS)
    return all(future.done() and future.exception() is None for future in asked)


def _transactions_answer(bootstrap_servers: str, transactional_id: str) -> bool:
    producer = Producer(_client(bootstrap_servers) | {"transactional.id": transactional_id})
    try:
        producer.init_transactions(_ASK_SECONDS)
    except KafkaException:
        return False
    return True


def _client(bootstrap_servers: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        "error_cb": lambda _: None,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 100,
    }
