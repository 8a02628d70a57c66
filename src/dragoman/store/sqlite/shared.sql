-- The statements about shared entries, buckets and counts.

-- name: get_entry
-- The entry ?1, unless it has expired at ?2.
SELECT key, value, version, expires_ms - ?2 FROM shared WHERE key = ?1 AND counter = '' AND expires_ms > ?2;

-- name: scan_entries
-- The entries whose keys begin with ?1, of ?3 characters, unless they have expired at ?2.
SELECT key, value, version, expires_ms - ?2 FROM shared
WHERE key >= ?1 AND substr(key, 1, ?3) = ?1 AND key < ?1 || char(1114111) AND counter = '' AND expires_ms > ?2
ORDER BY key;

-- name: put_entry
-- Write the entry ?1 with the value ?2 until ?3, at ?4, if ?5 is null or the version of the present one, 0 for none.
INSERT INTO shared (key, counter, value, version, amount, expires_ms)
SELECT ?1, '', ?2, ?4, 0, ?3
WHERE ?5 IS NULL
    OR ?5 = coalesce((SELECT version FROM shared WHERE key = ?1 AND counter = '' AND expires_ms > ?4), 0)
ON CONFLICT (key, counter) DO UPDATE
SET value = excluded.value, version = max(shared.version + 1, excluded.version), expires_ms = excluded.expires_ms
RETURNING version;

-- name: renew_entries
-- Let the entries of a JSON array of keys, if they have not expired at ?2, expire at ?3 at the earliest.
UPDATE shared SET expires_ms = max(expires_ms, ?3)
WHERE key IN (SELECT value FROM json_each(?1)) AND counter = '' AND expires_ms > ?2 RETURNING key;

-- name: delete_entry
-- Delete the entry ?1, if it has not expired at ?2, with the version ?3 unless that is null.
DELETE FROM shared WHERE key = ?1 AND counter = '' AND expires_ms > ?2 AND (?3 IS NULL OR version = ?3);

-- name: spend
-- Let the bucket ?1 be full ?2 microseconds later than it would be, from ?3 on at the earliest.
INSERT INTO shared (key, counter, version, amount, expires_ms) VALUES (?1, 'bucket', 0, ?3 + ?2, (?3 + ?2) / 1000 + 1)
ON CONFLICT (key, counter) DO UPDATE
SET amount = max(shared.amount, ?3) + ?2, expires_ms = (max(shared.amount, ?3) + ?2) / 1000 + 1
RETURNING amount - ?3;

-- name: put_count
-- Set the count ?3 of the counter ?2 under the key ?1 until ?4.
INSERT INTO shared (key, counter, version, amount, expires_ms) VALUES (?1, ?2, 0, ?3, ?4)
ON CONFLICT (key, counter) DO UPDATE SET amount = excluded.amount, expires_ms = excluded.expires_ms;

-- name: drop_count
-- Remove the count of the counter ?2 under the key ?1.
DELETE FROM shared WHERE key = ?1 AND counter = ?2;

-- name: sum_counts
-- The sums of the counts of all but the counter ?2, by each key of a JSON array, unless they have expired at ?3.
SELECT key, sum(amount) FROM shared
WHERE key IN (SELECT value FROM json_each(?1)) AND counter <> ?2 AND expires_ms > ?3 GROUP BY key;

-- name: sweep_shared
-- Delete what has expired at ?1, at most ?2.
DELETE FROM shared WHERE (key, counter) IN
    (SELECT key, counter FROM shared INDEXED BY shared_by_expiry WHERE expires_ms <= ?1 LIMIT ?2);

-- name: old_shared
-- Whether anything has expired at ?1.
SELECT EXISTS (SELECT 1 FROM shared WHERE expires_ms <= ?1);
