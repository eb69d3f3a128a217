"""A client used after `fork()` never delivers: our publisher raises at once instead."""

import os
import warnings

from orderflow.core import kafka
from orderflow.core.kafka import Publisher
from orderflow.core.settings import KafkaSettings

RAISED, SENT, OTHER = 17, 0, 1


def test_sending_in_a_forked_child_raises_at_once() -> None:
    publisher: Publisher[int] = Publisher(kafka.producer_config(KafkaSettings()) | {"bootstrap.servers": "127.0.0.1:1"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork beside threads
        child = os.fork()
    if child == 0:
        code = OTHER
        try:
            publisher.send(1, "orders", key=b"k", value=b"v", headers=[])
            code = SENT
        except RuntimeError as error:
            code = RAISED if "fork" in str(error) else OTHER
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == RAISED
    assert publisher.send(1, "orders", key=b"k", value=b"v", headers=[])
    assert [report.ticket for report in publisher.renew()] == [1]
