"""What is said when somebody else listens where we want to: who it is, and the command that avoids it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orderflow.core.errors import Misconfigured
from orderflow.ops.stack.layout import is_free
from orderflow.ops.stack.owner import owner_of

_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Wanted:
    """A loopback port that something of ours is about to listen on; `option` moves all ports that carry it."""

    port: int
    name: str
    option: str


def assert_free(wanted: Sequence[Wanted], command: str) -> None:
    """Raise `Misconfigured` when a port is taken, with its owner and a `command` that takes free ones instead."""
    taken = [one for one in wanted if not is_free(one.port)]
    if not taken:
        return
    first, *others = taken
    owner = owner_of(first.port) or "another process"
    more = f" (so {'is' if len(others) == 1 else 'are'} {', '.join(str(one.port) for one in others)})" if others else ""
    message = (
        f"port {first.port} for {first.name} is taken by {owner}{more}; end that, or choose "
        f"{'other ports' if others else 'another port'}: `{command} {_moved(wanted, taken)}`"
    )
    raise Misconfigured(message)


def _moved(wanted: Sequence[Wanted], taken: Iterable[Wanted]) -> str:
    options: list[str] = []
    spoken_for = {one.port for one in wanted}
    for option in dict.fromkeys(one.option for one in taken):
        ports = sorted(one.port for one in wanted if one.option == option)
        steps = range(1, _LAST_PORT + 1 - ports[-1])
        step = next((step for step in steps if _fit([port + step for port in ports], spoken_for)), None)
        if step is None:
            options.append(f"{option} PORT")
            continue
        spoken_for |= {port + step for port in ports}
        options.append(f"{option} {ports[0] + step}")
    return " ".join(options)


def _fit(ports: Sequence[int], spoken_for: set[int]) -> bool:
    return not spoken_for & {*ports} and all(map(is_free, ports))
