"""The words of librdkafka 2.16, as a real broker provoked them, and what each means."""

import pytest
from confluent_kafka import KafkaError

from orderflow.core.causes.kafka import Cause, Finding, finding, most_telling, sentence, settings_sentence
from orderflow.core.causes.start import START_IT
from orderflow.core.settings import KafkaSettings

SASL_SSL = "sasl_ssl://10.0.0.1:9093/bootstrap: "
UNVERIFIED = (
    "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be "
    "verified, verify that ssl.ca.location is correctly configured or root CA certificates are installed (install "
    "ca-certificates package) (after 115ms in state SSL_HANDSHAKE)"
)
HEARD = [
    (KafkaError._SSL, "ssl://10.0.0.1:9093/bootstrap: " + UNVERIFIED, Cause.CERTIFICATE_UNTRUSTED),
    (
        KafkaError._TRANSPORT,
        (
            "ssl://10.0.0.1:9093/2: Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: "
            "SSL alert number 116 (after 22ms in state APIVERSION_QUERY)"
        ),
        Cause.CLIENT_CERTIFICATE_WANTED,
    ),
    (
        KafkaError._SSL,
        (
            "ssl://10.0.0.1:9093/2: SSL handshake failed: error:0A000418:SSL routines::tlsv1 alert unknown ca: "
            "SSL alert number 48 (after 22ms in state SSL_HANDSHAKE)"
        ),
        Cause.CLIENT_CERTIFICATE_REFUSED,
    ),
    (
        KafkaError._TRANSPORT,
        (
            "ssl://10.0.0.1:9092/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by peer: "
            "connecting to a PLAINTEXT broker listener? (after 5ms in state SSL_HANDSHAKE)"
        ),
        Cause.TLS_NOT_OFFERED,
    ),
    (
        KafkaError._AUTHENTICATION,
        SASL_SSL + "SASL authentication error: Authentication failed: Invalid username or password",
        Cause.SASL_CREDENTIALS,
    ),
    (
        KafkaError._AUTHENTICATION,
        SASL_SSL + "SASL authentication error: Authentication failed during authentication due to invalid credentials "
        "with SASL mechanism SCRAM-SHA-512 (after 9ms in state AUTH_REQ)",
        Cause.SASL_CREDENTIALS,
    ),
    (
        KafkaError._AUTHENTICATION,
        SASL_SSL + "SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's "
        "supported mechanisms: PLAIN,SCRAM-SHA-512",
        Cause.SASL_MECHANISM,
    ),
    (
        KafkaError._AUTHENTICATION,
        (
            "sasl_plaintext://10.0.0.1:92/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid "
            "in current SASL state: broker's supported mechanisms:  (after 0ms in state AUTH_HANDSHAKE)"
        ),
        Cause.SASL_NOT_OFFERED,
    ),
    (
        KafkaError._RESOLVE,
        "no-such-host.invalid:9092/bootstrap: Failed to resolve 'no-such-host.invalid:9092': Name or service not known",
        Cause.NAME_UNKNOWN,
    ),
    (
        KafkaError._TRANSPORT,
        "10.0.0.1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state X)",
        Cause.REFUSED,
    ),
    (
        KafkaError._TRANSPORT,
        "[::1]:9092/7: Connect to ipv6#[::1]:9092 failed: No route to host (after 3ms in state CONNECT)",
        Cause.OUT_OF_REACH,
    ),
    (
        KafkaError._BAD_MSG,
        (
            "10.0.0.1:80/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000): increase "
            "receive.message.max.bytes (after 0ms in state APIVERSION_QUERY)"
        ),
        Cause.NOT_KAFKA,
    ),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed", Cause.TOPIC_DENIED),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, "Broker: Group authorization failed", Cause.GROUP_DENIED),
    (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Broker: Cluster authorization failed", Cause.CLUSTER_DENIED),
    (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", None),
    (KafkaError._TRANSPORT, "Failed to get metadata: Local: Broker transport failure", None),
]


@pytest.mark.parametrize(("code", "text", "cause"), HEARD)
def test_each_text_has_its_cause(code: int, text: str, cause: Cause | None) -> None:
    found = finding(code, text)

    assert (found.cause if found else None) == cause
    if found:
        assert "in state" not in found.said
        assert not found.where or found.where in text.split("/")


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_a_sentence_that_is_filled_in(cause: Cause) -> None:
    told = sentence(Finding(cause, "10.0.0.1:9092", "its words"), KafkaSettings())

    assert "{" not in told
    assert "ORDERFLOW_KAFKA__" in told or "give our user" in told or "renew it" in told


@pytest.mark.parametrize(
    ("ours", "cause", "setting"),
    [
        ("PLAINTEXT", Cause.TLS_WANTED, "SECURITY_PROTOCOL=SSL,"),
        ("SASL_PLAINTEXT", Cause.TLS_WANTED, "SECURITY_PROTOCOL=SASL_SSL,"),
        ("SSL", Cause.TLS_NOT_OFFERED, "SECURITY_PROTOCOL=PLAINTEXT,"),
        ("SASL_SSL", Cause.TLS_NOT_OFFERED, "SECURITY_PROTOCOL=SASL_PLAINTEXT,"),
        ("PLAINTEXT", Cause.SASL_WANTED, "SECURITY_PROTOCOL=SASL_PLAINTEXT "),
        ("SSL", Cause.SASL_WANTED, "SECURITY_PROTOCOL=SASL_SSL "),
        ("SASL_PLAINTEXT", Cause.SASL_NOT_OFFERED, "SECURITY_PROTOCOL=PLAINTEXT,"),
        ("SASL_SSL", Cause.SASL_NOT_OFFERED, "SECURITY_PROTOCOL=SSL,"),
    ],
)
def test_the_protocol_that_is_named_changes_one_thing_and_keeps_the_other(
    ours: str, cause: Cause, setting: str
) -> None:
    assert setting in sentence(Finding(cause, "h:1", ""), KafkaSettings.model_validate({"security_protocol": ours}))


def test_of_several_causes_the_one_that_no_waiting_mends_is_told() -> None:
    refused, wrong = Finding(Cause.REFUSED, "a:1", ""), Finding(Cause.SASL_CREDENTIALS, "b:1", "")

    assert most_telling([refused, wrong]) == wrong
    assert most_telling([Finding(Cause.SILENT, "", ""), refused]) == refused
    assert most_telling([]) is None


def test_a_client_that_refuses_its_settings_names_ours() -> None:
    assert "__SSL_CA_LOCATION" in settings_sentence("ssl.ca.location failed: error:05880020:x509::BIO lib")
    assert "__SASL_USERNAME" in settings_sentence("sasl.username and sasl.password must be set")
    assert "__SASL_MECHANISM" in settings_sentence("No provider for SASL mechanism GSSAPI: recompile librdkafka")
    assert settings_sentence("what nobody foresaw").endswith("what nobody foresaw")


def test_a_broker_that_is_not_there_is_started_as_every_other_part() -> None:
    assert f"connection refused): {START_IT} or set" in sentence(Finding(Cause.REFUSED, "", ""), KafkaSettings())
