import pytest

from orderflow.core.errors import Misconfigured
from producers.auth import OWNER, Forbidden, OpenHouse, assert_loopback, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"])
def test_this_machine_is_loopback(host: str) -> None:
    assert is_loopback(host)
    assert_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "shop.example", "", "localhost.shop.example"])
def test_the_network_is_not_served_without_keys(host: str) -> None:
    with pytest.raises(Misconfigured, match="ORDERFLOW_API__AUTH=on"):
        assert_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "localhost", "[::1]:8080", "[::1]", "127.0.0.1"])
def test_a_direct_request_of_this_machine_is_answered(host: str) -> None:
    assert OpenHouse().owner({"host": host}) == "local"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "shop.example"},
        {"host": "shop.example:8080"},
        {"host": "127.0.0.1:8080", "x-forwarded-for": "127.0.0.1"},
        {"host": "127.0.0.1:8080", "forwarded": "for=127.0.0.1"},
        {"host": "127.0.0.1:8080", "via": "1.1 proxy"},
    ],
)
def test_a_forwarded_or_renamed_request_is_not(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        OpenHouse().owner(headers)


@pytest.mark.parametrize("owner", ["", "Checkout", "-x", "a b", "a" * 65, "a\n"])
def test_an_owner_is_a_plain_name(owner: str) -> None:
    assert not OWNER.fullmatch(owner)
    assert OWNER.fullmatch("checkout-2")
