"""Gathers the facts of a run for the checker."""

from dataclasses import replace

from tests.chaos import trial
from tests.chaos.load import SCARCE, Load
from tests.chaos.world import GROUPS, World
from tests.checker import readers
from tests.checker.facts import CANCELLED, CREATED, PAID, Event, Facts, GroupFacts, OutboxRow, Place
from tests.checker.frames import Frames

EVERYTHING = frozenset({CREATED, PAID, CANCELLED})
HANDLES = {
    "email": frozenset({CREATED}),
    "inventory": EVERYTHING,
    "audit": EVERYTHING,
    trial.NAME: frozenset({CREATED, PAID}),
}
ONCE = ("inventory", "audit")


def gather(world: World, load: Load, foreign: frozenset[Place], *, drained: bool) -> Facts:
    """Dump everything. Raises what the clients raise."""
    source = world.settings.kafka.source_topic
    cluster = readers.Cluster(world.stack.kafka.bootstrap_servers)
    tables = readers.Tables(world.dsn)
    outbox = tables.outbox()
    topics = {topic for group in GROUPS for topic in (*world.subscribed(group), f"{world.group_id(group)}.dlq")}
    records = cluster.records(sorted(topics))
    frames = Frames()
    events = {
        record.place: event
        for record in records.get(source, [])
        if record.place not in foreign and (event := frames.read(record.value)) is not None
    }
    rows, audited = tables.audit()
    effects = {
        "email": tables.email() + readers.mails(world.stack.mail.folder / "maildir"),
        "inventory": tables.inbox(),
        "audit": audited,
        trial.NAME: tables.effects("trial.effects"),
    }
    groups = [
        GroupFacts(
            name=group,
            handles=HANDLES[group],
            tiers=world.tiers(group),
            replay=f"{world.group_id(group)}.replay",
            dlq=f"{world.group_id(group)}.dlq",
            once=group in ONCE,
            effects=effects[group],
            commits=cluster.commits(world.group_id(group)),
            committed=cluster.committed(world.group_id(group), world.subscribed(group)),
            claims=readers.claims(world.stack.redis.url, group),
            may_die=_may_die(group, outbox, events, world),
            lease=world.shape.lease,
        )
        for group in GROUPS
    ]
    by_name = {group.name: group for group in groups}
    by_name[trial.NAME] = replace(by_name[trial.NAME], runs=tables.runs("trial.runs"))
    by_name["email"] = replace(by_name["email"], mails=True)
    return Facts(
        source=source,
        records=records,
        events=events,
        groups=list(by_name.values()),
        acks=list(load.acks),
        outbox=outbox,
        foreign=foreign,
        audit=rows,
        stock=tables.stock({SCARCE}),
        faults=list(world.faults),
        drained=drained,
    )


def _may_die(group: str, outbox: list[OutboxRow], events: dict[Place, Event], world: World) -> frozenset[str]:
    if group == trial.NAME:
        return frozenset(row.event_id for row in outbox if trial.fate_of(row.event_id) in trial.DIES)
    if group != "email":
        return frozenset()
    dead = world.customers.dead
    created = {event.event_id for event in events.values() if event.type_name == CREATED}
    # A customer's id stands in the value as text.
    return frozenset(
        row.event_id
        for row in outbox
        if row.event_id in created and any(customer.encode() in row.value for customer in dead)
    )
