"""`orderflow relay`: outbox to Kafka as a process."""


def relay() -> None:
    """Publish the outbox to Kafka until it is told to stop."""
    from orderflow.core import log, settings
    from producers import relay_process

    effective = settings.load()
    log.configure(effective.log_level, effective.log_format, role="relay")
    relay_process.run(effective)
