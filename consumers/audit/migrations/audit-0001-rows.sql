-- One row per event, only ever added to.

CREATE SCHEMA audit;

-- Roles belong to the whole server: another database may have made it, or be making it right now.
DO $$
BEGIN
    CREATE ROLE orderflow_audit NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

CREATE TABLE audit.rows (
    epoch         integer NOT NULL,
    event_id      uuid NOT NULL,
    event_type    text NOT NULL,
    order_id      uuid NOT NULL,
    order_version integer NOT NULL,
    occurred_at   timestamptz NOT NULL,
    topic         text NOT NULL,
    partition     integer NOT NULL,
    record_offset bigint NOT NULL,
    value_sha256  bytea NOT NULL CHECK (octet_length(value_sha256) = 32),
    recorded_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (epoch, event_id)
);
COMMENT ON COLUMN audit.rows.topic IS 'where this delivery was read: the source, or a retry or replay topic of the group';

CREATE INDEX rows_by_event ON audit.rows (event_id);
CREATE INDEX rows_by_order ON audit.rows (order_id, order_version);

-- `audit verify` compares through a temporary table.
DO $$
BEGIN
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO orderflow_audit', current_database());
END
$$;

GRANT USAGE ON SCHEMA audit TO orderflow_audit;
GRANT SELECT, INSERT ON audit.rows TO orderflow_audit;
