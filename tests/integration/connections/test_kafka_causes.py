"""A wrong password, a wrong authority and a closed port are three sentences, each with the setting that mends it."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from orderflow.core import kafka
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import KafkaSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

# Causes that may pass are told when the time to start is over: it need not be long.
SOON = {"start_timeout_seconds": 8}
STRANGER = Path("the stranger's")  # stands for a file that the fixture makes

RIGHT = ["PLAINTEXT", "TLS", "MTLS", "SASL", "OPENSASL"]
WRONG: list[tuple[str, str, dict[str, Any], str]] = [
    ("an unknown authority", "TLS", {"ssl_ca_location": STRANGER}, "nobody whom we trust.*__SSL_CA_LOCATION"),
    ("no authority", "TLS", {"ssl_ca_location": None}, "authorities of this machine.*__SSL_CA_LOCATION"),
    ("an unknown authority before the login", "SASL", {"ssl_ca_location": STRANGER}, "nobody whom we trust"),
    ("a certificate for another host", "WRONGNAME", {}, "for another host name.*__BOOTSTRAP_SERVERS"),
    (
        "no client certificate",
        "MTLS",
        {"ssl_certificate_location": None, "ssl_key_location": None},
        "wants a client certificate and got none.*__SSL_CERTIFICATE_LOCATION",
    ),
    ("no TLS where it is wanted", "TLS", {"security_protocol": "PLAINTEXT"}, "wants TLS.*__SECURITY_PROTOCOL=SSL"),
    (
        "no TLS below the login",
        "SASL",
        {"security_protocol": "SASL_PLAINTEXT"},
        "wants TLS.*__SECURITY_PROTOCOL=SASL_SSL",
    ),
    (
        "TLS where there is none",
        "PLAINTEXT",
        {"security_protocol": "SSL", **SOON},
        "not speak TLS.*_PROTOCOL=PLAINTEXT",
    ),
    (
        "TLS below a login without",
        "OPENSASL",
        {"security_protocol": "SASL_SSL", **SOON},
        "not speak TLS.*__SECURITY_PROTOCOL=SASL_PLAINTEXT",
    ),
    ("no login where one is wanted", "SASL", {"security_protocol": "SSL", **SOON}, "wants a login.*_PROTOCOL=SASL_SSL"),
    (
        "no login and no TLS",
        "OPENSASL",
        {"security_protocol": "PLAINTEXT", **SOON},
        "wants a login.*__SECURITY_PROTOCOL=SASL_PLAINTEXT",
    ),
    (
        "a login where none is taken",
        "PLAINTEXT",
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"},
        "takes no login.*__SECURITY_PROTOCOL=PLAINTEXT",
    ),
    ("a wrong password", "SASL", {"sasl_password": "wrong"}, "refuses the password of user shop.*__SASL_PASSWORD"),
    ("an unknown user", "OPENSASL", {"sasl_username": "stranger"}, "refuses the password of user stranger"),
    (
        "a wrong SCRAM password",
        "SASL",
        {"sasl_mechanism": "SCRAM-SHA-512", "sasl_password": "wrong"},
        "refuses the password of user shop.*__SASL_PASSWORD",
    ),
    (
        "a mechanism that is not offered",
        "SASL",
        {"sasl_mechanism": "SCRAM-SHA-256"},
        r"does not take SCRAM-SHA-256 .*PLAIN,SCRAM-SHA-512.*__SASL_MECHANISM",
    ),
    ("a login without a mechanism", "SASL", {"sasl_mechanism": None}, "__SASL_MECHANISM must be set"),
    ("a login without a name", "SASL", {"sasl_username": None}, "__SASL_USERNAME and .*__SASL_PASSWORD must be set"),
    ("an authority's file that is not there", "TLS", {"ssl_ca_location": "/no/such"}, "__SSL_CA_LOCATION must name"),
    ("a certificate without its key", "MTLS", {"ssl_key_location": "/no/such"}, "__SSL_KEY_LOCATION must name"),
    (
        "a closed port",
        "PLAINTEXT",
        {"bootstrap_servers": "127.0.0.1:1", **SOON},
        "connection refused.*__BOOTSTRAP_SERVERS",
    ),
    (
        "a name that nobody has",
        "PLAINTEXT",
        {"bootstrap_servers": "no-such-host.invalid:9092", **SOON},
        "no-such-host.invalid:9092 .no machine has this name.*__BOOTSTRAP_SERVERS",
    ),
]


@pytest.mark.parametrize("listener", RIGHT)
def test_with_the_right_settings_the_brokers_answer(guarded_broker: Any, listener: str) -> None:
    settings = guarded_broker.settings(listener, start_timeout_seconds=60)

    assert len(kafka.admin(settings).list_topics(timeout=30).brokers) == 1


@pytest.fixture(scope="module")
def told(guarded_broker: Any) -> dict[str, str]:
    """What `kafka.admin` says in each wrong case; asked all at once, since some take the whole time to start."""

    def ask(case: tuple[str, str, dict[str, Any], str]) -> tuple[str, str]:
        name, listener, wrong, _ = case
        stranger = guarded_broker.certificates.strangers_authority
        given = {key: stranger if value is STRANGER else value for key, value in wrong.items()}
        with pytest.raises(Misconfigured) as raised:
            kafka.admin(guarded_broker.settings(listener, **given))
        return name, str(raised.value)

    with ThreadPoolExecutor(8) as pool:
        return dict(pool.map(ask, WRONG))


@pytest.mark.parametrize(("name", "said"), [(case[0], case[3]) for case in WRONG], ids=[case[0] for case in WRONG])
def test_the_sentence_names_the_cause_and_its_setting(told: dict[str, str], name: str, said: str) -> None:
    assert re.search(said, told[name]), told[name]
    assert "\n" not in told[name]
    assert "correct-horse" not in told[name]


@pytest.fixture
def listening() -> Iterator[Callable[..., str]]:
    """Return a function that listens on a port, gives each caller the same answer (None: no word), and says where."""
    servers: list[socket.socket] = []

    def listen(answer: bytes | None) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                kept.append(caller)
                if answer is not None:
                    caller.recv(1000)
                    caller.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield listen
    for server in servers:
        server.close()


def test_a_port_that_says_nothing_and_one_that_is_not_kafka_are_told_apart(listening: Callable[..., str]) -> None:
    silent = KafkaSettings(bootstrap_servers=listening(None), start_timeout_seconds=2)
    with pytest.raises(Misconfigured, match="connections are taken, and nothing is said"):
        kafka.admin(silent)

    web = KafkaSettings(bootstrap_servers=listening(b"HTTP/1.1 400 Bad Request\r\n\r\n"), start_timeout_seconds=60)
    with pytest.raises(Misconfigured, match="is not Kafka"):
        kafka.admin(web)


def test_one_broker_that_answers_is_enough_whatever_the_others_say(guarded_broker: Any) -> None:
    servers = f"127.0.0.1:1,no-such-host.invalid:9092,{guarded_broker.address_of('TLS')}"
    settings = guarded_broker.settings("TLS", bootstrap_servers=servers, start_timeout_seconds=60)

    assert kafka.admin(settings).list_topics(timeout=30).brokers


def test_a_broker_that_comes_while_we_wait_is_taken(guarded_broker: Any) -> None:
    guarded_broker.pause()
    resumes = threading.Timer(3.0, guarded_broker.resume)
    resumes.start()
    try:
        assert kafka.admin(guarded_broker.settings("SASL", start_timeout_seconds=90)).list_topics(timeout=30).brokers
    finally:
        resumes.join()
        guarded_broker.resume()


def test_what_a_running_client_hears_is_logged_once_with_the_cause(
    guarded_broker: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Producer

    producer = Producer(kafka.producer_config(guarded_broker.settings("SASL", sasl_password="wrong")))
    began = time.monotonic()
    until = began + 60
    said = ""
    while "refuses the password" not in said and time.monotonic() < until:
        producer.poll(0.1)
        said += "".join(capsys.readouterr())
    for _ in range(10):
        producer.poll(0.1)
    said += "".join(capsys.readouterr())

    # Once in ten seconds at most, though it was heard at each of its attempts to connect.
    assert 1 <= said.count("refuses the password of user shop") <= 1 + (time.monotonic() - began) // 10


def test_the_logger_holds_back_what_it_has_just_said(capsys: pytest.CaptureFixture[str]) -> None:
    on_error = kafka.client_error_logger(KafkaSettings())

    for _ in range(1000):
        on_error(KafkaError(KafkaError._TRANSPORT, "h:1/bootstrap: Connect to ipv4#h:1 failed: Connection refused"))
        on_error(KafkaError(KafkaError._AUTHENTICATION, "h:1/bootstrap: SASL authentication error: no"))

    assert len("".join(capsys.readouterr()).strip().splitlines()) == 2
