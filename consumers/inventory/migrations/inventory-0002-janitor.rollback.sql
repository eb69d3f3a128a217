REVOKE ALL ON inventory.inbox FROM orderflow_janitor;
REVOKE USAGE ON SCHEMA inventory FROM orderflow_janitor;
