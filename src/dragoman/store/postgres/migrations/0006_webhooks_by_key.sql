-- serves: 1

-- The webhooks of a key, which end with it.
CREATE INDEX CONCURRENTLY push_configs_by_key ON dragoman.push_configs (key) WHERE key IS NOT NULL;
