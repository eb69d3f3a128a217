"""Settings and ports, compared with the code."""

from urllib.parse import urlsplit

import pytest

from orderflow.core.settings import Settings
from orderflow.ops.stack.layout import Ports
from tests.unit.compose.composefile import PARTS, READY, ROLES, RUNNING, SECRETS, SERVICES, ours, published, settings_of


@pytest.mark.parametrize("service", sorted(ROLES))
def test_every_setting_of_a_role_is_one_that_the_code_knows(service: str) -> None:
    assert ours(service)
    settings_of(service)


@pytest.mark.parametrize("service", sorted(ROLES))
def test_a_role_is_pointed_at_the_parts_on_their_ports_inside_the_network(service: str) -> None:
    settings = settings_of(service)
    redis, dsn = (urlsplit(secret.get_secret_value()) for secret in (settings.redis.url, settings.database.dsn))
    postgres = SERVICES["postgres"]["environment"]

    inside = dict(
        listener.split("://") for listener in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    )
    assert settings.kafka.bootstrap_servers == inside["PLAINTEXT"]
    assert (redis.hostname, redis.port, redis.password) == ("redis", 6379, SECRETS["REDIS_PASSWORD"])
    assert (dsn.hostname, dsn.port, dsn.path) == ("postgres", 5432, f"/{postgres['POSTGRES_DB']}")
    assert (dsn.username, dsn.password) == (postgres["POSTGRES_USER"], postgres["POSTGRES_PASSWORD"])
    assert (settings.smtp.host, settings.smtp.port) == ("mailpit", 1025)


def test_parts_are_published_on_the_ports_of_the_local_stack_and_of_the_settings() -> None:
    fixed, standard = Ports.fixed(), Settings()
    hosts = {service: {inside: port for inside, (_, port) in published(service).items()} for service in PARTS}

    assert hosts == {
        "kafka": {9092: fixed.kafka[0]},
        "redis": {6379: fixed.redis},
        "postgres": {5432: fixed.postgres},
        "mailpit": {1025: fixed.smtp, 8025: 8025},
    }
    assert standard.kafka.bootstrap_servers == f"127.0.0.1:{hosts['kafka'][9092]}"
    assert urlsplit(standard.redis.url.get_secret_value()).port == hosts["redis"][6379]
    assert urlsplit(standard.database.dsn.get_secret_value()).port == hosts["postgres"][5432]
    assert standard.smtp.port == hosts["mailpit"][1025]


@pytest.mark.parametrize("service", sorted(RUNNING))
def test_a_role_listens_on_its_well_known_port_and_is_published_there(service: str) -> None:
    settings = settings_of(service)
    host, port = {
        "order-api": (settings.api.host, settings.api.port),
        "relay": (settings.relay.metrics_host, settings.relay.metrics_port),
    }.get(service, (settings.worker.metrics_host, settings.worker.metrics_port))

    assert host == "0.0.0.0"
    assert port == READY[service].port
    assert published(service) == {port: ("127.0.0.1", port)}


def test_every_published_port_is_bound_to_loopback_and_none_twice() -> None:
    bound = [where for service in SERVICES for where in published(service).values()]

    assert bound
    assert {address for address, _ in bound} == {"127.0.0.1"}
    assert len(set(bound)) == len(bound)
    assert not [name for name, entry in SERVICES.items() if "network_mode" in entry]
