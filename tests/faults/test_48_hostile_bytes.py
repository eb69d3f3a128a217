"""Hostile bytes end as a `DecodeError` in bounded memory and time; the process lives.

Runs in a child with a limit on its memory: a decoder that believes a length or a count dies there.
"""

import json
import subprocess
import sys

import pytest

CHILD = r"""
import json, random, resource, sys, time
from pathlib import Path
from schemas import codec
from schemas.catalog import Catalog

golden = []
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    golden += [bytes.fromhex(case["hex"]) for case in json.loads(path.read_text())["cases"]]
for value in golden:
    codec.decode(value)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 192 * 1024 * 1024,) * 2)
before, slowest, seen = peak(), 0.0, {}

def attempt(value):
    global slowest
    start = time.perf_counter()
    try:
        codec.decode(value)
        outcome = "event"
    except codec.DecodeError as error:
        outcome = error.reason
    slowest = max(slowest, time.perf_counter() - start)
    seen[outcome] = seen.get(outcome, 0) + 1

largest = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"   # 2^63 - 1
smallest = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # -2^63
cap = codec.MAX_BYTES
for value in golden:
    head, body = value[:5], value[5:]
    for bad in (largest, smallest, b"\x01", b"\xff" * 64, b"\x80" * 64, b"\xff" * (cap - 5), b"\x80" * (cap - 5)):
        attempt(head + bad)
        for place in range(len(body)):
            # a length, a count, or bad UTF-8 wherever one can stand
            if len(bad) <= 64:
                attempt(head + body[:place] + bad + body[place:])
                attempt(head + body[:place] + bad + body[place + 1:])
    attempt(value * (cap // len(value)))
    for entry in Catalog.load().entries:
        attempt(b"\0" + entry.id.to_bytes(4, "big") + body)
        attempt(b"\0" + entry.id.to_bytes(4, "big"))

# As many order lines as the cap holds, valid each.
created = next(value for value in golden if codec.frame_id(value) == 100002)
start = created.index(b"EUR") + 3
line = b"\x02A\x02\x00"
count = (cap - start - 200) // len(line)
def varint(n):
    n, out = n << 1, bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))
tail = b"\x00" + b"\x00" + b"\x06web" + b"\x00"
few = created[:start] + varint(3) + line * 3 + tail
assert len(codec.decode(few).lines) == 3
attempt(created[:start] + varint(count) + line * count + tail)
assert seen.get("invalid_event")

dice = random.Random(48)
for _ in range(20_000):
    value = bytearray(dice.choice(golden))
    for _ in range(dice.randint(1, 4)):
        value[dice.randrange(len(value))] = dice.randrange(256)
    attempt(bytes(value))
for _ in range(20_000):
    attempt(b"\0" + dice.choice(Catalog.load().entries).id.to_bytes(4, "big") + dice.randbytes(dice.randrange(300)))
print(json.dumps({"grown_mib": peak() - before, "slowest": slowest, "seen": seen}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_hostile_bytes_cost_neither_memory_nor_the_process(pytestconfig: pytest.Config) -> None:
    root = pytestconfig.rootpath
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(root / "tests/golden")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=root,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    report = json.loads(child.stdout)
    assert report["grown_mib"] < 96
    assert report["slowest"] < 10
    assert {"malformed", "trailing_bytes", "invalid_event", "too_large", "not_framed"} & set(report["seen"]) >= {
        "malformed",
        "trailing_bytes",
        "invalid_event",
    }
