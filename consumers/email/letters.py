"""Pure: the text of a confirmation in the customer's language. No I/O."""

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parseaddr

from consumers.email.directory import Customer
from schemas.events import OrderCreated

# ISO 4217: currencies that do not have two decimals.
_MINOR_DIGITS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF"), 0),
    **dict.fromkeys(("UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
    **dict.fromkeys(("CLF", "UYW"), 4),
}
_NO_BREAK = "\N{NO-BREAK SPACE}"
_NARROW_NO_BREAK = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Language:
    """The words of one language, and how it writes numbers."""

    subject: str
    greeting: str
    thanks: str
    total: str
    delivery: str
    closing: str
    decimal_mark: str
    group_mark: str
    money: str


LANGUAGES = {
    "en": Language(
        subject="Your order {order}",
        greeting="Hello {name},",
        thanks="thank you for your order {order}. We have received:",
        total="Total",
        delivery="Promised delivery: {day}",
        closing="Your shop",
        decimal_mark=".",
        group_mark=",",
        money="{currency} {amount}",
    ),
    "de": Language(
        subject="Ihre Bestellung {order}",
        greeting="Guten Tag {name},",
        thanks="vielen Dank für Ihre Bestellung {order}. Bei uns eingegangen:",
        total="Summe",
        delivery="Zugesagte Lieferung: {day}",
        closing="Ihr Shop",
        decimal_mark=",",
        group_mark=".",
        money="{amount} {currency}",
    ),
    "fr": Language(
        subject="Votre commande {order}",
        greeting="Bonjour {name},",
        thanks="merci pour votre commande {order}. Nous avons bien reçu :",
        total="Total",
        delivery="Livraison promise : {day}",
        closing="Votre boutique",
        decimal_mark=",",
        group_mark=_NARROW_NO_BREAK,
        money="{amount} {currency}",
    ),
    "nb": Language(
        subject="Din bestilling {order}",
        greeting="Hei {name},",
        thanks="takk for din bestilling {order}. Vi har mottatt:",
        total="Sum",
        delivery="Lovet levering: {day}",
        closing="Din butikk",
        decimal_mark=",",
        group_mark=_NO_BREAK,
        money="{amount} {currency}",
    ),
}
DEFAULT_LANGUAGE = "en"
_SAME_LANGUAGE = {"no": "nb", "nn": "nb"}


class UnusableAddress(ValueError):
    """Raised when the address in the directory can be no recipient of a mail; does not repeat it."""


def language_code(locale: str) -> str:
    """Return the language of a locale such as `de-AT` or `nb_NO`; English for what we cannot write."""
    code = re.split(r"[-_.]", locale.strip().lower(), maxsplit=1)[0]
    code = _SAME_LANGUAGE.get(code, code)
    return code if code in LANGUAGES else DEFAULT_LANGUAGE


def money(amount: Decimal, currency: str, language: Language) -> str:
    """Return an amount as the language writes it, with the currency's decimals or as many as it needs."""
    needed = -int(amount.normalize().as_tuple().exponent)
    text = f"{amount:,.{max(_MINOR_DIGITS.get(currency, 2), needed)}f}"
    marks = str.maketrans({",": language.group_mark, ".": language.decimal_mark})
    return language.money.format(amount=text.translate(marks), currency=currency).replace(" ", _NO_BREAK)


def domain_of(sender: str) -> str:
    """Return the domain of an address, with or without a name before it."""
    return parseaddr(sender)[1].rpartition("@")[2]


def recipient_address(customer: Customer) -> Address:
    """Return where the customer's mail goes; an international domain in its ASCII form.

    Raises `UnusableAddress` when no single address can be read from the directory's entry.
    """
    local, at, domain = customer.email.rpartition("@")
    try:
        plain = f"{local}{at}{domain.encode('idna').decode('ascii')}"
        return Address(display_name=_one_line(customer.name), addr_spec=plain)
    except (ValueError, LookupError, MessageError) as error:
        raise UnusableAddress(f"the directory's address cannot be used ({type(error).__name__})") from None


def confirmation(
    event: OrderCreated, customer: Customer, *, sender: str, message_id: str, now: datetime
) -> EmailMessage:
    """Return the confirmation of an order. Raises `UnusableAddress`."""
    code = language_code(customer.locale)
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = recipient_address(customer)
    message["Subject"] = LANGUAGES[code].subject.format(order=event.order_id)
    message["Date"] = now
    message["Message-ID"] = message_id
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office reply, please
    message["X-Order-ID"] = str(event.order_id)
    # Every server takes this encoding, also those without 8BITMIME.
    message.set_content(_text(event, customer, LANGUAGES[code]), cte="quoted-printable")
    message["Content-Language"] = code  # set_content() removes what begins with Content-
    return message


def _text(event: OrderCreated, customer: Customer, language: Language) -> str:
    articles = [
        f"  {line.quantity} x {_one_line(line.sku)}"
        f"  {money(line.unit_price, event.currency, language)}"
        f"  {money(line.unit_price * line.quantity, event.currency, language)}"
        for line in event.lines
    ]
    day = event.delivery_date
    promise = [language.delivery.format(day=day.isoformat()), ""] if day else []
    return "\n".join(
        [
            language.greeting.format(name=_one_line(customer.name)),
            "",
            language.thanks.format(order=event.order_id),
            "",
            *articles,
            "",
            f"{language.total}: {money(event.total, event.currency, language)}",
            "",
            *promise,
            language.closing,
            "",
        ]
    )


def _one_line(text: str) -> str:
    """Return text without control characters and line ends; nobody's name ends a header or a line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
