-- The id of the key with which something was made or done; null, or empty in the audit trail, for what came before, and for what
-- needed no key.

ALTER TABLE tasks ADD COLUMN key TEXT;
ALTER TABLE push_configs ADD COLUMN key TEXT;
ALTER TABLE audit ADD COLUMN key TEXT NOT NULL DEFAULT '';

-- The webhooks of a key, which end with it.
CREATE INDEX push_configs_by_key ON push_configs (key) WHERE key IS NOT NULL;
