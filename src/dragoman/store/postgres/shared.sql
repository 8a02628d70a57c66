-- The statements about shared entries, buckets and counts. `t` is the time of the database.

-- name: get_entry
-- The entry $1.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms)
SELECT s.key, s.value, s.version, s.expires_ms - t.ms FROM dragoman.shared s, t
WHERE s.key = $1 AND s.counter = '' AND s.expires_ms > t.ms;

-- name: scan_entries
-- The entries whose keys begin with $1.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms)
SELECT s.key, s.value, s.version, s.expires_ms - t.ms FROM dragoman.shared s, t
WHERE s.key >= $1 AND s.key < $1 || chr(1114111) AND starts_with(s.key, $1) AND s.counter = '' AND s.expires_ms > t.ms
ORDER BY s.key;

-- name: put_entry
-- Write the entry $1 with the value $2 for $3 milliseconds; with $4 only if there is none.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms)
INSERT INTO dragoman.shared AS s (key, counter, value, version, amount, expires_ms)
SELECT $1, '', $2, t.ms, 0, t.ms + $3 FROM t
ON CONFLICT (key, counter) DO UPDATE SET value = excluded.value, expires_ms = excluded.expires_ms,
    version = greatest(s.version + 1, excluded.version)
WHERE NOT $4::boolean OR s.expires_ms <= excluded.version
RETURNING s.version;

-- name: replace_entry
-- Write the entry $1 with the value $2 for $3 milliseconds, if the present one has the version $4.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms)
UPDATE dragoman.shared s SET value = $2, expires_ms = t.ms + $3, version = greatest(s.version + 1, t.ms)
FROM t WHERE s.key = $1 AND s.counter = '' AND s.version = $4 AND s.expires_ms > t.ms
RETURNING s.version;

-- name: renew_entries
-- Let the entries of the keys $1 expire in $2 milliseconds at the earliest. Rows are locked in order, against deadlocks.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms),
    locked AS MATERIALIZED
        (SELECT key FROM dragoman.shared WHERE key = ANY ($1::text[]) AND counter = '' ORDER BY key FOR UPDATE)
UPDATE dragoman.shared s SET expires_ms = greatest(s.expires_ms, t.ms + $2)
FROM locked, t WHERE s.key = locked.key AND s.counter = '' AND s.expires_ms > t.ms
RETURNING s.key;

-- name: delete_entry
-- Delete the entry $1, with the version $2 unless that is null.
DELETE FROM dragoman.shared WHERE key = $1 AND counter = '' AND ($2::bigint IS NULL OR version = $2)
    AND expires_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint
RETURNING key;

-- name: spend
-- Let each bucket of the keys $1 be full later, by the microseconds $2. The cost goes in as the version, where the update finds it.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us),
    spent AS (
        INSERT INTO dragoman.shared AS s (key, counter, version, amount, expires_ms)
        SELECT v.key, 'bucket', v.cost, t.us + v.cost, (t.us + v.cost) / 1000 + 1
        FROM t, unnest($1::text[], $2::bigint[]) AS v (key, cost) ORDER BY v.key
        ON CONFLICT (key, counter) DO UPDATE SET version = excluded.version,
            amount = greatest(s.amount, excluded.amount - excluded.version) + excluded.version,
            expires_ms = (greatest(s.amount, excluded.amount - excluded.version) + excluded.version) / 1000 + 1
        RETURNING s.key, s.amount)
SELECT spent.key, spent.amount - t.us FROM spent, t;

-- name: tally
-- Set the counts $3 of the counter $2 under the keys $1 for $4 milliseconds, and return the sums of the others. No other counter
-- touches these rows.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms),
    told AS MATERIALIZED (SELECT key, count FROM unnest($1::text[], $3::bigint[]) AS v (key, count)),
    dropped AS (DELETE FROM dragoman.shared s USING told WHERE s.key = told.key AND s.counter = $2 AND told.count = 0),
    written AS (
        INSERT INTO dragoman.shared AS s (key, counter, version, amount, expires_ms)
        SELECT told.key, $2, 0, told.count, t.ms + $4 FROM told, t WHERE told.count > 0
        ON CONFLICT (key, counter) DO UPDATE SET amount = excluded.amount, expires_ms = excluded.expires_ms)
SELECT s.key, sum(s.amount)::bigint FROM dragoman.shared s, t
WHERE s.key = ANY ($1::text[]) AND s.counter <> $2 AND s.expires_ms > t.ms GROUP BY s.key;

-- name: sweep_shared
-- Delete what has expired, at most $1 rows.
DELETE FROM dragoman.shared WHERE (key, counter) IN (
    SELECT key, counter FROM dragoman.shared WHERE expires_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING 1;
