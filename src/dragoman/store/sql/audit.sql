-- The statements that read and sweep the audit trail. Each driver writes it, and says where it ends, in an audit.sql of its own.

-- name: audit_fits
-- A condition on the entries of a page: by principal, action, agent and text in lower case, each null for all, by time, by the
-- id of the key, by a range of principals, and without those that allowed one of the actions $12, each between two blanks.
($3::text IS NULL OR principal = $3) AND ($4::text IS NULL OR action = $4 OR strpos(action, $4 || '.') = 1)
    AND ($5::text IS NULL OR agent = $5) AND ($6::text IS NULL OR strpos(lower(concat_ws(' ', principal, action, agent, task_id,
        reason, peer, subject, key)), $6) > 0) AND at_ms >= $7 AND ($8::bigint IS NULL OR at_ms < $8)
    AND ($9::text IS NULL OR key = $9)
    AND ($10::text IS NULL OR (principal COLLATE "C" >= $10 AND principal COLLATE "C" <= $11))
    AND ($12::text IS NULL OR FALSE(allowed) OR strpos($12, ' ' || action || ' ') = 0)

-- name: read_audit
-- The newest fitting entries before the entry $1, newest first, at most $2.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM dragoman.audit
WHERE entry < $1 AND PIECE(audit_fits) ORDER BY entry DESC LIMIT $2;

-- name: read_refused
-- The same for refusals.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM dragoman.audit
    BY_INDEX(audit_refused)
WHERE FALSE(allowed) AND entry < $1 AND PIECE(audit_fits) ORDER BY entry DESC LIMIT $2;

-- name: read_audit_forward
-- The oldest fitting entries after the entry $1, oldest first; $13 says whether only refusals.
SELECT entry, at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM dragoman.audit
WHERE entry > $1 AND (NOT $13::boolean OR FALSE(allowed)) AND PIECE(audit_fits) ORDER BY entry LIMIT $2;

-- name: read_acts
-- The last $3 administrative acts from the place $1 to before the place $2, newest first, of the principals from $4 to $5, null
-- for all. Their names have a dot.
SELECT at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key FROM dragoman.audit
WHERE strpos(action, '.') > 0 AND PLACE_OF_ACT >= $1 AND PLACE_OF_ACT < $2
    AND ($4::text IS NULL OR (principal COLLATE "C" >= $4 AND principal COLLATE "C" <= $5)) ORDER BY entry DESC LIMIT $3;

-- name: old_audit
-- Whether one of the $2 oldest entries is older than $1.
SELECT EXISTS (SELECT 1 FROM (SELECT at_ms FROM dragoman.audit ORDER BY entry LIMIT $2) front WHERE at_ms < $1);

-- name: sweep_audit
-- Delete those entries.
DELETE FROM dragoman.audit WHERE entry IN (
    SELECT entry FROM (SELECT entry, at_ms FROM dragoman.audit ORDER BY entry LIMIT $2) front WHERE at_ms < $1) RETURNING entry;
