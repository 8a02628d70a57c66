-- Deliveries by size and dialect: large ones are claimed apart, so that they do not delay the small ones.

-- The dialect in which the body was rendered; empty means that of the webhook.
ALTER TABLE deliveries ADD COLUMN dialect TEXT NOT NULL DEFAULT '';

-- `large` says that the oldest pending delivery has a body of more than 16384 bytes.
ALTER TABLE push_configs ADD COLUMN large INTEGER NOT NULL DEFAULT 0;
UPDATE push_configs SET large = coalesce((SELECT length(o.body) > 16384 FROM deliveries o
    WHERE o.config = push_configs.config AND o.dead = 0 ORDER BY o.delivery LIMIT 1), 0);
DROP INDEX push_configs_due;
CREATE INDEX push_configs_due ON push_configs (host, large, due_ms, claimed);

-- `due_ms` is now when the first small delivery is due, `large_ms` when the first large one is.
ALTER TABLE push_hosts ADD COLUMN large_ms INTEGER;
UPDATE push_hosts SET
    due_ms = (SELECT min(c.due_ms) FROM push_configs c WHERE c.host = push_hosts.host AND c.large = 0),
    large_ms = (SELECT min(c.due_ms) FROM push_configs c WHERE c.host = push_hosts.host AND c.large = 1);
CREATE INDEX push_hosts_large ON push_hosts (lane, large_ms) WHERE large_ms IS NOT NULL;
