-- The janitor may forget old entries of the inbox.
-- depends: api-0003-janitor

GRANT USAGE ON SCHEMA inventory TO orderflow_janitor;
-- UPDATE of one column is what locking a row asks for.
GRANT SELECT, DELETE, UPDATE (outcome) ON inventory.inbox TO orderflow_janitor;
