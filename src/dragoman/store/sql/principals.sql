-- The statements about one principal, beside its tasks.

-- name: principal_counts
-- Tasks of $1, and how many of them are open; webhooks, deliveries, receipts and calls of these; entries of state; sums of usage;
-- keys of the name $2 in the team $3; entries of the audit trail.
SELECT
    (SELECT count(*) FROM dragoman.scopes s JOIN dragoman.tasks t ON t.scope = s.scope WHERE s.owner = $1),
    (SELECT count(*) FROM dragoman.scopes s JOIN dragoman.tasks t ON t.scope = s.scope WHERE s.owner = $1 AND t.state < 4),
    (SELECT count(*) FROM dragoman.scopes s JOIN dragoman.tasks t ON t.scope = s.scope
        JOIN dragoman.push_configs c ON c.task = t.task WHERE s.owner = $1),
    (SELECT count(*) FROM dragoman.scopes s JOIN dragoman.tasks t ON t.scope = s.scope
        JOIN dragoman.push_configs c ON c.task = t.task JOIN dragoman.deliveries d ON d.config = c.config WHERE s.owner = $1),
    (SELECT count(*) FROM dragoman.scopes s JOIN dragoman.tasks t ON t.scope = s.scope
        JOIN dragoman.receipts r ON r.task = t.task WHERE s.owner = $1),
    (SELECT count(*) FROM dragoman.calls h JOIN dragoman.tasks t ON t.id = h.task_id JOIN dragoman.scopes s ON s.scope = t.scope
        WHERE s.owner = $1),
    (SELECT coalesce(sum(m.entries), 0)::bigint FROM dragoman.state_spaces m WHERE m.owner = $1 AND m.ended = 0),
    (SELECT count(*) FROM dragoman.scopes s JOIN dragoman.usage_days u ON u.scope = s.scope WHERE s.owner = $1),
    (SELECT count(*) FROM dragoman.keys k WHERE k.name = $2 AND k.team = $3),
    (SELECT count(*) FROM dragoman.audit e WHERE e.principal = $1 OR e.subject = $1);

-- name: principal_usage
-- The usage of $1, by day, agent and model.
SELECT u.model, sum(u.runs)::bigint, sum(u.tasks)::bigint, sum(u.messages)::bigint, sum(u.reported)::bigint,
    sum(u.input_tokens)::bigint, sum(u.output_tokens)::bigint, sum(u.total_tokens)::bigint, sum(u.duration_ms)::bigint,
    sum(u.cached_tokens)::bigint, sum(u.uncertain)::bigint, sum(u.waited_ms)::bigint,
    u.day, s.agent
FROM dragoman.scopes s JOIN dragoman.usage_days u ON u.scope = s.scope WHERE s.owner = $1
GROUP BY u.day, s.agent, u.model ORDER BY u.day, s.agent, u.model;

-- name: principal_audit
-- The first $2 entries of the audit trail that name $1.
SELECT entry FROM dragoman.audit WHERE principal = $1 OR subject = $1 ORDER BY entry LIMIT $2;

-- name: rename_audit
-- Put the alias $2 in the place of $1 in the entries from $3 to $4, and leave out where the principal called from.
UPDATE dragoman.audit SET principal = CASE WHEN principal = $1 THEN $2 ELSE principal END,
    subject = CASE WHEN subject = $1 THEN $2 ELSE subject END, peer = CASE WHEN principal = $1 THEN '' ELSE peer END
WHERE entry >= $3 AND entry <= $4 AND (principal = $1 OR subject = $1) RETURNING entry;

-- name: rename_keys
-- Revoke the keys of the name $1 in the team $5, and leave nothing of them but the rights that they had, under the name $2.
UPDATE dragoman.keys SET name = $2, digest = $3, revoked_ms = coalesce(revoked_ms, $4) WHERE name = $1 AND team = $5 RETURNING id;

-- name: rename_pauses
-- Put the alias $2 in the place of $1, who paused hosts.
UPDATE dragoman.paused_hosts SET paused_by = $2 WHERE paused_by = $1 RETURNING name;

-- name: principal_day
-- The first day with usage of $1.
SELECT min(u.day) FROM dragoman.scopes s JOIN dragoman.usage_days u ON u.scope = s.scope WHERE s.owner = $1;

-- name: forget_usage
-- Delete the usage of $1 on a day.
DELETE FROM dragoman.usage_days WHERE day = $2 AND scope = ANY (ARRAY(SELECT s.scope FROM dragoman.scopes s WHERE s.owner = $1))
RETURNING day;

-- name: forget_quotas
-- Delete how many tasks $1 made in a day.
DELETE FROM dragoman.quota_days WHERE owner = $1 RETURNING day;

-- name: forget_shares
-- Delete the rate of $1, and the counts of its streams.
DELETE FROM dragoman.shared WHERE key = 'rate/' || $1 OR key = 'streams/' || $1 OR key = 'listeners/' || $1 RETURNING key;

-- name: forget_scopes
-- Delete the scopes of $1 that have no tasks any more, and no usage.
DELETE FROM dragoman.scopes WHERE owner = $1
    AND NOT EXISTS (SELECT 1 FROM dragoman.tasks t WHERE t.scope = scopes.scope)
    AND NOT EXISTS (SELECT 1 FROM dragoman.usage_days u WHERE u.scope = scopes.scope) RETURNING scope;
