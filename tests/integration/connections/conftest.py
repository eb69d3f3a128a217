"""A Kafka broker that asks who is there: TLS, SASL, client certificates and access rules, each on a port of its own."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives import serialization

from orderflow.core.errors import OrderflowError
from orderflow.core.settings import KafkaSettings
from orderflow.ops.stack.kafka import Broker
from orderflow.ops.stack.kafka_ready import coordinators_answer
from orderflow.ops.stack.layout import HOST, Layout, Options, Ports, free_ports
from orderflow.ops.stack.part import wait_for_answer
from orderflow.ops.stack.process import Command

PASSWORD = "correct-horse"


@dataclass(frozen=True)
class Certificates:
    """PEM files: our authority, a stranger's, and a client's certificate with its key."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    @property
    def strangers_authority(self) -> Path:
        return self.folder / "stranger.pem"

    @property
    def client(self) -> Path:
        return self.folder / "client.pem"

    @property
    def client_key(self) -> Path:
        return self.folder / "client.key"

    def make(self) -> None:
        authority, stranger = trustme.CA(), trustme.CA()
        authority.cert_pem.write_to_path(self.authority)
        stranger.cert_pem.write_to_path(self.strangers_authority)
        for name, host in (("server", HOST), ("elsewhere", "elsewhere.example")):
            issued = authority.issue_cert(host)
            (self.folder / f"{name}.pem").write_bytes(_pkcs8(issued) + _chain(issued))
        issued = authority.issue_cert("client.example", common_name="certified")
        self.client.write_bytes(_chain(issued))
        self.client_key.write_bytes(_pkcs8(issued))


def _chain(issued: trustme.LeafCert) -> bytes:
    return b"".join(certificate.bytes() for certificate in issued.cert_chain_pems)


def _pkcs8(issued: trustme.LeafCert) -> bytes:
    """Return the key in the only form that Kafka reads."""
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class GuardedBroker(Broker):
    """A broker with a listener of each kind, and no rights for anybody but the one without a name."""

    LISTENERS: ClassVar = {
        "TLS": "SSL",
        "MTLS": "SSL",
        "WRONGNAME": "SSL",
        "SASL": "SASL_SSL",
        "OPENSASL": "SASL_PLAINTEXT",
    }

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        layout = Layout(Ports.free(), Options(quick_groups=True))
        super().__init__(folder, layout, 0)
        self.certificates = certificates
        self.guarded = dict(zip(self.LISTENERS, free_ports(len(self.LISTENERS)), strict=True))
        # Kept: a client that goes away drops its requests.
        settings: dict[str, Any] = {"bootstrap.servers": self.address, "log_level": 0}
        self.admin = AdminClient(settings)

    def prepare(self) -> Command:
        command = super().prepare()
        properties = self.folder / "server.properties"
        mine = [f"{name}://{HOST}:{port}" for name, port in self.guarded.items()]
        plain = f"PLAINTEXT://{HOST}:{self.port}"
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in self.LISTENERS.items())
        files = self.certificates
        jaas = "org.apache.kafka.common.security"
        more = {
            "listeners": ",".join([plain, f"CONTROLLER://{HOST}:{self.ports[1]}", *mine]),
            "advertised.listeners": ",".join([plain, *mine]),
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{protocols}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": files.folder / "server.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": files.authority,
            "listener.name.wrongname.ssl.keystore.location": files.folder / "elsewhere.pem",
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        for listener in ("sasl", "opensasl"):
            prefix = f"listener.name.{listener}"
            more[f"{prefix}.plain.sasl.jaas.config"] = (
                f'{jaas}.plain.PlainLoginModule required user_shop="{PASSWORD}" user_nobody="{PASSWORD}";'
            )
            more[f"{prefix}.scram-sha-512.sasl.jaas.config"] = f"{jaas}.scram.ScramLoginModule required;"
        with properties.open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in more.items())
        return command

    def address_of(self, listener: str) -> str:
        port = self.port if listener == "PLAINTEXT" else self.guarded[listener]
        return f"{HOST}:{port}"

    def settings(self, listener: str, **overrides: Any) -> KafkaSettings:
        """What is right for a listener, and what a test says instead."""
        protocol = self.LISTENERS.get(listener, "PLAINTEXT")
        right: dict[str, Any] = {
            "bootstrap_servers": self.address_of(listener),
            "security_protocol": protocol,
            "start_timeout_seconds": 60.0,
        }
        if protocol.endswith("SSL"):
            right["ssl_ca_location"] = self.certificates.authority
        if listener == "MTLS":
            right["ssl_certificate_location"] = self.certificates.client
            right["ssl_key_location"] = self.certificates.client_key
        if protocol.startswith("SASL"):
            right |= {"sasl_mechanism": "PLAIN", "sasl_username": "shop", "sasl_password": PASSWORD}
        return KafkaSettings.model_validate(right | overrides)

    def allow(self, user: str, *rules: tuple[ResourceType, str, AclOperation]) -> None:
        """Give a user rights: on all names with a prefix, and on the cluster."""
        bindings = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL if kind is ResourceType.BROKER else ResourcePatternType.PREFIXED,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for kind, name, operation in rules
        ]
        for done in self.admin.create_acls(bindings).values():
            done.result(30)


@pytest.fixture(scope="session")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    folder = tmp_path_factory.mktemp("guarded")
    certificates = Certificates(folder)
    certificates.make()
    broker = GuardedBroker(folder / "kafka", certificates)
    try:
        broker.start(ready_seconds=180)
        wait_for_answer(broker.daemon, lambda: coordinators_answer(broker.address), 180)
    except OrderflowError as error:
        broker.kill()
        if os.environ.get("CI"):
            pytest.fail(f"the broker does not start: {error}")
        pytest.skip(f"the broker does not start: {error}")
    yield broker
    broker.stop()
