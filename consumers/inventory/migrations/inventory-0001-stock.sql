-- Stock, what is reserved of it, where each order stands, and the inbox.

CREATE SCHEMA inventory;

-- Roles belong to the whole server: another database may have made it, or be making it right now.
DO $$
BEGIN
    CREATE ROLE orderflow_inventory NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

CREATE TABLE inventory.stock (
    sku      text PRIMARY KEY,
    on_hand  bigint NOT NULL CHECK (on_hand >= 0),
    reserved bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    CONSTRAINT never_oversold CHECK (reserved <= on_hand)
);

CREATE TABLE inventory.orders (
    order_id     uuid PRIMARY KEY,
    state        text NOT NULL DEFAULT 'unknown'
                 CHECK (state IN ('unknown', 'reserved', 'out_of_stock', 'cancelled')),
    paid         boolean NOT NULL DEFAULT false,
    last_version integer NOT NULL DEFAULT 0,
    short_skus   text[] NOT NULL DEFAULT '{}',
    changed_at   timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN inventory.orders.state IS 'unknown: an event came before the order''s creation did';
COMMENT ON COLUMN inventory.orders.short_skus IS 'what there was too little of, for out_of_stock';

CREATE TABLE inventory.reservations (
    order_id uuid NOT NULL REFERENCES inventory.orders,
    sku      text NOT NULL REFERENCES inventory.stock,
    quantity bigint NOT NULL CHECK (quantity > 0),
    UNIQUE (order_id, sku)
);

CREATE TABLE inventory.inbox (
    group_name text NOT NULL,
    epoch      integer NOT NULL,
    event_id   uuid NOT NULL,
    outcome    text NOT NULL CHECK (outcome IN ('applied', 'stale')),
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_name, epoch, event_id)
);

GRANT USAGE ON SCHEMA inventory TO orderflow_inventory;
GRANT SELECT, INSERT, UPDATE ON inventory.stock, inventory.orders, inventory.inbox TO orderflow_inventory;
GRANT SELECT, INSERT, DELETE ON inventory.reservations TO orderflow_inventory;
