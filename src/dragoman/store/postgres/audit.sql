-- The statements about the audit trail that SQLite has otherwise.

-- name: add_audit
-- New entries, in order.
INSERT INTO dragoman.audit (at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key)
SELECT v.at_ms, v.principal, v.action, v.agent, v.task_id, v.allowed, v.reason, v.peer, v.subject, v.key
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::text[], $9::text[],
        $10::text[])
    WITH ORDINALITY AS v (at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key, place)
ORDER BY v.place;

-- name: acts_end
-- The transaction after that of the last administrative act; 0 if there is none. Acts of transactions that began after the
-- oldest one under way are left for later, since others may still come before them.
SELECT coalesce(max(xact) + 1, 0) FROM dragoman.audit
WHERE strpos(action, '.') > 0 AND xact < pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
