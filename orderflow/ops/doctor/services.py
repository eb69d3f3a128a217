"""Looks at PostgreSQL, Redis and the mail server."""

import contextlib
import smtplib
import ssl
from collections.abc import Iterator

import redis
from psycopg import Connection
from redis.exceptions import RedisError

from consumers.runtime import claims
from orderflow.core import clock, database
from orderflow.core.causes import redis as redis_causes
from orderflow.core.causes import smtp as smtp_causes
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings
from orderflow.ops.doctor import judge
from orderflow.ops.doctor.finding import Finding, failed, ok
from orderflow.ops.provision import database as tables
from producers import auth


def postgres(settings: Settings) -> Finding:
    """Open a connection and look at the server's version."""
    with database.connect(settings.database) as connection:
        return judge.postgres_version(connection.info.server_version)


def migrations(settings: Settings) -> list[Finding]:
    """Compare the applied migrations with ours."""
    return judge.problems(tables.check(settings), "all migrations are applied")


def roles(settings: Settings) -> Finding:
    """Log in under each owner's role."""
    for owner in database.ROLES:
        database.connect(settings.database, owner).close()
    return ok(f"we may work under each of the {len(database.ROLES)} roles")


def api_keys(settings: Settings) -> Finding:
    """Count the keys that were not revoked."""
    with database.connect(settings.database, "api") as connection:
        return judge.api_keys(_living(connection), auth=settings.api.auth == "on")


def _living(connection: Connection) -> int:
    return sum(key["revoked_at"] is None for key in auth.keys(connection))


@contextlib.contextmanager
def _redis(settings: Settings) -> Iterator[redis.Redis]:
    """Hand out a client; its errors become the sentence that mends them."""
    with contextlib.closing(claims.connect(settings.redis)) as client:
        try:
            yield client
        except (RedisError, OSError) as error:
            raise Misconfigured(redis_causes.sentence(error, claims.address(client))) from None


def redis_server(settings: Settings) -> Finding:
    """Ask it for its name."""
    with _redis(settings) as client:
        info = client.info("server")
        kind = "Valkey" if "valkey_version" in info else "Redis"
        return ok(f"{kind} {info.get('valkey_version') or info['redis_version']} at {claims.address(client)}")


def redis_policy(settings: Settings) -> Finding:
    """Look at what it does when it is full."""
    with _redis(settings) as client:
        return judge.redis_policy(str(client.info("memory").get("maxmemory_policy")))


def redis_memory(settings: Settings) -> Finding:
    """Look at how full it is."""
    with _redis(settings) as client:
        return judge.redis_memory(client.info("memory"))


def redis_persistence(settings: Settings) -> Finding:
    """Look at what a restart would leave."""
    with _redis(settings) as client:
        return judge.redis_persistence(client.info("persistence"))


def redis_clock(settings: Settings) -> Finding:
    """Compare its clock with ours, half a round trip uncertain."""
    with _redis(settings) as client:
        client.ping()
        before = clock.wall_ms()
        seconds, micros = client.time()
        after = clock.wall_ms()
    theirs = int(seconds) * 1000 + int(micros) / 1000
    return judge.redis_clock((theirs - (before + after) / 2) / 1000, (after - before) / 2000)


def smtp(settings: Settings) -> Finding:
    """Greet the mail server, with TLS and a login where they are set; no mail is sent."""
    mail = settings.smtp
    where = f"{mail.host}:{mail.port}"
    try:
        # A name of our own: the library would ask DNS for one, without a time limit.
        with smtplib.SMTP(mail.host, mail.port, local_hostname="localhost", timeout=mail.timeout_seconds) as client:
            if mail.starttls:
                client.starttls(context=ssl.create_default_context())
            if mail.username is not None:
                client.login(mail.username, mail.password.get_secret_value() if mail.password else "")
            client.ehlo_or_helo_if_needed()
    except OSError as error:  # smtplib's own errors are OSErrors too
        return failed(smtp_causes.sentence(error, where))
    return ok(f"the mail server at {where} answers")
