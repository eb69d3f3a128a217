-- Ordered by id alone, this index competed with the primary key, and where the statistics were of another moment
-- the planner went along the primary key, past every row ever published. Only this one has the relay's order now.
CREATE INDEX outbox_pending ON api.outbox (published_at, id) WHERE published_at IS NULL;
DROP INDEX api.outbox_unpublished;
