-- The role stays: it belongs to the server, and other databases may use it.
DROP SCHEMA inventory CASCADE;
