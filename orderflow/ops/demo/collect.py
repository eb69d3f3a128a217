"""Collects the facts from topics, tables and mail folder, once nothing is pending."""

from collections.abc import Sequence
from uuid import UUID

from psycopg import Connection

from consumers.runtime.loading import load_group
from orderflow.core.topics import GroupTopics
from orderflow.ops.demo import tables, topics
from orderflow.ops.demo.client import PlacedOrder
from orderflow.ops.demo.facts import CREATED, Facts, GroupFacts
from orderflow.ops.demo.odd import Traces
from orderflow.ops.demo.topics import Positions, TopicReader
from orderflow.ops.stack.mail import MailSink
from schemas import headers as names
from schemas.headers import header


def facts(
    connection: Connection, mail: MailSink, reader: TopicReader, positions: Positions, placed: Sequence[PlacedOrder]
) -> Facts:
    """Return everything that the accounting looks at."""
    events, foreign = topics.published(reader.of(reader.groups[0].source))
    return Facts(
        answered=[change for order in placed for change in order.changes],
        published=events,
        foreign=foreign,
        groups=[_group(connection, reader, positions, group) for group in reader.groups],
        mails=tables.mails(mail.messages()),
        reserved=tables.reserved(connection),
    )


def traces(
    connection: Connection, mail: MailSink, reader: TopicReader, found: Facts, addresses: dict[UUID, str]
) -> Traces:
    """Return where to ask what the odd ones left; `addresses` by order."""
    email = next(group for group in reader.groups if group.group == "email")
    created = {event.change.order_id: event.event_id for event in found.published if event.change.type_name == CREATED}

    def refusals(order_id: UUID) -> list[int]:
        return [refusal.code for refusal in mail.refusals() if refusal.recipient == addresses.get(order_id)]

    def waits(order_id: UUID) -> list[int]:
        event_id = str(created.get(order_id))
        return [
            seconds
            for topic, seconds in email.tiers.items()
            if any(header(record.headers, names.CE_ID) == event_id for record in reader.of(topic))
        ]

    return Traces(lambda order_id: tables.stock_state(connection, order_id), refusals, waits)


def _group(connection: Connection, reader: TopicReader, positions: Positions, group: GroupTopics) -> GroupFacts:
    committed = positions.committed[group.group_id]
    return GroupFacts(
        name=group.group,
        handles=load_group(group.group).types,
        effects=tables.EFFECTS[group.group](connection),
        dead=topics.dead_letters(reader.of(group.dlq)),
        pending={
            place: count
            for place, end in positions.ends.items()
            if place[0] in group.subscribed and (count := end - committed.get(place, 0)) > 0
        },
    )
