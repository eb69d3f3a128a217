"""Which faults explain what: the windows that the guarantees name, and no others."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.checker.facts import Fault, Kind

# Between the claim and the effect, and for connections that a healed server left broken.
SLACK_SECONDS = 2.0
# A lease is renewed at a third, so this part of it is the least that is left when a silence begins.
LEASE_LEFT = 0.5

# How long a request may lie in a socket before it is read.
KEPT_SECONDS = 60.0

ENDED = frozenset({Kind.KILL, Kind.EXIT})
SILENT = frozenset({Kind.AWAY, Kind.FREEZE, Kind.CUT, Kind.KILL, Kind.STOP})


class Windows:
    """The faults of a run, asked from the point of view of one group."""

    def __init__(self, faults: Iterable[Fault], group: str, lease: float) -> None:
        self._faults = sorted((fault for fault in faults if fault.group in ("", group)), key=lambda fault: fault.began)
        self._lease = lease

    def interrupted(self, began: float, ended: float) -> Fault | None:
        """A run between these times may not have counted: its worker died or slept through its lease, or Redis lost it.

        These are the windows of a mail that goes twice, less those of the mail server and the database.
        """
        return next((fault for fault in self._over(began, ended) if self._interrupts(fault)), None)

    def repeated(self, began: float, ended: float) -> Fault | None:
        """The same attempt may come twice: as above, or a dependency was away and the attempt was not counted."""
        return self.interrupted(began, ended) or self._silent(began, ended, {"postgres", "mail", "kafka"})

    def unrecorded(self, effect_at: float, ended: float) -> Fault | None:
        """An effect may come twice: as `interrupted`, or its end could not be told or noted."""
        return self.interrupted(effect_at, ended) or self._silent(
            effect_at, min(ended, effect_at + 10), {"postgres", "mail"}
        )

    def copied(self, began: float, ended: float) -> Fault | None:
        """A copy may be written twice: as `repeated`; the report of the first was late or lost."""
        return self.repeated(began, ended)

    def kept_back(self, at: float) -> Fault | None:
        """A commit may be stored late: of a request that lay somewhere while the broker or its sender was silent."""
        for fault in self._over(at - KEPT_SECONDS, at):
            if (fault.role == "kafka" and fault.kind in SILENT) or (
                fault.role == "worker" and fault.kind is Kind.FREEZE
            ):
                return fault
        return None

    def _interrupts(self, fault: Fault) -> bool:
        if fault.role in ("worker", "machine"):
            asleep = fault.kind in (Kind.FREEZE, Kind.STALL) and fault.seconds >= self._lease * LEASE_LEFT
            return fault.kind in ENDED or asleep
        if fault.role == "redis":
            # A worker backs off while it gets no answer: it asks again after as long again at most.
            silence = 2 * fault.seconds + 1
            return fault.kind is Kind.FLUSH or (fault.kind in SILENT and silence >= self._lease * LEASE_LEFT)
        return False

    def _silent(self, began: float, ended: float, roles: set[str]) -> Fault | None:
        return next((f for f in self._over(began, ended) if f.role in roles and f.kind in SILENT), None)

    def _over(self, began: float, ended: float) -> Iterator[Fault]:
        """Faults at some moment between these times; a server that healed just before counts."""
        for fault in self._faults:
            if fault.began <= ended and fault.ended >= began - SLACK_SECONDS:
                yield fault


def relay_windows(faults: Iterable[Fault], began: float, ended: float) -> Fault | None:
    """An event may stand twice in the topic: between its report and its mark the relay, or what it needs, went."""
    for fault in faults:
        over = fault.began <= ended + SLACK_SECONDS and fault.ended >= began - SLACK_SECONDS
        if over and fault.role in {"relay", "kafka", "postgres", "machine"}:
            return fault
    return None


def gaps(times: Iterable[float]) -> Iterator[tuple[float, float]]:
    """Each pair of neighbours."""
    return pairwise(sorted(times))
