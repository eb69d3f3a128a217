"""Apache Kafka's jars: fetched once through jgo, each one checked against `kafka.lock.toml`.

The lock is jgo's own (coordinates and sha256, no hosts). Because it names every jar, nothing is
resolved at run time: no version can drift, and neither `~/.m2` nor a mirror can slip in another file.
To write a new one: `jgo.build(ENDPOINT)`, then copy the `jgo.lock.toml` that it leaves, without its date.
"""

import hashlib
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from orderflow.core.errors import Misconfigured
from orderflow.ops.stack.cache import cache_dir, scratch
from orderflow.ops.stack.progress import Reporter, Silent

KAFKA_VERSION = "4.3.1"
LOCK = Path(__file__).with_name("kafka.lock.toml")
# kafka-clients is named too: without it the resolver takes 3.9.1 from a dependency and the broker dies.
ENDPOINT = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
    "+org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
)
_FETCHED_AT_ONCE = 6
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class LockedJar:
    """One entry of the lock."""

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


def jar_dir() -> Path:
    """Return the folder of the jars."""
    return cache_dir() / f"kafka-{KAFKA_VERSION}"


def locked_jars(lock: Path = LOCK) -> list[LockedJar]:
    """Read the lock, in class path order. Raises `Misconfigured` when it does not hold the version that we run."""
    lines = tomllib.loads(lock.read_text(encoding="utf-8"))["dependencies"]
    jars = [LockedJar(line["groupId"], line["artifactId"], line["version"], line["sha256"]) for line in lines]
    kafka = {jar.version for jar in jars if jar.group == "org.apache.kafka"}
    if kafka != {KAFKA_VERSION}:
        found = ", ".join(sorted(kafka)) or "nothing"
        message = f"{lock.name} locks Kafka {found}, not {KAFKA_VERSION} alone; restore that file"
        raise Misconfigured(message)
    return jars


def ensure_jars(progress: Reporter | None = None) -> list[Path]:
    """Return the class path of a broker, downloading what is missing (44 MB the first time).

    Raises `Misconfigured` when the network fails, when a jar is not the locked one (naming the file
    to delete), or when the cache cannot be written.
    """
    folder, jars = jar_dir(), locked_jars()
    if any(not (folder / jar.name).exists() for jar in jars):
        with scratch(folder) as staging:
            missing = [jar for jar in jars if not (folder / jar.name).exists()]
            fetch = maven_fetcher(staging)
            _fetch_all(missing, fetch, folder, len(jars), progress or Silent())
    for jar in jars:
        if _sha256(folder / jar.name) != jar.sha256:
            message = f"{folder / jar.name} is cut or changed: delete that file and run it again"
            raise Misconfigured(message)
    return [folder / jar.name for jar in jars]


def maven_fetcher(staging: Path) -> Callable[[LockedJar], Path]:
    """Return the function that downloads one jar by jgo into `staging`; it honours repositories of jgo's own config."""
    # Only to download: jgo takes 0.25 s to import.
    from jgo.config import GlobalSettings  # noqa: PLC0415
    from jgo.maven import MavenContext  # noqa: PLC0415

    remotes = GlobalSettings.load().repositories or None
    # Not ~/.m2: a jar that was cut there would poison us, and a warm one would hide a broken cold start.
    maven = MavenContext(repo_cache=staging, remote_repos=remotes, timeout=_TIMEOUT_SECONDS)

    def fetch(jar: LockedJar) -> Path:
        path: Path = maven.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
        return path

    return fetch


def _fetch_all(
    missing: Sequence[LockedJar], fetch: Callable[[LockedJar], Path], folder: Path, total: int, progress: Reporter
) -> None:
    def fetch_one(jar: LockedJar) -> None:
        path = fetch(jar)
        found = _sha256(path)
        if found != jar.sha256:
            message = (
                f"{jar.coordinates} came with sha256 {found}, which is not the locked one: a proxy or mirror changed it"
            )
            raise Misconfigured(message)
        path.replace(folder / jar.name)

    pool = ThreadPoolExecutor(_FETCHED_AT_ONCE, thread_name_prefix="jars")
    try:
        waiting = {pool.submit(fetch_one, jar): jar for jar in missing}
        for done, future in enumerate(as_completed(waiting), start=1 + total - len(missing)):
            jar = waiting[future]
            try:
                future.result()
            except (OSError, RuntimeError) as error:  # those of `requests` are OSErrors
                raise Misconfigured(_why_not_fetched(jar, error, folder)) from None
            progress.jar(done, total, jar.name)
    finally:
        pool.shutdown(cancel_futures=True)


def _why_not_fetched(jar: LockedJar, error: Exception, folder: Path) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be written ({error.strerror}); make room or set XDG_CACHE_HOME"
    return (
        f"Kafka's jar {jar.coordinates} could not be downloaded ({type(error).__name__}): check the network, "
        f"the proxy and the CA settings, then run it again; what came so far is kept in {folder}"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
