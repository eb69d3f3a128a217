# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# The peer lives in an environment of its own, where no checker looks.
"""Quix Streams: one record at a time; a commit a second."""

from typing import Any

from quixstreams import Application, message_context
from quixstreams.sinks import BatchingSink, SinkBatch

from benchmarks.consuming.meter import Meter
from benchmarks.consuming.task import Task, answer
from benchmarks.peers import work


def main(task: Task) -> None:
    """Read the topic."""
    meter = Meter(task.calls)
    app = Application(
        task.bootstrap,
        consumer_group=task.group_id,
        auto_offset_reset="error",
        commit_interval=1.0,
        auto_create_topics=False,
        use_changelog_topics=False,
        consumer_extra_config={"fetch.queue.backoff.ms": 20},
        loglevel="ERROR",
    )
    records = app.dataframe(app.topic(task.topic, key_deserializer="bytes", value_deserializer="bytes"))
    handle = work.plain(task, meter)

    class Sink(BatchingSink):
        def add(self, *record: Any, **named: Any) -> None:
            meter.begin()  # the first call of `write` comes with the first commit
            super().add(*record, **named)

        def write(self, batch: SinkBatch) -> None:
            meter.handled_batch(batch.size)
            if meter.finished.is_set():
                app.stop()

    def one(value: Any) -> None:
        place = message_context()
        handle(value, f"{place.partition}:{place.offset}")
        if meter.finished.is_set():
            app.stop()

    if task.style == "batch":
        records.sink(Sink())
    elif task.claims:
        records.update(one)
    else:
        records.update(lambda value: (handle(value, ""), meter.finished.is_set() and app.stop()))
    app.run()
    answer(meter.figures())


if __name__ == "__main__":
    main(Task.from_arguments())
