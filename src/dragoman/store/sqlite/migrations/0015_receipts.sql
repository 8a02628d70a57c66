-- Deliveries that arrived, kept for a while for operators.

-- `delivery` is the number that it had, `config_id` the id of its webhook, which may be gone. `attempts` counts the failed ones
-- before it arrived, `reason` says why the last of them failed. `bytes` and `digest` are those of the body.
CREATE TABLE receipts (
    delivery INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    part INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    status INTEGER NOT NULL,
    took_ms INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    arrived_ms INTEGER NOT NULL,
    id TEXT NOT NULL,
    config_id TEXT NOT NULL,
    url TEXT NOT NULL,
    dialect TEXT NOT NULL,
    reason TEXT NOT NULL,
    digest BLOB NOT NULL
) STRICT;
CREATE INDEX receipts_by_task ON receipts (task, delivery);
CREATE INDEX receipts_by_age ON receipts (arrived_ms);
