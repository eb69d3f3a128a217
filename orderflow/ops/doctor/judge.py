"""From facts to findings: pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from orderflow.core.settings import WorkerSettings
from orderflow.ops.doctor.finding import Finding, failed, ok, warning
from orderflow.ops.provision.problem import Problem

PYTHONS = ((3, 11), (3, 14))
POSTGRES_OLDEST = 15
MIB = 1024 * 1024
DISK_LOW_BYTES = 1024 * MIB
DISK_FULL_BYTES = 100 * MIB
MEMORY_HIGH = 0.8
CLOCK_SECONDS = 1.0
NAMES_SHOWN = 2


def python(version: tuple[int, int], platform: str, libc: str) -> Finding:
    """Judge the interpreter: (major, minor), `sys.platform`, and the C library's name."""
    oldest, newest = PYTHONS
    told = f"Python {version[0]}.{version[1]} on {platform}"
    if version < oldest:
        return failed(f"{told} is too old", f"make PYTHON=python{oldest[0]}.{oldest[1]} or newer")
    if platform not in ("linux", "darwin") or (platform == "linux" and libc != "glibc"):
        return warning(f"{told} ({libc or 'no glibc'}) was never tried", "use Linux with glibc, or macOS")
    if version > newest:
        return warning(f"{told} is newer than any that was tried", f"use Python {newest[0]}.{newest[1]} if it fails")
    return ok(told)


def libraries(wanted: Mapping[str, str], installed: Mapping[str, str | None]) -> Finding:
    """Judge installed versions against the oldest that will do, both by distribution name."""
    mend = "`make` installs what requirements.lock names, or `pip install -r requirements.lock`"
    missing = [name for name in wanted if installed.get(name) is None]
    if missing:
        return failed(f"not installed: {', '.join(sorted(missing))}", mend)
    old = {name: least for name, least in wanted.items() if _numbers(installed[name] or "") < _numbers(least)}
    if old:
        told = ", ".join(f"{name} {installed[name]} < {least}" for name, least in sorted(old.items()))
        return failed(f"too old: {told}", mend)
    return ok(f"{len(wanted)} libraries are as new as they must be")


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".") if part.isdigit()]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def postgres_version(number: int) -> Finding:
    """Judge `server_version_num`."""
    major = number // 10_000
    if major < POSTGRES_OLDEST:
        return failed(f"PostgreSQL {major} is too old", f"use PostgreSQL {POSTGRES_OLDEST} or newer")
    return ok(f"PostgreSQL {major}.{number % 10_000}")


def redis_policy(policy: str) -> Finding:
    """Judge `maxmemory-policy`."""
    if policy == "noeviction":
        return ok("claims are never evicted (noeviction)")
    return failed(
        f"maxmemory-policy is {policy}: claims would be forgotten, events would run twice",
        "`redis-cli CONFIG SET maxmemory-policy noeviction`, and the same in its configuration",
    )


def redis_persistence(info: Mapping[str, Any]) -> Finding:
    """Judge `INFO persistence`: what a restart leaves of the claims."""
    if not info.get("aof_enabled"):
        return warning(
            "no append-only file: a restart forgets the claims, and an email that is being sent may go twice",
            "`redis-cli CONFIG SET appendonly yes`, and the same in its configuration",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return failed("its append-only file cannot be written", "look at its log, and at the space on its disk")
    return ok("the append-only file is on and written")


def redis_memory(info: Mapping[str, Any]) -> Finding:
    """Judge `INFO memory`: with noeviction a full Redis refuses every claim."""
    limit, used = int(info.get("maxmemory") or 0), int(info.get("used_memory") or 0)
    if not limit:
        return ok(f"{used / MIB:.0f} MiB used, no limit set")
    told = f"{used / MIB:.0f} of {limit / MIB:.0f} MiB used"
    if used >= limit:
        return failed(f"{told}: it refuses every claim, all work waits", "raise its maxmemory")
    if used > MEMORY_HIGH * limit:
        return warning(told, "raise its maxmemory; when it is full all work waits")
    return ok(told)


def redis_clock(difference_seconds: float, uncertain_seconds: float) -> Finding:
    """Judge Redis' clock minus ours. Leases are timed by Redis alone: this is a hint that one of them is wrong."""
    if abs(difference_seconds) - uncertain_seconds > CLOCK_SECONDS:
        return warning(
            f"its clock is {difference_seconds:+.1f} s from ours",
            "set both machines' clocks (NTP); leases are not hurt",
        )
    return ok(f"its clock agrees with ours to {abs(difference_seconds) + uncertain_seconds:.3f} s or better")


def lease(worker: WorkerSettings, session_seconds: float, protocol: str) -> Finding:
    """Judge how long a take-over after a crash waits: the leases outlive the group's session, or they do not."""
    told = f"lease {worker.lease_seconds:g} s, session of the groups {session_seconds:g} s ({protocol})"
    if worker.lease_seconds > session_seconds:
        longer = worker.lease_seconds - session_seconds
        return warning(
            f"{told}: after a crash the work that was claimed waits {longer:g} s more than it must",
            f"set ORDERFLOW_WORKER__LEASE_SECONDS={session_seconds:g} (above twice what a handler takes)",
        )
    return ok(told)


def group_protocol(wanted: str, offered: Sequence[str]) -> Finding:
    """Judge whether the brokers offer the group protocol that the workers speak."""
    if wanted in offered:
        return ok(f"the group protocol {wanted} is offered")
    return failed(
        f"the brokers offer the group protocols {', '.join(offered) or 'of an old version'}, not {wanted}",
        "use Kafka 4.0 or newer, or set ORDERFLOW_KAFKA__GROUP_PROTOCOL=classic",
    )


def disk(where: str, free_bytes: int) -> Finding:
    """Judge the free space below the state folder, where the local stack keeps its data."""
    told = f"{free_bytes / MIB:,.0f} MiB free at {where}"
    mend = "make room, or set ORDERFLOW_STATE_DIR to a folder on another disk"
    if free_bytes < DISK_FULL_BYTES:
        return failed(told, mend)
    return warning(told, mend) if free_bytes < DISK_LOW_BYTES else ok(told)


def port(name: str, number: int, setting: str, holder: str | None) -> Finding:
    """Judge a port that a role of ours will listen on. `holder` is None for a free one, `ours` for our own role."""
    if holder is None:
        return ok(f"port {number} is free for the {name}")
    if holder == "ours":
        return ok(f"the {name} answers on port {number}")
    return warning(f"port {number} of the {name} is taken by {holder}", f"stop that, or set {setting}")


def api_keys(living: int, *, auth: bool) -> Finding:
    """Judge how many API keys count."""
    if not auth:
        return ok("the API asks for no key (auth=off, this machine only)")
    if not living:
        return warning("there is no API key, so nobody can place an order", "`orderflow keys new NAME`")
    return ok(f"{living} API keys")


def problems(found: Sequence[Problem], fine: str) -> list[Finding]:
    """Return another check's problems as findings, alike ones as one; `fine` when there are none."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for problem in found:
        places.setdefault((problem.severity, problem.what, problem.mend), []).append(problem.where)
    return [
        (failed if severity == "error" else warning)(f"{_listed(where)} {what}", mend)
        for (severity, what, mend), where in places.items()
    ] or [ok(fine)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more:" if len(names) > NAMES_SHOWN else ":" if len(names) > 1 else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
