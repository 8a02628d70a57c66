-- The statements about operators' records.

-- name: put_record
-- The next version of a record, if the present one is $3, 0 for none. A write of another transaction at the same moment has the
-- same revision: this one waits for it, and then returns no row.
INSERT INTO dragoman.operator_records (kind, id, version, body, changed_ms, revision)
SELECT $1::text, $2::text, $3::bigint + 1, $4::bytea, $5::bigint, (SELECT coalesce(max(revision), 0) + 1 FROM dragoman.operator_records)
WHERE $3::bigint = (SELECT coalesce(max(version), 0) FROM dragoman.operator_records WHERE kind = $1::text AND id = $2::text)
ON CONFLICT DO NOTHING RETURNING revision;

-- name: rewrite_record
-- Another body for a version that has the body $4.
UPDATE dragoman.operator_records SET body = $5 WHERE kind = $1 AND id = $2 AND version = $3 AND body = $4 RETURNING version;

-- name: prune_records
-- Delete the versions of a record up to $3.
DELETE FROM dragoman.operator_records WHERE kind = $1 AND id = $2 AND version <= $3;

-- name: record_versions
-- The newest versions of a record, at most $3.
SELECT kind, id, version, body, changed_ms, revision FROM dragoman.operator_records
WHERE kind = $1 AND id = $2 ORDER BY version DESC LIMIT $3;

-- name: read_records
-- All versions from the revision $1 on.
SELECT kind, id, version, body, changed_ms, revision FROM dragoman.operator_records WHERE revision >= $1 ORDER BY revision;
