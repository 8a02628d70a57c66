-- Checks of the tables: every statement returns the faults, and nothing if all is well.

-- name: scope_counters
-- Counters of a scope that differ from its rows.
SELECT s.owner, s.agent, c.n, t.n FROM dragoman.scopes s
CROSS JOIN LATERAL (SELECT ARRAY[coalesce(sum(n0), 0), coalesce(sum(n1), 0), coalesce(sum(n2), 0), coalesce(sum(n3), 0),
    coalesce(sum(n4), 0), coalesce(sum(n5), 0), coalesce(sum(n6), 0), coalesce(sum(n7), 0)]::bigint[] AS n
    FROM dragoman.counts c WHERE c.scope = s.scope AND c.context = 0) c
CROSS JOIN LATERAL (SELECT ARRAY[count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1),
    count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4),
    count(*) FILTER (WHERE state = 5), count(*) FILTER (WHERE state = 6), count(*) FILTER (WHERE state = 7)] AS n
    FROM dragoman.tasks t WHERE t.scope = s.scope) t
WHERE c.n <> t.n;

-- name: context_counters
-- Counters of a context that differ from its rows.
SELECT k.scope, k.context, c.n, t.n FROM dragoman.counted_contexts k
CROSS JOIN LATERAL (SELECT ARRAY[coalesce(sum(n0), 0), coalesce(sum(n1), 0), coalesce(sum(n2), 0), coalesce(sum(n3), 0),
    coalesce(sum(n4), 0), coalesce(sum(n5), 0), coalesce(sum(n6), 0), coalesce(sum(n7), 0)]::bigint[] AS n
    FROM dragoman.counts c WHERE c.scope = k.scope AND c.context = k.number) c
CROSS JOIN LATERAL (SELECT ARRAY[count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1),
    count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4),
    count(*) FILTER (WHERE state = 5), count(*) FILTER (WHERE state = 6), count(*) FILTER (WHERE state = 7)] AS n
    FROM dragoman.tasks t WHERE t.scope = k.scope AND t.context = k.context) t
WHERE c.n <> t.n;

-- name: gaps
-- Pages that do not follow the one before, or do not start at 1.
SELECT task, first_seq, before FROM
    (SELECT task, first_seq, lag(last_seq, 1, 0::bigint) OVER (PARTITION BY task ORDER BY first_seq) AS before
    FROM dragoman.pages) p
WHERE first_seq <> before + 1;

-- name: ends
-- Tasks whose log does not end at their seq; a pruned one has none.
SELECT t.id, t.seq, p.last_seq FROM dragoman.tasks t
LEFT JOIN (SELECT task, max(last_seq) AS last_seq FROM dragoman.pages GROUP BY task) p USING (task)
WHERE coalesce(p.last_seq, 0) <> CASE WHEN t.pruned AND p.last_seq IS NULL THEN 0 ELSE t.seq END;

-- name: snapshots_ahead
-- Snapshots at a seq where no page ends, or beyond their task's seq.
SELECT t.id, s.seq, t.seq FROM dragoman.snapshots s JOIN dragoman.tasks t USING (task)
WHERE s.seq > t.seq OR (NOT t.pruned
    AND NOT EXISTS (SELECT 1 FROM dragoman.pages p WHERE p.task = s.task AND p.last_seq = s.seq));

-- name: orphans
-- Rows of missing tasks.
SELECT 'page', task FROM dragoman.pages p WHERE NOT EXISTS (SELECT 1 FROM dragoman.tasks t WHERE t.task = p.task)
UNION ALL
SELECT 'snapshot', task FROM dragoman.snapshots p WHERE NOT EXISTS (SELECT 1 FROM dragoman.tasks t WHERE t.task = p.task)
UNION ALL
SELECT 'file', task FROM dragoman.files p WHERE NOT EXISTS (SELECT 1 FROM dragoman.tasks t WHERE t.task = p.task)
UNION ALL
SELECT 'receipt', task FROM dragoman.receipts p WHERE NOT EXISTS (SELECT 1 FROM dragoman.tasks t WHERE t.task = p.task);

-- name: unmarked_files
-- Tasks with files that are not marked so.
SELECT id FROM dragoman.tasks t WHERE NOT files AND EXISTS (SELECT 1 FROM dragoman.files f WHERE f.task = t.task);

-- name: held_by_the_dead
-- Terminal tasks with a lease.
SELECT id, holder FROM dragoman.tasks WHERE state > 3 AND holder IS NOT NULL;

-- name: unmarked_webhooks
-- Tasks with webhooks that are not marked so.
SELECT id FROM dragoman.tasks t
WHERE NOT pushed AND EXISTS (SELECT 1 FROM dragoman.push_configs c WHERE c.task = t.task);

-- name: outbox_orphans
-- Webhooks of missing tasks or hosts, deliveries of missing webhooks or with a receipt.
SELECT 'task', config FROM dragoman.push_configs c WHERE NOT EXISTS (SELECT 1 FROM dragoman.tasks t WHERE t.task = c.task)
UNION ALL
SELECT 'host', config FROM dragoman.push_configs c
WHERE NOT EXISTS (SELECT 1 FROM dragoman.push_hosts h WHERE h.host = c.host)
UNION ALL
SELECT 'webhook', delivery FROM dragoman.deliveries d
WHERE NOT EXISTS (SELECT 1 FROM dragoman.push_configs c WHERE c.config = d.config)
UNION ALL
SELECT 'receipt', delivery FROM dragoman.deliveries d
WHERE EXISTS (SELECT 1 FROM dragoman.receipts r WHERE r.delivery = d.delivery);

-- name: forgotten_webhooks
-- Webhooks with pending deliveries but never due, webhooks due without any, or stopped webhooks with deliveries.
SELECT c.id, c.task, c.due_ms, d.pending FROM dragoman.push_configs c
CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE NOT dead) AS pending, count(*) AS deliveries
    FROM dragoman.deliveries d WHERE d.config = c.config) d
WHERE (c.due_ms IS NULL) <> (d.pending = 0) OR (c.stopped AND d.deliveries > 0);

-- name: claims_of_nothing
-- Webhooks whose delivery in flight is not pending.
SELECT c.id, c.task, c.claimed FROM dragoman.push_configs c WHERE c.claimed IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM dragoman.deliveries d WHERE d.delivery = c.claimed AND d.config = c.config AND NOT d.dead);

-- name: wrong_sizes
-- Webhooks with a wrong size class of their oldest delivery.
SELECT c.id, c.task, c.large, d.delivery FROM dragoman.push_configs c
CROSS JOIN LATERAL (SELECT delivery, body FROM dragoman.deliveries d WHERE d.config = c.config AND NOT d.dead
    ORDER BY d.delivery LIMIT 1) d
WHERE c.large <> (octet_length(d.body) > 16384);
