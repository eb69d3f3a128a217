-- The janitor's own role: who takes and publishes orders cannot delete any, and who deletes can do nothing else.

-- Roles belong to the whole server: another database may have made it, or be making it right now.
DO $$
BEGIN
    CREATE ROLE orderflow_janitor NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

GRANT USAGE ON SCHEMA api TO orderflow_janitor;
-- UPDATE of one column is what locking a row asks for.
GRANT SELECT, DELETE, UPDATE (last_error) ON api.outbox TO orderflow_janitor;
GRANT SELECT, DELETE, UPDATE (location) ON api.idempotency_keys TO orderflow_janitor;

-- Whatever a program says: an event that Kafka does not have is not deleted.
CREATE FUNCTION api.refuse_to_lose_an_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'outbox row % was never published', OLD.id USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER outbox_loses_nothing BEFORE DELETE ON api.outbox
    FOR EACH ROW WHEN (OLD.published_at IS NULL) EXECUTE FUNCTION api.refuse_to_lose_an_event();
