-- The statements about the audit trail that PostgreSQL has otherwise.

-- name: add_audit
-- Entries of the audit trail.
INSERT INTO audit (at_ms, principal, action, agent, task_id, allowed, reason, peer, subject, key) VALUES ROWS(10);

-- name: acts_end
-- The entry after the newest one.
SELECT coalesce(max(entry) + 1, 0) FROM audit;
