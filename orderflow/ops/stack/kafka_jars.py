"""Apache Kafka's jars: fetched once through jgo, each one checked against `kafka.lock.toml`.

The lock is jgo's own (coordinates and sha256, no hosts). Because it names every jar, nothing is
resolved at run time: no version can drift, and neither `~/.m2` nor a mirror can slip in another file.
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from jgo.config import GlobalSettings
from jgo.env import LockFile
from jgo.maven import MavenContext

from orderflow.core.errors import Misconfigured

KAFKA_VERSION = "4.3.1"
LOCK = Path(__file__).with_name("kafka.lock.toml")
# kafka-clients is named too: without it the resolver takes 3.9.1 from a dependency and the broker dies.
ENDPOINT = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
    "+org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
)
_FETCHED_AT_ONCE = 6
_TIMEOUT_SECONDS = 30

Progress = Callable[[int, int, str], None]
"""Called with jars done, jars in all, and the name of the last one."""


@dataclass(frozen=True)
class LockedJar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name, the same as in a Maven repository."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """The name people search for."""
        return f"{self.group}:{self.artifact}:{self.version}"


def cache_dir(environ: dict[str, str] | None = None) -> Path:
    """Return where downloads are kept: `$XDG_CACHE_HOME/orderflow`, by default `~/.cache/orderflow`."""
    base = (os.environ if environ is None else environ).get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "orderflow"


def locked_jars(lock: Path = LOCK) -> list[LockedJar]:
    """Read the lock, in class path order. Raises `Misconfigured` when it does not hold the version that we run."""
    jars = [LockedJar(d.groupId, d.artifactId, d.version, d.sha256 or "") for d in LockFile.load(lock).dependencies]
    kafka = {jar.version for jar in jars if jar.group == "org.apache.kafka"}
    if kafka != {KAFKA_VERSION}:
        message = (
            f"{lock.name} locks Kafka {', '.join(sorted(kafka)) or 'nothing'}, not {KAFKA_VERSION} alone; restore it"
        )
        raise Misconfigured(message)
    return jars


def ensure_jars(folder: Path | None = None, progress: Progress | None = None, lock: Path = LOCK) -> list[Path]:
    """Return the class path of the broker, downloading what is missing (44 MB the first time).

    Raises `Misconfigured` when the network fails, when a jar is not the locked one (naming the file
    to delete), or when the cache cannot be written.
    """
    home = folder or cache_dir() / f"kafka-{KAFKA_VERSION}"
    jars = locked_jars(lock)
    missing = [jar for jar in jars if not (home / jar.name).exists()]
    if missing:
        try:
            home.mkdir(parents=True, exist_ok=True)
            _fetch(missing, home, len(jars), progress)
        except PermissionError as error:
            message = f"{error.filename} cannot be written; set XDG_CACHE_HOME to a folder that can"
            raise Misconfigured(message) from None
    for jar in jars:
        _verify(home / jar.name, jar)
    return [home / jar.name for jar in jars]


def _fetch(missing: Sequence[LockedJar], home: Path, total: int, progress: Progress | None) -> None:
    # jgo writes straight to the final name; a staging folder keeps a cut download out of the cache.
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=home) as staging:
        remotes = GlobalSettings.load().repositories or None
        maven = MavenContext(repo_cache=Path(staging), remote_repos=remotes, timeout=_TIMEOUT_SECONDS)

        def fetch(jar: LockedJar) -> LockedJar:
            path = maven.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
            _verify(path, jar, fresh=True)
            path.replace(home / jar.name)
            return jar

        pool = ThreadPoolExecutor(_FETCHED_AT_ONCE, thread_name_prefix="jars")
        try:
            waiting = {pool.submit(fetch, jar): jar for jar in missing}
            for done, future in enumerate(as_completed(waiting), start=1 + total - len(missing)):
                jar = waiting[future]
                try:
                    future.result()
                except PermissionError:
                    raise
                except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
                    logging.getLogger(__name__).debug("%s", error)
                    message = (
                        f"Kafka's jar {jar.coordinates} could not be downloaded ({type(error).__name__}): "
                        f"check the network, the proxy and the CA settings, then run it again; "
                        f"what was fetched so far is kept in {home}"
                    )
                    raise Misconfigured(message) from None
                if progress is not None:
                    progress(done, total, jar.name)
        finally:
            pool.shutdown(cancel_futures=True)


def _verify(path: Path, jar: LockedJar, *, fresh: bool = False) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found == jar.sha256:
        return
    if fresh:
        message = f"what was downloaded as {jar.coordinates} has sha256 {found}, not the locked one: a proxy or mirror changed it"
        raise Misconfigured(message)
    message = f"{path} is cut or changed (not the locked {jar.coordinates}); delete that file and run it again"
    raise Misconfigured(message)
