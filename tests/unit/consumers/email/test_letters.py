"""The text of a confirmation."""

from datetime import UTC, date, datetime
from decimal import Decimal
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.email.directory import Customer
from consumers.email.letters import LANGUAGES, UnusableAddress, confirmation, language_code, money
from orderflow.testing.samples import order_created
from schemas.events import OrderCreated

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
ORDER = order_created({"TEA-100": 2})


def letter(event: OrderCreated = ORDER, **customer: str) -> EmailMessage:
    known = {"email": "kim@customers.example", "name": "Kim", "locale": "en"} | customer
    return confirmation(event, Customer(**known), sender="orders@shop.example", message_id="<1@shop.example>", now=NOW)


def as_received(message: EmailMessage) -> EmailMessage:
    received = message_from_bytes(message.as_bytes(), policy=default)
    assert isinstance(received, EmailMessage)
    return received


@pytest.mark.parametrize(
    ("locale", "code"),
    [
        ("en", "en"),
        ("de-AT", "de"),
        ("nb_NO.UTF-8", "nb"),
        ("no", "nb"),
        ("nn-NO", "nb"),
        ("FR", "fr"),
        ("xx", "en"),
        ("", "en"),
    ],
)
def test_a_locale_gives_a_language_and_an_unknown_one_gives_english(locale: str, code: str) -> None:
    assert language_code(locale) == code


@pytest.mark.parametrize(
    ("amount", "currency", "language", "text"),
    [
        ("1234.5", "EUR", "en", "EUR\xa01,234.50"),
        ("1234.5000", "EUR", "de", "1.234,50\xa0EUR"),
        ("1234567.5", "NOK", "nb", "1\xa0234\xa0567,50\xa0NOK"),
        ("1234.5", "EUR", "fr", "1\u202f234,50\xa0EUR"),
        ("1200", "JPY", "en", "JPY\xa01,200"),
        ("1.5", "KWD", "en", "KWD\xa01.500"),
        ("0.0125", "EUR", "en", "EUR\xa00.0125"),
        ("0", "EUR", "en", "EUR\xa00.00"),
    ],
)
def test_money_is_written_as_the_language_and_the_currency_want_it(
    amount: str, currency: str, language: str, text: str
) -> None:
    assert money(Decimal(amount), currency, LANGUAGES[language]) == text


@given(st.decimals(min_value=0, max_value=Decimal("99999999999999.9999"), places=4), st.sampled_from(sorted(LANGUAGES)))
def test_no_amount_is_rounded(amount: Decimal, code: str) -> None:
    language = LANGUAGES[code]
    text = money(amount, "EUR", language).replace("EUR", "").strip()

    assert Decimal(text.replace(language.group_mark, "").replace(language.decimal_mark, ".")) == amount


@pytest.mark.parametrize("code", sorted(LANGUAGES))
def test_every_language_fills_all_its_gaps(code: str) -> None:
    event = order_created({"TEA-100": 2}, delivery_date=date(2026, 2, 1))

    received = as_received(letter(event, locale=code, name="Åse Ñandú"))

    body = received.get_content()
    assert "{" not in body + str(received["Subject"])
    assert str(event.order_id) in received["Subject"]
    for part in ("Åse Ñandú", "2 x TEA-100", "2026-02-01", str(event.order_id)):
        assert part in body
    assert received["Content-Language"] == code


def test_the_headers_say_what_the_mail_is() -> None:
    received = as_received(letter())

    assert received["To"] == "Kim <kim@customers.example>"
    assert received["From"] == "orders@shop.example"
    assert received["Message-ID"] == "<1@shop.example>"
    assert received["Auto-Submitted"] == "auto-generated"
    assert received["X-Order-ID"] == str(ORDER.order_id)
    assert received["Date"].datetime == NOW


@given(st.text(max_size=80))
def test_no_name_adds_a_header_or_a_recipient(name: str) -> None:
    plain = letter()
    received = as_received(letter(name=name))

    assert received.keys() == plain.keys()
    assert [address.addr_spec for address in received["To"].addresses] == ["kim@customers.example"]


@pytest.mark.parametrize(
    "name", ["Kim\r\nBcc: eve@evil.example", "Kim\n\nBuy this", "Kim <eve@evil.example>,", "\x00\x1b[2J"]
)
def test_a_name_that_tries_to_inject_stays_a_name(name: str) -> None:
    received = as_received(letter(name=name))

    assert received["Bcc"] is None
    assert [address.addr_spec for address in received["To"].addresses] == ["kim@customers.example"]
    assert "\x00" not in received.get_content()
    assert "\nBuy" not in received.get_content()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "kim",
        "kim@",
        "@customers.example",
        "kim@a.example, eve@b.example",
        "kim@a.example\r\nBcc: eve@b.example",
        "kím@a.example",
    ],
)
def test_an_unusable_address_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(UnusableAddress) as refusal:
        letter(email=address)

    assert "example" not in str(refusal.value)
    assert "kim" not in str(refusal.value)


def test_an_international_domain_is_written_in_its_ascii_form() -> None:
    received = as_received(letter(email="kim@bücher.example"))

    assert received["To"].addresses[0].addr_spec == "kim@xn--bcher-kva.example"


def test_a_customer_does_not_show_in_a_log() -> None:
    assert repr(Customer("kim@customers.example", "Kim", "en")) == "Customer()"
