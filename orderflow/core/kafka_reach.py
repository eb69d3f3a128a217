"""The first answer of a cluster, or the cause why there is none.

librdkafka tells causes to `error_cb` alone, and keeps quiet about connections that a broker just ends:
then a look of our own, a bare TCP and TLS handshake, tells what listens there.
"""

import socket
import ssl
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from orderflow.core import clock, elsewhere, interrupt
from orderflow.core.causes import kafka as causes
from orderflow.core.causes.kafka import WAITING_MAY_HELP, Cause, Finding
from orderflow.core.causes.tls import Certificate, certificate_fault
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import KafkaSettings

_FIRST_ASK_SECONDS = 0.5
# Of several brokers one may be set up wrongly and another answer: for so long a cause is only noted.
_GRACE_SECONDS = 1.0
_LOOK_SECONDS = 2.0
_DESCRIBE_SECONDS = 15.0
_DEFAULT_PORT = "9092"

_CERTIFICATES = {
    Certificate.UNTRUSTED: Cause.CERTIFICATE_UNTRUSTED,
    Certificate.OTHER_NAME: Cause.CERTIFICATE_OTHER_NAME,
    Certificate.OUT_OF_DATE: Cause.CERTIFICATE_OUT_OF_DATE,
}


def answered_admin(config: dict[str, Any], kafka: KafkaSettings) -> AdminClient:
    """Return an admin client for a cluster that answered.

    Raises `Misconfigured` with the cause and the setting that mends it: soon for what no waiting mends,
    after `start_timeout_seconds` for a cluster that may still be starting.
    """
    heard: dict[Cause, Finding] = {}

    def listen(error: KafkaError) -> None:
        found = causes.finding(error.code(), error.str())
        if found is not None:
            heard[found.cause] = found

    try:
        client = AdminClient(config | {"error_cb": listen})
    except KafkaException as error:
        raise Misconfigured(causes.settings_sentence(error.args[0].str())) from None
    begun = clock.monotonic()
    ask_seconds = _FIRST_ASK_SECONDS
    while True:
        left = begun + kafka.start_timeout_seconds - clock.monotonic()
        try:
            client.list_topics(timeout=max(0.01, min(ask_seconds, left)))
        except KafkaException:
            # Callbacks run in here only; and a broker that hangs up is not asked again at once.
            client.poll(0.1)
            interrupt.heed()
        else:
            return client
        waited = clock.monotonic() - begun
        found = causes.most_telling(heard.values()) or (look(kafka) if waited > _GRACE_SECONDS else None)
        lasting = found is not None and found.cause not in WAITING_MAY_HELP
        if (lasting and waited > _GRACE_SECONDS) or waited >= kafka.start_timeout_seconds:
            told = causes.sentence(_closer(found, kafka), kafka) + elsewhere.hint(kafka, "bootstrap_servers")
            raise Misconfigured(told)
        # A slow cluster needs one long patience rather than many short ones.
        ask_seconds *= 2


def is_hidden(admin: AdminClient, topic: str) -> bool:
    """Whether a topic that is not listed may exist all the same: brokers list only what we have the right to see."""
    asked = admin.describe_topics(TopicCollection([topic]), request_timeout=_DESCRIBE_SECONDS)
    try:
        asked[topic].result(_DESCRIBE_SECONDS + 5)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    return False


def look(kafka: KafkaSettings) -> Finding:
    """Return what listens at the first bootstrap server: connect, then try a TLS handshake without any trust."""
    host, port = _first_server(kafka)
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), _LOOK_SECONDS) as connection:
            return Finding(_what_listens(connection, kafka), where, "")
    except socket.gaierror as error:
        return Finding(Cause.NAME_UNKNOWN, where, str(error))
    except ConnectionRefusedError as error:
        return Finding(Cause.REFUSED, where, str(error))
    except OSError as error:
        return Finding(Cause.OUT_OF_REACH, where, str(error))


def _what_listens(connection: socket.socket, kafka: KafkaSettings) -> Cause:
    we_speak_tls = kafka.security_protocol.endswith("SSL")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_socket(connection).close()
    except TimeoutError:
        return Cause.SILENT
    except OSError:
        # It hung up on TLS, and (or we would not look) on what we speak.
        return Cause.TLS_NOT_OFFERED if we_speak_tls else Cause.SASL_WANTED
    return Cause.SASL_WANTED if we_speak_tls else Cause.TLS_WANTED


def _closer(found: Finding | None, kafka: KafkaSettings) -> Finding:
    """Return the finding, a distrusted certificate with its true fault: librdkafka names none."""
    if found is None:
        return Finding(Cause.SILENT, "", "")
    if found.cause is not Cause.CERTIFICATE_UNTRUSTED:
        return found
    host, port = _address(found.where)
    context = ssl.create_default_context(cafile=str(kafka.ssl_ca_location) if kafka.ssl_ca_location else None)
    try:
        with socket.create_connection((host, port), _LOOK_SECONDS) as connection:
            context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return Finding(_CERTIFICATES[certificate_fault(error)], found.where, found.said)
    except OSError:
        return found
    return found


def _first_server(kafka: KafkaSettings) -> tuple[str, int]:
    return _address(kafka.bootstrap_servers.split(",")[0].strip())


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    if not port.isdigit():
        host, port = server, _DEFAULT_PORT
    return host.rsplit("/", 1)[-1].strip("[]"), int(port)
