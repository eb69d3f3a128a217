"""Headers grow at each hop until the record is too large."""

from dataclasses import replace

from retry.failure import Failure
from retry.policy import Stage
from retry.story import Story, headers_for_tier
from schemas.headers import Headers

FOREIGN: Headers = [
    ("ce_id", b"0190f2a0-0000-7000-8000-000000000001"),
    ("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"),
    ("x", b"1"),
    ("x", None),
    ("x", b""),
    ("", b"\xff\x00"),
]


def size(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def test_the_size_is_constant_over_fifty_hops() -> None:
    source = ("orders", 3, 7, 1_600_000_000_000)
    story = Story.read(FOREIGN, own_topic=False, origin=source)
    headers, sizes = FOREIGN, []
    for hop in range(50):
        failure = Failure(Stage.HANDLE, "KeyError", "m" * 1024, "s" * 8192, "f" * 16, 10 + hop, 1_700_000_000_000 + hop)
        headers = headers_for_tier(headers, story, failure, group="email", after_seconds=40)
        story = Story.read(headers, own_topic=True, origin=("orders.email.retry.30s", 3, hop, 1_700_000_000_000 + hop))
        sizes.append(size(headers))
        assert headers[: len(FOREIGN)] == FOREIGN
    assert len(set(sizes)) == 1
    assert story.origin == source


def test_our_headers_fit_into_the_room_that_retry_topics_have_over_the_source() -> None:
    worst = Story.read(None, own_topic=False, origin=("o" * 249, 10**9, 10**18, 10**18))
    worst = replace(worst, attempts=10**15, rounds=10**15, replay_count=10**15, replay_id="r" * 256)
    failure = Failure(Stage.HANDLE, "c" * 256, "m" * 1024, "s" * 8192, "f" * 16, 10**15 + 1, 10**18)
    assert size(headers_for_tier(None, worst, failure, group="g" * 31, after_seconds=86_400)) < 16 * 1024
