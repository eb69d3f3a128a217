"""Where the roles listen: pure values, written to `roles/ports.json` in the state folder."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from consumers import GROUPS
from orderflow.core.errors import Misconfigured
from orderflow.ops.stack.layout import free_ports
from orderflow.ops.stack.process import read_json, write_json

API_PORT = 8080
METRICS_PORT = 9101


@dataclass(frozen=True)
class RolePorts:
    """Loopback ports: the API's own, and where `/metrics` of relay and workers (by group) is read."""

    api: int
    relay: int
    workers: Mapping[str, int]

    @classmethod
    def fixed(cls, api: int = API_PORT, metrics: int = METRICS_PORT) -> Self:
        """Return the well-known ones: workers from `metrics` upwards, the relay after them."""
        workers = {group: metrics + number for number, group in enumerate(GROUPS)}
        return cls(api, metrics + len(workers), workers)

    @classmethod
    def for_people(cls, was: Self | None, *, api: int | None = None, metrics: int | None = None) -> Self:
        """Return what is asked for, else as `was` last time, else the fixed ones."""
        last = was or cls.fixed()
        asked = cls.fixed(api or last.api, metrics or METRICS_PORT)
        return asked if metrics else cls(asked.api, last.relay, last.workers)

    @classmethod
    def free(cls) -> Self:
        """Return ports that nothing listens on now."""
        api, relay, *workers = free_ports(2 + len(GROUPS))
        return cls(api, relay, dict(zip(GROUPS, workers, strict=True)))

    def save(self, folder: Path) -> None:
        """Write them."""
        write_json(folder / "ports.json", asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Return what `save` wrote, or None. Raises `Misconfigured` when it cannot be understood."""
        path = folder / "ports.json"
        try:
            saved = read_json(path)
            return None if saved is None else cls(**saved)
        except (ValueError, TypeError):
            raise Misconfigured(f"{path} cannot be understood; `orderflow down` and remove it") from None
