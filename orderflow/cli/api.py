"""`orderflow api`: the order API as a process."""


def api() -> None:
    """Run the order API until it is told to stop."""
    from orderflow.core import log, settings
    from producers import server

    effective = settings.load()
    log.configure(effective.log_level, effective.log_format, role="api")
    server.serve(effective)
