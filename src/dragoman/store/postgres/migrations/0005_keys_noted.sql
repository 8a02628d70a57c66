-- serves: 1

-- The id of the key with which something was made or done; null, or empty in the audit trail, for what came before, and for what
-- needed no key.
ALTER TABLE dragoman.tasks ADD COLUMN key text COLLATE "C";
ALTER TABLE dragoman.push_configs ADD COLUMN key text COLLATE "C";
ALTER TABLE dragoman.audit ADD COLUMN key text NOT NULL DEFAULT '';
