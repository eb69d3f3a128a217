from collections import Counter
from uuid import UUID

from consumers.inventory import fixtures
from orderflow.ops.demo.plan import due
from orderflow.ops.samples import shop
from producers import customers
from producers.bodies import Line, PlaceOrder


def test_there_are_200_orders_and_each_oddity_once() -> None:
    orders = shop.orders()
    assert len(orders) == 200
    odd = Counter(order.odd for order in orders if order.odd)
    assert odd == dict.fromkeys(("sent_twice", "out_of_stock", "busy_mail_server", "unknown_customer"), 1)
    assert any(order.paid and order.cancelled for order in orders)
    assert any(order.cancelled and not order.paid for order in orders)


def test_the_api_would_take_every_order() -> None:
    for order in shop.orders():
        lines = [Line(sku=x.sku, quantity=x.quantity, unit_price=x.unit_price) for x in order.lines]
        PlaceOrder(customer_id=order.customer_id, currency=order.currency, lines=lines, channel=order.channel)


def test_no_address_could_reach_a_person() -> None:
    entries = [entry for _, entry in customers.parse(shop.CUSTOMERS.read_bytes())]
    assert len(entries) == 40
    assert all(entry.email.endswith(".example") for entry in entries)  # RFC 2606 keeps this domain for examples
    assert len({entry.locale for entry in entries}) >= 5


def test_only_the_customer_of_the_odd_order_is_unknown() -> None:
    known = shop.addresses().keys()
    assert [order.odd for order in shop.orders() if order.customer_id not in known] == ["unknown_customer"]


def test_only_the_order_of_the_busy_mail_server_is_refused_twice() -> None:
    addresses = shop.addresses()
    refused = [order.odd for order in shop.orders() if "+451x2@" in addresses.get(order.customer_id, "")]
    assert refused == ["busy_mail_server"]


def test_there_is_stock_for_every_order_but_the_odd_one_whatever_comes_first() -> None:
    on_hand = fixtures.read(shop.STOCK)
    wanted: Counter[str] = Counter()
    for order in shop.orders():
        pieces = {line.sku: line.quantity for line in order.lines}
        if order.odd == "out_of_stock":
            assert any(quantity > on_hand[sku] for sku, quantity in pieces.items())
        else:
            wanted.update(pieces)
    assert all(quantity <= on_hand[sku] for sku, quantity in wanted.items())


def test_a_cancelled_or_short_order_is_due_a_mail_and_no_stock() -> None:
    ids = [(UUID(int=number), order) for number, order in enumerate(shop.orders())]
    cancelled = [pair for pair in ids if pair[1].cancelled]
    short = [pair for pair in ids if pair[1].odd == "out_of_stock"]
    found = due([*cancelled, *short], shop.addresses())
    assert found.reserved == {}
    assert found.mails.keys() == {order_id for order_id, _ in [*cancelled, *short]}
