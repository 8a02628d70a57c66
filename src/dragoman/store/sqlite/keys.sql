-- The statements about keys and the audit trail.

-- name: find_key
-- A key by its id, even if it is revoked or expired.
SELECT id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules FROM keys WHERE id = ?1;

-- name: any_key
-- Whether a key was ever made. Rows are never deleted.
SELECT EXISTS (SELECT 1 FROM keys);

-- name: all_keys
-- Every key, oldest first.
SELECT id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules FROM keys ORDER BY key;

-- name: add_key
-- A new key.
INSERT INTO keys (id, name, role, agents, scopes, digest, made_ms, expires_ms, revoked_ms, limits, rules)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11);

-- name: revoke_key
-- Revoke a key that is not revoked yet.
UPDATE keys SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms IS NULL;

-- name: end_key
-- Let an active key end: revoke it if ?3 is not after ?2, which is now, else let it expire at ?3 if not before.
UPDATE keys SET revoked_ms = CASE WHEN ?3 <= ?2 THEN ?2 END,
    expires_ms = CASE WHEN ?3 <= ?2 THEN expires_ms ELSE min(coalesce(expires_ms, ?3), ?3) END
WHERE id = ?1 AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?2);

-- name: limit_key
-- Replace the limits of a key that is not revoked.
UPDATE keys SET limits = ?2 WHERE id = ?1 AND revoked_ms IS NULL;

-- name: signing_key
-- The key that the server signs with.
SELECT kid, jwk, made_ms FROM signing_keys ORDER BY signing_key LIMIT 1;

-- name: offer_signing_key
-- Store a key to sign with, if there is none.
INSERT INTO signing_keys (kid, jwk, made_ms) SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM signing_keys);

-- name: add_audit
-- Entries of the audit trail.
INSERT INTO audit (at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key) VALUES ROWS(10);

-- name: read_audit
-- The newest matching entries before the entry ?1, newest first, at most ?2: by principal, action, agent, text in lower case,
-- each null for all; by time, and by the id of the key.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM audit
WHERE entry < ?1
    AND (?3 IS NULL OR principal = ?3) AND (?4 IS NULL OR action = ?4 OR substr(action, 1, length(?4) + 1) = ?4 || '.')
    AND (?5 IS NULL OR agent = ?5) AND (?6 IS NULL OR instr(lower(concat_ws(' ', principal, action, agent, task_id, reason,
        peer, subject, key)), ?6)) AND at_ms >= ?7 AND (?8 IS NULL OR at_ms < ?8)
    AND (?9 IS NULL OR key = ?9)
ORDER BY entry DESC LIMIT ?2;

-- name: read_refused
-- The same for refusals.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM audit INDEXED BY audit_refused
WHERE allowed = 0 AND entry < ?1
    AND (?3 IS NULL OR principal = ?3) AND (?4 IS NULL OR action = ?4 OR substr(action, 1, length(?4) + 1) = ?4 || '.')
    AND (?5 IS NULL OR agent = ?5) AND (?6 IS NULL OR instr(lower(concat_ws(' ', principal, action, agent, task_id, reason,
        peer, subject, key)), ?6)) AND at_ms >= ?7 AND (?8 IS NULL OR at_ms < ?8)
    AND (?9 IS NULL OR key = ?9)
ORDER BY entry DESC LIMIT ?2;

-- name: read_audit_forward
-- The oldest matching entries after the entry ?1, oldest first; ?10 says whether only refusals.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM audit
WHERE entry > ?1 AND (NOT ?10 OR allowed = 0)
    AND (?3 IS NULL OR principal = ?3) AND (?4 IS NULL OR action = ?4 OR substr(action, 1, length(?4) + 1) = ?4 || '.')
    AND (?5 IS NULL OR agent = ?5) AND (?6 IS NULL OR instr(lower(concat_ws(' ', principal, action, agent, task_id, reason,
        peer, subject, key)), ?6)) AND at_ms >= ?7 AND (?8 IS NULL OR at_ms < ?8)
    AND (?9 IS NULL OR key = ?9)
ORDER BY entry LIMIT ?2;

-- name: audit_end
-- The number of the newest entry.
SELECT coalesce(max(entry), 0) FROM audit;

-- name: read_acts
-- The last ?2 administrative acts after the entry ?1, newest first. Their names have a dot.
SELECT at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM audit
WHERE entry > ?1 AND instr(action, '.') > 0 ORDER BY entry DESC LIMIT ?2;

-- name: old_audit
-- Whether one of the ?2 oldest entries is older than ?1.
SELECT EXISTS (SELECT 1 FROM (SELECT at_ms FROM audit ORDER BY entry LIMIT ?2) WHERE at_ms < ?1);

-- name: sweep_audit
-- Delete those entries.
DELETE FROM audit WHERE entry IN (SELECT entry FROM audit ORDER BY entry LIMIT ?2) AND at_ms < ?1;
