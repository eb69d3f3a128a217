-- The role stays: it belongs to the server, and other databases may use it.
DROP TRIGGER outbox_loses_nothing ON api.outbox;
DROP FUNCTION api.refuse_to_lose_an_event();
REVOKE ALL ON api.outbox, api.idempotency_keys FROM orderflow_janitor;
REVOKE USAGE ON SCHEMA api FROM orderflow_janitor;
