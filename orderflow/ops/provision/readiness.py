"""What a worker asks before it starts."""

from collections.abc import Sequence

from orderflow.core import kafka
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.ops.provision import positions, topics
from orderflow.ops.provision.problem import Problem


def assert_worker_may_start(settings: Settings, group: str, *, unlisted: str | None = None) -> None:
    """Make sure that the group's topics are as they must be and that somebody chose where it starts.

    `unlisted` is what ORDERFLOW_GROUPS lacks when the group is not among them. Raises `Misconfigured` with the
    command that mends it: no broker answers, a topic is missing or differs, the source has a partition without
    a position, or a position is outside the log.
    """
    admin = kafka.admin(settings.kafka)
    wrong = topics.problems(settings, admin, [group])
    if wrong:
        raise Misconfigured(_topics_told(wrong, group, [*settings.groups, unlisted] if unlisted else None))
    found = position_problems(settings, group)
    if found:
        raise Misconfigured("; ".join(str(problem) for problem in found))


def _topics_told(found: Sequence[Problem], group: str, groups_to_set: Sequence[str] | None) -> str:
    """Return the sentence for a person: topics that are missing are counted, and their command is named once."""
    missing = [problem for problem in found if problem.what == topics.MISSING]
    rest = [str(problem) for problem in found if problem not in missing]
    if not missing:
        return "; ".join(rest)
    if len(missing) == 1:
        what = f"{missing[0].where} {topics.MISSING}"
    else:
        what = f"{len(missing)} topics of {group} are missing ({missing[0].where}, …)"
    mend = f"run {topics.APPLY}"
    if groups_to_set:
        # The command makes the topics of the groups in there, and no others.
        mend = f"set ORDERFLOW_GROUPS={','.join(groups_to_set)}, then {mend}"
    return "; ".join([f"{what}: {mend}", *rest])


def position_problems(settings: Settings, group: str) -> Sequence[Problem]:
    """Return what keeps the group from starting on the source topic.

    A group that lost its offsets looks exactly like a new one, so both are told the same.
    """
    # Without the group's state: it takes the admin request that may end a process while the coordinator is away.
    (now,) = positions.ls(settings, [group], with_states=False)
    source = settings.kafka.source_topic
    where = f"group {group}"
    if not now.committed:
        what = f"has no position on {source}: it was never started here, or the brokers forgot its offsets"
        return [Problem(where, what, f"choose one with `orderflow groups init {group} --from earliest|now|TIME`")]
    if now.without_position:
        numbers = ", ".join(str(number) for number in now.without_position)
        what = f"has no position on partition {numbers} of {source}"
        mend = f"stop all its workers, then `orderflow groups init {group} --new-partitions`"
        return [Problem(where, what, mend)]
    outside = positions.out_of_range(settings, kafka.admin(settings.kafka), now)
    return [
        Problem(
            where,
            f"stands at {offset} on partition {number} of {source}, whose log goes from {start} to {end}",
            f"choose a new place with `orderflow groups init {group} --overwrite --from earliest|now|TIME`",
        )
        for number, (offset, start, end) in sorted(outside.items())
    ]
