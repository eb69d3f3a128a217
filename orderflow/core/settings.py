"""Every setting of the product: one model per role, read from `ORDERFLOW_<ROLE>__<NAME>`.

Sources, first wins: the environment, then `.orderflow/env` in the working folder (written by
`orderflow stack up`). A secret may also be given as `<NAME>_FILE`. An unknown name is refused.
"""

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from orderflow.core.errors import Misconfigured

PREFIX = "ORDERFLOW_"
DELIMITER = "__"
LOCAL_ENV_FILE = Path(".orderflow/env")

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Role(BaseModel):
    """Base of the settings of one role."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(Role):
    """How to reach Kafka, and the one source topic."""

    bootstrap_servers: str = "127.0.0.1:9092"
    source_topic: str = "orders"
    partitions: Count = 12
    replication_factor: Count = 1
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_ca_location: Path | None = None
    ssl_certificate_location: Path | None = None
    ssl_key_location: Path | None = None
    group_protocol: Literal["consumer", "classic"] = "consumer"
    max_message_bytes: Count = 1_048_576
    start_timeout_seconds: Seconds = 10.0


class RedisSettings(Role):
    """Where claims and idempotency keys live."""

    url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    timeout_seconds: Seconds = 1.0


class DatabaseSettings(Role):
    """PostgreSQL. One DSN; each owner works under its own role (`SET ROLE`)."""

    dsn: SecretStr = SecretStr("postgresql://127.0.0.1:5432/orderflow")
    pool_size: Count = 8
    pool_timeout_seconds: Seconds = 5.0


class SmtpSettings(Role):
    """The mail server of the email group."""

    host: str = "127.0.0.1"
    port: Port = 1025
    username: str | None = None
    password: SecretStr | None = None
    starttls: bool = False
    sender: str = "orders@shop.example"
    timeout_seconds: Seconds = 10.0


class ApiSettings(Role):
    """The order API."""

    host: str = "127.0.0.1"
    port: Port = 8080
    metrics_host: str = "127.0.0.1"
    metrics_port: Port | None = None
    access_log: bool = True
    auth: Literal["on", "off"] = "on"
    body_limit_bytes: Count = 65_536
    statement_seconds: Seconds = 10.0
    stop_budget_seconds: Seconds = 10.0
    idempotency_hours: Count = 24
    backlog_max_rows: Count = 50_000
    backlog_max_age_seconds: Seconds = 300.0


class RelaySettings(Role):
    """Outbox to Kafka."""

    batch_rows: Count = 4_000
    poll_seconds: Seconds = 1.0
    lease_seconds: Seconds = 10.0
    metrics_host: str = "127.0.0.1"
    metrics_port: Port | None = None


class WorkerSettings(Role):
    """The consumer runtime: one control thread, one handler pool."""

    slots: Count = 16
    batch_records: Count = 200
    deadline_seconds: Seconds = 30.0
    lease_seconds: Seconds = 30.0
    claim_ttl_hours: Count = 72
    commit_seconds: Seconds = 1.0
    max_poll_seconds: Seconds = 300.0
    revoke_budget_seconds: Seconds = 10.0
    stop_budget_seconds: Seconds = 20.0
    held_records: Count = 1_000
    held_bytes: Count = 16 * 1024 * 1024
    unknown_schema_grace_seconds: Seconds = 900.0
    retry_seconds: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 5, 30)
    metrics_host: str = "127.0.0.1"
    metrics_port: Port | None = None

    @model_validator(mode="after")
    def _times_agree(self) -> Self:
        if self.deadline_seconds >= self.max_poll_seconds / 2:
            message = "deadline_seconds must be below half of max_poll_seconds"
            raise ValueError(message)
        if list(self.retry_seconds) != sorted(set(self.retry_seconds)):
            message = "retry_seconds must rise strictly, as in 1,5,30"
            raise ValueError(message)
        return self

    @property
    def claim_ttl(self) -> timedelta:
        """How long a claim or a done mark is kept in Redis."""
        return timedelta(hours=self.claim_ttl_hours)


class JanitorSettings(Role):
    """How long rows are kept that nobody needs any more."""

    outbox_days: Count = 7
    inbox_days: Count = 90
    batch_rows: Count = 5_000


class Settings(BaseSettings):
    """The whole configuration; `orderflow config` prints it."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    groups: Annotated[tuple[str, ...], NoDecode] = ("email", "inventory", "audit")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"
    state_dir: Path = Path(".orderflow")

    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    database: DatabaseSettings = DatabaseSettings()
    smtp: SmtpSettings = SmtpSettings()
    api: ApiSettings = ApiSettings()
    relay: RelaySettings = RelaySettings()
    worker: WorkerSettings = WorkerSettings()
    janitor: JanitorSettings = JanitorSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what `load` hands in: it has merged the environment, the local file and secret files."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def load(environ: Mapping[str, str] | None = None, env_file: Path = LOCAL_ENV_FILE) -> Settings:
    """Read the settings.

    `environ` is the process environment unless given. Raises `Misconfigured`, naming the
    variable, for an unknown name, a wrong value, or a secret file that cannot be read.
    """
    local = {k: v for k, v in dotenv_values(env_file).items() if v is not None} if env_file.is_file() else {}
    merged = _with_secret_files({**local, **(os.environ if environ is None else environ)})
    tree: dict[str, Any] = {}
    for name, value in merged.items():
        *roles, leaf = name.removeprefix(PREFIX).lower().split(DELIMITER)
        node = tree
        for role in roles:
            node = node.setdefault(role, {})
        node[leaf] = _listed(value) if (roles, leaf) in _LISTS else value
    try:
        return Settings(**tree)
    except ValidationError as error:
        raise Misconfigured(_sentence(error, merged)) from None


_LISTS: tuple[tuple[list[str], str], ...] = (([], "groups"), (["worker"], "retry_seconds"))


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _with_secret_files(environ: Mapping[str, str]) -> dict[str, str]:
    """Keep our variables; replace each `*_FILE` by the content of its file."""
    ours = {name.upper(): value for name, value in environ.items() if name.upper().startswith(PREFIX)}
    for name in [name for name in ours if name.endswith("_FILE")]:
        path = Path(ours.pop(name))
        try:
            ours[name.removesuffix("_FILE")] = path.read_text(encoding="utf-8").rstrip("\n")
        except OSError as error:
            message = f"{name} names {path}, which cannot be read ({error.strerror}); mend the path or its mode"
            raise Misconfigured(message) from None
    return ours


def _sentence(error: ValidationError, given: Iterable[str]) -> str:
    def one(place: Iterable[Any], kind: str, said: str) -> str:
        variable = PREFIX + DELIMITER.join(str(part) for part in place if not isinstance(part, int)).upper()
        if kind == "extra_forbidden":
            # An unknown role is one place for all its names.
            whole = sorted(name for name in given if f"{name}{DELIMITER}".startswith(f"{variable}{DELIMITER}"))
            return "; ".join(map(_unknown, whole or [variable]))
        return f"{variable}: {said[0].lower()}{said[1:]}"

    return "; ".join(one(e["loc"], e["type"], e["msg"]) for e in error.errors(include_input=False))


def _unknown(variable: str) -> str:
    # It reads this module's models.
    from orderflow.core.sources import meant  # noqa: PLC0415

    close = meant(variable)
    hint = f"did you mean {close}? " if close else ""
    return f"{variable} is not a setting of orderflow; {hint}`orderflow config` lists them"
