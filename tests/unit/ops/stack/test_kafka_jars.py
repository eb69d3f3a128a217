"""Kafka's jars: locked, whole, and a sentence when they cannot be had."""

import hashlib
import re
from pathlib import Path

import pytest

from orderflow.core.errors import Misconfigured
from orderflow.ops.stack import kafka_jars
from orderflow.ops.stack.kafka_jars import KAFKA_VERSION, LOCK, ensure_jars, locked_jars

TINY = """
[[dependencies]]
groupId = "org.apache.kafka"
artifactId = "kafka_2.13"
version = "{version}"
sha256 = "{sha256}"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "orderflow" / f"kafka-{KAFKA_VERSION}"


def lock_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Lock one jar with this content instead of the real forty-six."""
    path = tmp_path / "tiny.lock.toml"
    path.write_text(TINY.format(version=KAFKA_VERSION, sha256=hashlib.sha256(content).hexdigest()))
    jars = locked_jars(path)
    monkeypatch.setattr(kafka_jars, "locked_jars", lambda: jars)


def test_the_lock_names_every_jar_with_its_hash_and_no_host() -> None:
    jars = locked_jars()
    assert len(jars) == 46
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert "://" not in LOCK.read_text()


def test_the_lock_holds_one_version_of_kafka(tmp_path: Path) -> None:
    other = tmp_path / "lock.toml"
    other.write_text(TINY.format(version="3.9.1", sha256="0" * 64))
    with pytest.raises(Misconfigured, match=f"3.9.1, not {KAFKA_VERSION}"):
        locked_jars(other)


def test_a_cut_jar_is_named_so_that_it_can_be_deleted(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_of(tmp_path, monkeypatch, b"whole")
    cache.mkdir(parents=True)
    jar = cache / f"kafka_2.13-{KAFKA_VERSION}.jar"
    jar.write_bytes(b"who")
    with pytest.raises(Misconfigured, match=f"{re.escape(str(jar))} is cut or changed: delete that file"):
        ensure_jars()
    jar.write_bytes(b"whole")
    assert ensure_jars() == [jar]


def test_a_network_that_fails_becomes_one_sentence_and_leaves_no_half_jar(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(Misconfigured) as told:
        ensure_jars()
    assert re.search(r"jar \S+:\S+:\S+ could not be downloaded \(ProxyError\): check the network", str(told.value))
    assert "\n" not in str(told.value)
    assert not list(cache.glob("*.jar"))
    assert not (cache / "scratch").exists()


def test_a_jar_that_a_mirror_changed_never_reaches_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_of(tmp_path, monkeypatch, b"whole")

    def fetcher(staging: Path) -> object:
        def fetch(jar: kafka_jars.LockedJar) -> Path:
            path = staging / jar.name
            path.write_bytes(b"something else")
            return path

        return fetch

    monkeypatch.setattr(kafka_jars, "maven_fetcher", fetcher)
    with pytest.raises(Misconfigured, match="not the locked one"):
        ensure_jars()
    assert not list(cache.glob("*.jar"))


def test_a_cache_that_cannot_be_written_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(Misconfigured, match="set XDG_CACHE_HOME"):
        ensure_jars()
