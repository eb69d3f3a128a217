import pytest

from orderflow.core.settings import WorkerSettings
from orderflow.ops.doctor import judge
from orderflow.ops.doctor.finding import State
from orderflow.ops.provision.problem import Problem

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("version", "platform", "libc", "state"),
    [
        ((3, 11), "linux", "glibc", State.OK),
        ((3, 14), "darwin", "", State.OK),
        ((3, 10), "linux", "glibc", State.FAILED),
        ((3, 15), "linux", "glibc", State.WARNING),
        ((3, 12), "linux", "", State.WARNING),
        ((3, 12), "win32", "", State.WARNING),
    ],
)
def test_python(version: tuple[int, int], platform: str, libc: str, state: State) -> None:
    assert judge.python(version, platform, libc).state is state


@pytest.mark.parametrize(
    ("installed", "state", "said"),
    [
        ("7.0", State.OK, "as new as"),
        ("7", State.OK, "as new as"),
        ("7.10.1", State.OK, "as new as"),
        ("6.9", State.FAILED, "redis 6.9 < 7.0"),
        (None, State.FAILED, "not installed: redis"),
    ],
)
def test_libraries(installed: str | None, state: State, said: str) -> None:
    found = judge.libraries({"redis": "7.0"}, {"redis": installed})
    assert found.state is state
    assert said in found.what


@pytest.mark.parametrize(("number", "state"), [(150_000, State.OK), (180_006, State.OK), (140_012, State.FAILED)])
def test_postgresql(number: int, state: State) -> None:
    assert judge.postgres_version(number).state is state


@pytest.mark.parametrize(
    ("info", "state"),
    [
        ({"maxmemory": 0, "used_memory": 900 * MIB}, State.OK),
        ({"maxmemory": 100 * MIB, "used_memory": 80 * MIB}, State.OK),
        ({"maxmemory": 100 * MIB, "used_memory": 81 * MIB}, State.WARNING),
        ({"maxmemory": 100 * MIB, "used_memory": 100 * MIB}, State.FAILED),
    ],
)
def test_redis_memory(info: dict[str, int], state: State) -> None:
    assert judge.redis_memory(info).state is state


def test_redis_forgets_nothing_or_it_is_said() -> None:
    assert judge.redis_policy("noeviction").state is State.OK
    assert judge.redis_policy("allkeys-lru").state is State.FAILED
    assert judge.redis_persistence({"aof_enabled": 1, "aof_last_write_status": "ok"}).state is State.OK
    assert judge.redis_persistence({"aof_enabled": 0}).state is State.WARNING
    assert judge.redis_persistence({"aof_enabled": 1, "aof_last_write_status": "err"}).state is State.FAILED


def test_a_clock_counts_as_wrong_only_beyond_what_the_question_took() -> None:
    assert judge.redis_clock(0.4, 0.001).state is State.OK
    assert judge.redis_clock(-1.2, 0.1).state is State.WARNING
    assert judge.redis_clock(1.2, 0.5).state is State.OK


@pytest.mark.parametrize(("lease", "state"), [(30.0, State.OK), (45.0, State.OK), (46.0, State.WARNING)])
def test_a_lease_above_the_session_makes_a_take_over_wait(lease: float, state: State) -> None:
    found = judge.lease(WorkerSettings(lease_seconds=lease), 45.0, "consumer")
    assert found.state is state
    assert state is State.OK or "waits 1 s more" in found.what


def test_the_brokers_must_offer_the_protocol_of_the_groups() -> None:
    assert judge.group_protocol("consumer", ["classic", "consumer"]).state is State.OK
    refused = judge.group_protocol("consumer", ["classic"])
    assert refused.state is State.FAILED
    assert "GROUP_PROTOCOL=classic" in refused.mend


@pytest.mark.parametrize(("free", "state"), [(50, State.FAILED), (500, State.WARNING), (5000, State.OK)])
def test_disk(free: int, state: State) -> None:
    assert judge.disk("here", free * MIB).state is state


def test_a_port_is_free_or_ours_or_somebody_is_named() -> None:
    assert judge.port("API", 8080, "ORDERFLOW_API__PORT", None).state is State.OK
    assert judge.port("API", 8080, "ORDERFLOW_API__PORT", "ours").state is State.OK
    taken = judge.port("API", 8080, "ORDERFLOW_API__PORT", "nginx (pid 7)")
    assert taken.state is State.WARNING
    assert "nginx (pid 7)" in taken.what


def test_api_keys() -> None:
    assert judge.api_keys(0, auth=True).state is State.WARNING
    assert judge.api_keys(0, auth=False).state is State.OK
    assert judge.api_keys(2, auth=True).state is State.OK


def test_alike_problems_are_one_finding_and_none_is_fine() -> None:
    problems = [Problem(name, "does not exist", "make it") for name in ("a", "b", "c", "d")]
    found = judge.problems([*problems, Problem("e", "is odd", "look", "warning")], "fine")

    assert [(one.state, one.what) for one in found] == [
        (State.FAILED, "a, b and 2 more: does not exist"),
        (State.WARNING, "e is odd"),
    ]
    assert judge.problems([], "fine")[0].what == "fine"
