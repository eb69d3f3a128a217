"""From librdkafka's error codes and texts to the cause, and to the setting that mends it.

The texts are those of librdkafka 2.16; each was provoked on a broker with TLS, SASL and access rules.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka import KafkaError

from orderflow.core.causes.start import START_IT
from orderflow.core.settings import KafkaSettings


class Cause(StrEnum):
    """Why the brokers do not work for us."""

    REFUSED = "refused"  # nothing listens there
    NAME_UNKNOWN = "name_unknown"
    OUT_OF_REACH = "out_of_reach"  # packets are lost on the way
    SILENT = "silent"  # somebody listens and says nothing
    NOT_KAFKA = "not_kafka"
    TLS_WANTED = "tls_wanted"
    TLS_NOT_OFFERED = "tls_not_offered"
    CERTIFICATE_UNTRUSTED = "certificate_untrusted"
    CERTIFICATE_OTHER_NAME = "certificate_other_name"
    CERTIFICATE_OUT_OF_DATE = "certificate_out_of_date"
    CLIENT_CERTIFICATE_WANTED = "client_certificate_wanted"
    CLIENT_CERTIFICATE_REFUSED = "client_certificate_refused"
    SASL_WANTED = "sasl_wanted"
    SASL_NOT_OFFERED = "sasl_not_offered"
    SASL_MECHANISM = "sasl_mechanism"
    SASL_CREDENTIALS = "sasl_credentials"
    TOPIC_DENIED = "topic_denied"
    GROUP_DENIED = "group_denied"
    CLUSTER_DENIED = "cluster_denied"
    TRANSACTIONAL_ID_DENIED = "transactional_id_denied"


# Least telling last. A proxy in front of a broker that is not up yet takes connections and hangs up.
_MAY_PASS = (
    Cause.SASL_WANTED,
    Cause.TLS_NOT_OFFERED,
    Cause.NAME_UNKNOWN,
    Cause.REFUSED,
    Cause.OUT_OF_REACH,
    Cause.SILENT,
)
WAITING_MAY_HELP = frozenset(_MAY_PASS)
"""What a cluster that is still starting may look like; no other cause goes away by itself."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, the broker's address as the client named it, and the client's own words."""

    cause: Cause
    where: str
    said: str


_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Cause.TOPIC_DENIED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Cause.GROUP_DENIED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Cause.CLUSTER_DENIED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Cause.TRANSACTIONAL_ID_DENIED,
}

# The first that is found in the text decides; texts of one code stand in their order of precision.
_TEXTS: tuple[tuple[str, Cause], ...] = (
    (r"certificate verify failed|certificate could not be verified", Cause.CERTIFICATE_UNTRUSTED),
    (r"alert certificate required|alert handshake failure|peer did not return", Cause.CLIENT_CERTIFICATE_WANTED),
    (r"alert (bad certificate|unknown ca|certificate (unknown|expired|revoked))", Cause.CLIENT_CERTIFICATE_REFUSED),
    (r"connecting to a PLAINTEXT broker listener|wrong version number", Cause.TLS_NOT_OFFERED),
    (r"Unsupported SASL mechanism", Cause.SASL_MECHANISM),
    (r"not valid in current SASL state", Cause.SASL_NOT_OFFERED),
    (r"SASL.* mechanism handshake", Cause.SASL_MECHANISM),
    (r"SASL authentication error|SASL.*(failed|invalid)", Cause.SASL_CREDENTIALS),
    (r"Failed to resolve", Cause.NAME_UNKNOWN),
    (r"Connection refused", Cause.REFUSED),
    (r"(Network is|No route to host|Host is) ?(unreachable|down)?|timed out", Cause.OUT_OF_REACH),
    # librdkafka read the first four letters of an answer as its size.
    (r"Invalid response size", Cause.NOT_KAFKA),
)
_ADDRESS = re.compile(r"(?:\w+://)?(?P<where>[^/\s]+)/(?:bootstrap|\d+): ")
_TIMING = re.compile(r" \(after \d+ms in state \w+.*\)$")

_RANK = [*(cause for cause in Cause if cause not in WAITING_MAY_HELP), *_MAY_PASS]


def finding(code: int, text: str) -> Finding | None:
    """Return what an error of the client means; None for one that names no cause (`All brokers down`)."""
    address = _ADDRESS.match(text)
    where = address["where"] if address else ""
    said = _TIMING.sub("", text[address.end() :] if address else text)
    if code in _DENIED:
        return Finding(_DENIED[code], where, said)
    cause = next((cause for pattern, cause in _TEXTS if re.search(pattern, said)), None)
    return Finding(cause, where, said) if cause else None


def most_telling(findings: Iterable[Finding]) -> Finding | None:
    """Return the one that a person should hear of."""
    return min(findings, key=lambda found: _RANK.index(found.cause), default=None)


def sentence(found: Finding, kafka: KafkaSettings) -> str:
    """Return what is wrong and which setting mends it."""
    where = found.where or kafka.bootstrap_servers
    return _SENTENCES[found.cause].format(
        where=where,
        said=found.said,
        ca=kafka.ssl_ca_location or "the authorities of this machine",
        protocol=kafka.security_protocol,
        with_tls=kafka.security_protocol.replace("PLAINTEXT", "SSL"),
        without_tls="SASL_PLAINTEXT" if kafka.security_protocol == "SASL_SSL" else "PLAINTEXT",
        with_sasl="SASL_SSL" if kafka.security_protocol == "SSL" else "SASL_PLAINTEXT",
        without_sasl="SSL" if kafka.security_protocol == "SASL_SSL" else "PLAINTEXT",
        user=kafka.sasl_username or "nobody",
        mechanism=kafka.sasl_mechanism or "no mechanism",
        certificate=kafka.ssl_certificate_location or "none",
    )


_SENTENCES = {
    Cause.REFUSED: (
        f"Kafka does not answer at {{where}} (nothing listens there: connection refused): {START_IT} "
        "or set ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS"
    ),
    Cause.NAME_UNKNOWN: (
        "Kafka does not answer at {where} (no machine has this name): set ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS"
    ),
    Cause.OUT_OF_REACH: (
        "Kafka does not answer at {where} (the machine is out of reach: {said}): look at the network and its "
        "firewalls, or set ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS"
    ),
    Cause.SILENT: (
        "Kafka does not answer at {where} (connections are taken, and nothing is said): look at the broker's log, "
        "or set ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS"
    ),
    Cause.NOT_KAFKA: (
        "what answers at {where} is not Kafka ({said}): set ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS to a broker's listener"
    ),
    Cause.TLS_WANTED: (
        "Kafka at {where} wants TLS and we speak {protocol}: set ORDERFLOW_KAFKA__SECURITY_PROTOCOL={with_tls}, "
        "or name a listener without TLS in ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS"
    ),
    Cause.TLS_NOT_OFFERED: (
        "Kafka at {where} does not speak TLS and we do: set ORDERFLOW_KAFKA__SECURITY_PROTOCOL={without_tls}, "
        "or name its TLS listener in ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS"
    ),
    Cause.CERTIFICATE_UNTRUSTED: (
        "the certificate of Kafka at {where} is signed by nobody whom we trust (we trust {ca}): set "
        "ORDERFLOW_KAFKA__SSL_CA_LOCATION to the PEM file of the authority that signed it"
    ),
    Cause.CERTIFICATE_OTHER_NAME: (
        "the certificate of Kafka at {where} is for another host name: set ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS (and the "
        "brokers' advertised.listeners) to a name that stands in it, or give the broker a certificate with this one"
    ),
    Cause.CERTIFICATE_OUT_OF_DATE: (
        "the certificate of Kafka at {where} is not valid today: renew it on the broker, or set this machine's clock"
    ),
    Cause.CLIENT_CERTIFICATE_WANTED: (
        "Kafka at {where} wants a client certificate and got none: set ORDERFLOW_KAFKA__SSL_CERTIFICATE_LOCATION and "
        "ORDERFLOW_KAFKA__SSL_KEY_LOCATION to its PEM files"
    ),
    Cause.CLIENT_CERTIFICATE_REFUSED: (
        "Kafka at {where} refuses our client certificate ({certificate}; {said}): set "
        "ORDERFLOW_KAFKA__SSL_CERTIFICATE_LOCATION and ORDERFLOW_KAFKA__SSL_KEY_LOCATION to one that the brokers trust"
    ),
    Cause.SASL_WANTED: (
        "Kafka at {where} ends our connections without a word, as a listener does that wants a login (SASL) before "
        "anything else: set ORDERFLOW_KAFKA__SECURITY_PROTOCOL={with_sasl} with ORDERFLOW_KAFKA__SASL_MECHANISM, "
        "ORDERFLOW_KAFKA__SASL_USERNAME and ORDERFLOW_KAFKA__SASL_PASSWORD"
    ),
    Cause.SASL_NOT_OFFERED: (
        "Kafka at {where} takes no login (SASL) on this listener: set "
        "ORDERFLOW_KAFKA__SECURITY_PROTOCOL={without_sasl}, or name its SASL listener in "
        "ORDERFLOW_KAFKA__BOOTSTRAP_SERVERS"
    ),
    Cause.SASL_MECHANISM: (
        "Kafka at {where} does not take {mechanism} ({said}): set ORDERFLOW_KAFKA__SASL_MECHANISM to one that it names"
    ),
    Cause.SASL_CREDENTIALS: (
        "Kafka at {where} refuses the password of user {user} ({said}): set ORDERFLOW_KAFKA__SASL_USERNAME and "
        "ORDERFLOW_KAFKA__SASL_PASSWORD"
    ),
    Cause.TOPIC_DENIED: (
        "Kafka lets us in but not to the topic ({said}): give our user DESCRIBE, READ, WRITE and DESCRIBE_CONFIGS on "
        "the topics with our prefix; `provision` needs CREATE and ALTER_CONFIGS on them too, `topics trim` DELETE"
    ),
    Cause.GROUP_DENIED: (
        "Kafka lets us in but not to the consumer group ({said}): give our user READ and DESCRIBE on the groups with "
        "our prefix"
    ),
    Cause.CLUSTER_DENIED: (
        "Kafka lets us in but not to the cluster ({said}): give our user the right that the command needs, "
        "DESCRIBE_CONFIGS to see the brokers' settings"
    ),
    Cause.TRANSACTIONAL_ID_DENIED: (
        "Kafka lets us in but not to the transactional id ({said}): give our user WRITE and DESCRIBE on the "
        "transactional ids with our prefix"
    ),
}


def denial(code: int, text: str) -> str | None:
    """Return which right is missing when a broker refused a request for that, else None."""
    cause = _DENIED.get(code)
    return _SENTENCES[cause].format(said=text) if cause else None


_CONFIG_TEXTS = (
    (r"ssl\.ca\.location", "ORDERFLOW_KAFKA__SSL_CA_LOCATION must name a PEM file that can be read"),
    (r"ssl\.certificate\.location", "ORDERFLOW_KAFKA__SSL_CERTIFICATE_LOCATION must name a PEM file that can be read"),
    (
        r"ssl\.key\.location|private key",
        "ORDERFLOW_KAFKA__SSL_KEY_LOCATION must name the PEM file of the key that belongs to the certificate",
    ),
    (
        r"sasl\.username|sasl\.password",
        "ORDERFLOW_KAFKA__SASL_USERNAME and ORDERFLOW_KAFKA__SASL_PASSWORD must be set for SASL",
    ),
    (
        r"SASL mechanism",
        "ORDERFLOW_KAFKA__SASL_MECHANISM must be set for SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    ),
)


def settings_sentence(text: str) -> str:
    """Return which setting the client refuses before it has spoken to anybody."""
    told = next((told for pattern, told in _CONFIG_TEXTS if re.search(pattern, text)), None)
    return f"{told} ({text})" if told else f"the Kafka client refuses its settings (ORDERFLOW_KAFKA__…): {text}"
