-- The statements about keys.

-- name: find_key
-- A key by its id, even if it is revoked or expired.
SELECT id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules, one_person, team FROM dragoman.keys WHERE id = $1;

-- name: any_key
-- Whether a key was ever made. Rows are never deleted.
SELECT EXISTS (SELECT 1 FROM dragoman.keys);

-- name: all_keys
-- Every key, oldest first.
SELECT id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules, one_person, team FROM dragoman.keys ORDER BY key;

-- name: add_key
-- A new key.
INSERT INTO dragoman.keys (id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules, one_person, team)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING id;

-- name: revoke_key
-- Revoke a key that is not revoked yet.
UPDATE dragoman.keys SET revoked_ms = $2 WHERE id = $1 AND revoked_ms IS NULL RETURNING id;

-- name: end_key
-- Let an active key end: revoke it if $3 is not after $2, which is now, else let it expire at $3 if not before.
UPDATE dragoman.keys SET revoked_ms = CASE WHEN $3::bigint <= $2::bigint THEN $2::bigint END,
    expires_ms = CASE WHEN $3::bigint <= $2::bigint THEN expires_ms ELSE least(coalesce(expires_ms, $3::bigint), $3::bigint) END
WHERE id = $1 AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > $2::bigint) RETURNING id;

-- name: limit_key
-- Replace the limits of a key that is not revoked.
UPDATE dragoman.keys SET limits = $2 WHERE id = $1 AND revoked_ms IS NULL RETURNING id;

-- name: signing_key
-- The key that the server signs with.
SELECT kid, jwk, made_ms FROM dragoman.signing_keys ORDER BY made_ms LIMIT 1;

-- name: offer_signing_key
-- Store a key to sign with, if there is none.
INSERT INTO dragoman.signing_keys (kid, jwk, made_ms) SELECT $1::text, $2::bytea, $3::bigint
WHERE NOT EXISTS (SELECT 1 FROM dragoman.signing_keys) ON CONFLICT DO NOTHING RETURNING kid;
