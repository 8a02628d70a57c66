-- Checks of a store: every statement returns the faults, and nothing if all is well. Each driver has more, of the counters that
-- only it has.

-- name: gaps
-- Pages that do not follow the one before, or do not start at 1.
SELECT task, first_seq, before FROM
    (SELECT task, first_seq, lag(last_seq, 1, 0::bigint) OVER (PARTITION BY task ORDER BY first_seq) AS before
    FROM dragoman.pages) p
WHERE first_seq <> before + 1;

-- name: ends
-- Tasks whose log does not end at their seq. A pruned one has none.
SELECT t.id, t.seq, p.last_seq FROM dragoman.tasks t
LEFT JOIN (SELECT task, max(last_seq) AS last_seq FROM dragoman.pages GROUP BY task) p ON p.task = t.task
WHERE coalesce(p.last_seq, 0) <> CASE WHEN t.pruned AND p.last_seq IS NULL THEN 0 ELSE t.seq END;

-- name: snapshots_ahead
-- Snapshots at a seq where no page ends, or beyond their task's seq.
SELECT t.id, s.seq, t.seq FROM dragoman.snapshots s JOIN dragoman.tasks t ON t.task = s.task
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
SELECT 'receipt', task FROM dragoman.receipts p WHERE NOT EXISTS (SELECT 1 FROM dragoman.tasks t WHERE t.task = p.task)
UNION ALL
SELECT 'act', task FROM dragoman.state_acts p WHERE NOT EXISTS (SELECT 1 FROM dragoman.tasks t WHERE t.task = p.task);

-- name: state_sizes
-- Spaces of state with other entries than they count. One that has ended loses them a few at a time.
SELECT p.space, p.entries, p.bytes, count(e.key), coalesce(sum(ENTRY_BYTES), 0)
FROM dragoman.state_spaces p LEFT JOIN dragoman.state_entries e ON e.space = p.space WHERE p.ended = 0 GROUP BY p.space
HAVING p.entries <> count(e.key) OR p.bytes <> coalesce(sum(ENTRY_BYTES), 0);

-- name: state_orphans
-- Entries without a space, and state of conversations without tasks.
SELECT 'entry', e.space FROM dragoman.state_entries e
WHERE NOT EXISTS (SELECT 1 FROM dragoman.state_spaces p WHERE p.space = e.space)
UNION ALL
SELECT 'conversation', p.space FROM dragoman.state_spaces p WHERE p.ended = 0 AND p.context <> '' AND NOT EXISTS (
    SELECT 1 FROM dragoman.scopes s JOIN dragoman.tasks t ON t.scope = s.scope AND t.context = p.context
    WHERE s.owner = p.owner AND s.agent = p.agent);

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
SELECT c.id, c.task, c.due_ms, count(d.delivery)
FROM dragoman.push_configs c LEFT JOIN dragoman.deliveries d ON d.config = c.config GROUP BY c.config
HAVING (c.due_ms IS NULL) <> (count(*) FILTER (WHERE NOT d.dead) = 0) OR (c.stopped AND count(d.delivery) > 0);

-- name: claims_of_nothing
-- Webhooks whose delivery in flight is not pending.
SELECT c.id, c.task, c.claimed FROM dragoman.push_configs c WHERE c.claimed IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM dragoman.deliveries d WHERE d.delivery = c.claimed AND d.config = c.config AND NOT d.dead);

-- name: wrong_sizes
-- Webhooks with a wrong size class of their oldest delivery.
SELECT c.id, c.task, c.large, d.delivery, octet_length(d.body) FROM dragoman.push_configs c
    JOIN dragoman.deliveries d ON d.delivery = (SELECT min(o.delivery) FROM dragoman.deliveries o
        WHERE o.config = c.config AND FALSE(o.dead))
WHERE c.large <> (octet_length(d.body) > 16384);
