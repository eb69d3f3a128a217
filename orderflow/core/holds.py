"""Why a record is held back; the `reason` label of `orderflow_consumer_held_records`."""

from enum import StrEnum


class HoldReason(StrEnum):
    """What keeps a record from its handler; a held record is never lost, only late."""

    NOT_DUE = "not_due"  # its tier's delay is not over
    BUSY = "busy"  # somebody holds its claim
    SIBLING = "sibling"  # another delivery of the same event runs in this process
    KEY = "key"  # an earlier event of its key is not done
    ALONE = "alone"  # a run of it was interrupted; it waits until nothing runs beside it
    LIMIT = "limit"  # no slot is free
    BREAKER = "breaker"  # everything fails; one event at a time is tried
    OUTAGE = "outage"  # a dependency of the whole group is down
    THROTTLED = "throttled"  # the provider asked for a rest
    UNKNOWN_SCHEMA = "unknown_schema"  # the producers are newer than this program
    UNROUTABLE = "unroutable"  # its copy could not be written
    CLAIMS_DOWN = "claims_down"  # Redis does not answer
    PAUSED = "paused"  # an operator paused the group
