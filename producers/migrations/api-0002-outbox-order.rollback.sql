CREATE INDEX outbox_unpublished ON api.outbox (id) WHERE published_at IS NULL;
DROP INDEX api.outbox_pending;
