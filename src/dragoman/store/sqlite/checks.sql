-- Checks of a store file: every statement returns the faults, and nothing if all is well.

-- name: scope_counters
-- Counters of a scope that differ from its rows.
SELECT s.owner, s.agent, k.state, k.n, count(t.task) FROM scopes s,
    (SELECT scope, 0 AS state, n0 AS n FROM scopes UNION ALL SELECT scope, 1, n1 FROM scopes
     UNION ALL SELECT scope, 2, n2 FROM scopes UNION ALL SELECT scope, 3, n3 FROM scopes
     UNION ALL SELECT scope, 4, n4 FROM scopes UNION ALL SELECT scope, 5, n5 FROM scopes
     UNION ALL SELECT scope, 6, n6 FROM scopes UNION ALL SELECT scope, 7, n7 FROM scopes) k
    LEFT JOIN tasks t ON t.scope = s.scope AND t.state = k.state
WHERE k.scope = s.scope GROUP BY s.scope, k.state HAVING k.n <> count(t.task);

-- name: context_counters
-- Counters of a context that differ from its rows.
SELECT * FROM (
    SELECT scope, context, sum(state = 0) AS n0, sum(state = 1) AS n1, sum(state = 2) AS n2, sum(state = 3) AS n3,
        sum(state = 4) AS n4, sum(state = 5) AS n5, sum(state = 6) AS n6, sum(state = 7) AS n7
    FROM tasks GROUP BY scope, context
    EXCEPT SELECT scope, context, n0, n1, n2, n3, n4, n5, n6, n7 FROM contexts);

-- name: contexts_without_tasks
-- Contexts with counters but without tasks.
SELECT scope, context FROM contexts EXCEPT SELECT scope, context FROM tasks;

-- name: gaps
-- Pages that do not follow the one before, or do not start at 1.
SELECT task, first_seq, before FROM
    (SELECT task, first_seq, lag(last_seq, 1, 0) OVER (PARTITION BY task ORDER BY first_seq) AS before FROM pages)
WHERE first_seq <> before + 1;

-- name: ends
-- Tasks whose log does not end at their seq; a pruned one has none.
SELECT t.id, t.seq, max(p.last_seq) FROM tasks t LEFT JOIN pages p ON p.task = t.task
GROUP BY t.task HAVING coalesce(max(p.last_seq), 0) <> CASE WHEN t.pruned AND max(p.last_seq) IS NULL THEN 0 ELSE t.seq END;

-- name: snapshots_ahead
-- Snapshots at a seq where no page ends, or beyond their task's seq.
SELECT t.id, s.seq, t.seq FROM snapshots s JOIN tasks t ON t.task = s.task
WHERE s.seq > t.seq OR (NOT t.pruned AND NOT EXISTS (SELECT 1 FROM pages p WHERE p.task = s.task AND p.last_seq = s.seq));

-- name: orphans
-- Rows of missing tasks.
SELECT 'page', task FROM pages WHERE task NOT IN (SELECT task FROM tasks)
UNION ALL SELECT 'snapshot', task FROM snapshots WHERE task NOT IN (SELECT task FROM tasks)
UNION ALL SELECT 'file', task FROM files WHERE task NOT IN (SELECT task FROM tasks)
UNION ALL SELECT 'receipt', task FROM receipts WHERE task NOT IN (SELECT task FROM tasks);

-- name: unmarked_files
-- Tasks with files that are not marked so.
SELECT id FROM tasks WHERE NOT files AND task IN (SELECT task FROM files);

-- name: held_by_the_dead
-- Terminal tasks with a lease.
SELECT id, holder FROM tasks WHERE state > 3 AND holder IS NOT NULL;

-- name: unmarked_webhooks
-- Tasks with webhooks that are not marked so.
SELECT id FROM tasks WHERE NOT pushed AND task IN (SELECT task FROM push_configs);

-- name: outbox_orphans
-- Webhooks of missing tasks or hosts, deliveries of missing webhooks or with a receipt, hosts without webhooks.
SELECT 'task', config FROM push_configs WHERE task NOT IN (SELECT task FROM tasks)
UNION ALL SELECT 'host', config FROM push_configs WHERE host NOT IN (SELECT host FROM push_hosts)
UNION ALL SELECT 'webhook', delivery FROM deliveries WHERE config NOT IN (SELECT config FROM push_configs)
UNION ALL SELECT 'receipt', delivery FROM deliveries WHERE delivery IN (SELECT delivery FROM receipts)
UNION ALL SELECT 'unused', host FROM push_hosts WHERE host NOT IN (SELECT host FROM push_configs);

-- name: forgotten_webhooks
-- Webhooks with pending deliveries but never due, webhooks due without any, or stopped webhooks with deliveries.
SELECT c.id, c.task, c.due_ms, count(d.delivery) FROM push_configs c LEFT JOIN deliveries d ON d.config = c.config
GROUP BY c.config HAVING (c.due_ms IS NULL) <> (coalesce(sum(NOT d.dead), 0) = 0) OR (c.stopped AND count(d.delivery) > 0);

-- name: claims_of_nothing
-- Webhooks whose delivery in flight is not pending.
SELECT c.id, c.task, c.claimed FROM push_configs c
WHERE c.claimed IS NOT NULL AND c.claimed NOT IN (SELECT delivery FROM deliveries d WHERE d.config = c.config AND NOT d.dead);

-- name: hosts_too_late
-- Hosts that are due after one of their webhooks is.
SELECT h.name, c.large, iif(c.large, h.large_ms, h.due_ms) AS host_ms, min(c.due_ms)
FROM push_hosts h JOIN push_configs c ON c.host = h.host
WHERE c.due_ms IS NOT NULL GROUP BY h.host, c.large HAVING host_ms IS NULL OR host_ms > min(c.due_ms);

-- name: wrong_sizes
-- Webhooks with a wrong size class of their oldest delivery.
SELECT c.id, c.task, c.large, d.delivery, length(d.body) FROM push_configs c JOIN deliveries d ON d.delivery =
    (SELECT o.delivery FROM deliveries o WHERE o.config = c.config AND o.dead = 0 ORDER BY o.delivery LIMIT 1)
WHERE c.large <> (length(d.body) > 16384);

-- name: pages
-- The integrity check of SQLite itself.
SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok';
