-- What was mailed, and the customer directory as the email group may see it.
-- depends: api-0001-orders

CREATE SCHEMA email;

-- Roles belong to the whole server: another database may have made it, or be making it right now.
DO $$
BEGIN
    CREATE ROLE orderflow_email NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

CREATE TABLE email.deliveries (
    event_id   uuid PRIMARY KEY,
    state      text NOT NULL CHECK (state IN ('sending', 'sent', 'skipped')),
    message_id text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz,
    CHECK ((state = 'sending') = (ended_at IS NULL))
);

-- Runs with its owner's rights: the group reads these columns and no other of api's.
CREATE VIEW email.directory AS
    SELECT customer_id, email, name, locale, erased_at IS NOT NULL AS erased
    FROM api.customers;

GRANT USAGE ON SCHEMA email TO orderflow_email;
GRANT SELECT, INSERT, UPDATE ON email.deliveries TO orderflow_email;
GRANT SELECT ON email.directory TO orderflow_email;
