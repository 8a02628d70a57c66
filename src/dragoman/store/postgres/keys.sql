-- The statements about keys and the audit trail. Positional values are in the order of their numbers.

-- name: find_key
-- A key by its id.
SELECT id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules FROM dragoman.keys WHERE id = $1;

-- name: any_key
-- Whether there is a key. None is ever deleted.
SELECT true FROM dragoman.keys LIMIT 1;

-- name: add_key
-- A new key.
INSERT INTO dragoman.keys (id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: revoke_key
-- Mark a key as revoked, unless it is already.
UPDATE dragoman.keys SET revoked_ms = $2 WHERE id = $1 AND revoked_ms IS NULL RETURNING id;

-- name: replace_key
-- Let an active key end: revoke it if $3 is not after $2, which is now, else let it expire at $3 if not before. Another key is
-- stored if there was such a key.
WITH ended AS (
    UPDATE dragoman.keys SET revoked_ms = CASE WHEN $3::bigint <= $2::bigint THEN $2::bigint END,
        expires_ms = CASE WHEN $3::bigint <= $2::bigint THEN expires_ms ELSE least(expires_ms, $3::bigint) END
    WHERE id = $1 AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > $2::bigint) RETURNING id
)
INSERT INTO dragoman.keys (id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules)
SELECT $4::text, $5::text, $6::text, $7::text[], $8::text[], $9::bytea, $10::bigint, $11::bigint, $12::bigint, $13,
    $14::bigint
FROM ended RETURNING id;

-- name: all_keys
-- All keys, oldest first.
SELECT id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules FROM dragoman.keys ORDER BY key;

-- name: limit_key
-- Replace the limits of a key that is not revoked.
UPDATE dragoman.keys SET limits = $2 WHERE id = $1 AND revoked_ms IS NULL RETURNING id;

-- name: signing_key
-- The server's key for signatures.
SELECT kid, jwk, made_ms FROM dragoman.signing_keys;

-- name: offer_signing_key
-- A key for signatures, unless there is one.
INSERT INTO dragoman.signing_keys (kid, jwk, made_ms) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: add_audit
-- New entries, in order.
INSERT INTO dragoman.audit (at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key)
SELECT v.at_ms, v.principal, v.action, v.agent, v.task_id, v.allowed, v.reason, v.peer, v.subject, v.key
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::text[], $9::text[],
        $10::text[])
    WITH ORDINALITY AS v (at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key, place)
ORDER BY v.place;

-- name: read_audit
-- The newest matching entries before the entry $1, newest first, at most $2: by principal, action, agent, text in lower case,
-- each null for all; by time, and by the id of the key.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM dragoman.audit
WHERE entry < $1
    AND ($3::text IS NULL OR principal = $3) AND ($4::text IS NULL OR action = $4 OR starts_with(action, $4 || '.'))
    AND ($5::text IS NULL OR agent = $5) AND ($6::text IS NULL OR strpos(lower(concat_ws(' ', principal, action, agent, task_id,
        reason, peer, subject, key)), $6) > 0) AND at_ms >= $7 AND ($8::bigint IS NULL OR at_ms < $8)
    AND ($9::text IS NULL OR key = $9)
ORDER BY entry DESC LIMIT $2;

-- name: read_refused
-- The same for refusals.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM dragoman.audit
WHERE NOT allowed AND entry < $1
    AND ($3::text IS NULL OR principal = $3) AND ($4::text IS NULL OR action = $4 OR starts_with(action, $4 || '.'))
    AND ($5::text IS NULL OR agent = $5) AND ($6::text IS NULL OR strpos(lower(concat_ws(' ', principal, action, agent, task_id,
        reason, peer, subject, key)), $6) > 0) AND at_ms >= $7 AND ($8::bigint IS NULL OR at_ms < $8)
    AND ($9::text IS NULL OR key = $9)
ORDER BY entry DESC LIMIT $2;

-- name: read_audit_forward
-- The oldest matching entries after the entry $1, oldest first; $10 says whether only refusals.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM dragoman.audit
WHERE entry > $1 AND (NOT $10::boolean OR NOT allowed)
    AND ($3::text IS NULL OR principal = $3) AND ($4::text IS NULL OR action = $4 OR starts_with(action, $4 || '.'))
    AND ($5::text IS NULL OR agent = $5) AND ($6::text IS NULL OR strpos(lower(concat_ws(' ', principal, action, agent, task_id,
        reason, peer, subject, key)), $6) > 0) AND at_ms >= $7 AND ($8::bigint IS NULL OR at_ms < $8)
    AND ($9::text IS NULL OR key = $9)
ORDER BY entry LIMIT $2;

-- name: read_acts
-- The last $2 administrative acts since the transaction $1, newest first, and the transaction of each. Those of
-- transactions that began after the oldest one under way are left for later, since others may still come before them.
SELECT xact, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM dragoman.audit
WHERE strpos(action, '.') > 0 AND xact >= $1 AND xact < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY entry DESC LIMIT $2;

-- name: acts_end
-- The transaction after that of the last administrative act; 0 if there is none.
SELECT coalesce(max(xact) + 1, 0) FROM dragoman.audit
WHERE strpos(action, '.') > 0 AND xact < pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: sweep_audit
-- Delete the entries at the front, at most $2, as long as they are older than a time.
DELETE FROM dragoman.audit WHERE entry IN (
    SELECT entry FROM (SELECT entry, at_ms FROM dragoman.audit ORDER BY entry LIMIT $2) front WHERE at_ms < $1)
RETURNING entry;
