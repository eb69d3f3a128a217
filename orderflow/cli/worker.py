"""`orderflow worker GROUP`: one process of one consumer group."""

from typing import Annotated

import typer


def worker(
    group: Annotated[str, typer.Argument(help="A group's name, or module:attribute of a ConsumerGroup.")],
) -> None:
    """Run a worker of a consumer group until it is stopped (SIGTERM, Ctrl-C)."""
    from consumers.runtime.assembly import run_group
    from consumers.runtime.loading import is_listed, load_group
    from orderflow.core import log
    from orderflow.core.lifecycle import Stop, quiet_collector, stop_on_signals
    from orderflow.core.metrics import Metrics
    from orderflow.core.settings import load
    from orderflow.ops.provision.readiness import assert_worker_may_start

    settings = load()
    loaded = load_group(group, settings.groups)
    log.configure(settings.log_level, settings.log_format, role="worker", group=loaded.name)
    unlisted = None if is_listed(group, settings.groups) else group
    assert_worker_may_start(settings, loaded.name, unlisted=unlisted)
    metrics = Metrics()
    if settings.worker.metrics_port is not None:
        metrics.serve(settings.worker.metrics_host, settings.worker.metrics_port)
    with stop_on_signals(Stop(), budget_seconds=settings.worker.stop_budget_seconds) as stop:
        quiet_collector()
        run_group(loaded, settings, stop, metrics)
