-- The order API's own tables: customers, API keys, orders, idempotency keys, outbox.

CREATE SCHEMA api;

-- Roles belong to the whole server, and databases may be made side by side on it.
DO $$
BEGIN
    CREATE ROLE orderflow_api NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

-- The customer directory. An erased customer keeps no more than the random id, so that a mail
-- that comes too late is skipped instead of reported as an unknown customer.
CREATE TABLE api.customers (
    customer_id uuid PRIMARY KEY,
    name text,
    email text,
    locale text,
    updated_at timestamptz NOT NULL DEFAULT now(),
    erased_at timestamptz,
    CONSTRAINT customers_known_or_erased CHECK (
        CASE
            WHEN erased_at IS NULL THEN num_nonnulls(name, email, locale) = 3
            ELSE num_nonnulls(name, email, locale) = 0
        END
    )
);

-- Only the hash of a secret is kept; it is shown once, when it is made.
CREATE TABLE api.keys (
    key_id text PRIMARY KEY,
    owner text NOT NULL,
    secret_sha256 bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

CREATE TABLE api.orders (
    order_id uuid PRIMARY KEY,
    owner text NOT NULL,
    customer_id uuid NOT NULL,
    currency text NOT NULL,
    lines jsonb NOT NULL,
    total numeric(18, 4) NOT NULL,
    channel text NOT NULL,
    status text NOT NULL CHECK (status IN ('placed', 'paid', 'cancelled')),
    version integer NOT NULL CHECK (version >= 1),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);

-- The answer that was given under an Idempotency-Key, to give it again.
CREATE TABLE api.idempotency_keys (
    owner text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    body bytea NOT NULL,
    location text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, key)
);
CREATE INDEX idempotency_keys_age ON api.idempotency_keys (created_at);

CREATE TABLE api.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id uuid NOT NULL UNIQUE,
    aggregate_id uuid NOT NULL,
    aggregate_version integer NOT NULL,
    topic text NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    headers jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    last_error text,
    quarantined_at timestamptz,
    UNIQUE (aggregate_id, aggregate_version)
);
-- What the relay reads: never "ids above the last one", since ids commit out of order.
CREATE INDEX outbox_unpublished ON api.outbox (id) WHERE published_at IS NULL;
CREATE INDEX outbox_quarantined ON api.outbox (aggregate_id) WHERE quarantined_at IS NOT NULL;
-- Dead entries of marked rows must go soon: the relay's scan passes over them.
ALTER TABLE api.outbox SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

GRANT USAGE ON SCHEMA api TO orderflow_api;
GRANT SELECT, INSERT, UPDATE ON api.customers, api.keys, api.orders, api.outbox TO orderflow_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON api.idempotency_keys TO orderflow_api;
