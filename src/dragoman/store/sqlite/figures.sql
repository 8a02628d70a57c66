-- name: open_by_agent
-- The tasks that have not ended, by agent: how many are submitted, working, working without a holder, and interrupted. Then
-- when the oldest status was set: of the submitted, of the working ones without and with a holder, and in the states 2 and 3.
-- The counters say which scopes have any, and for these an index begins with the oldest. Only working tasks are counted one
-- by one, to find those that nobody has.
WITH idle AS (
    SELECT t.scope, count(*) AS tasks, min(t.status_ms) AS since_ms
    FROM scopes s CROSS JOIN tasks t ON t.scope = s.scope AND t.state = 1
    WHERE s.n1 > 0 AND t.holder IS NULL GROUP BY t.scope
)
SELECT s.agent, sum(n0), sum(n1), sum(idle.tasks), sum(n2 + n3),
    min(CASE WHEN n0 > 0 THEN (SELECT min(t.status_ms) FROM tasks t WHERE t.scope = s.scope AND t.state = 0) END),
    min(idle.since_ms),
    min(CASE WHEN n1 > 0 THEN (SELECT t.status_ms FROM tasks t
        WHERE t.scope = s.scope AND t.state = 1 AND t.holder IS NOT NULL ORDER BY t.status_ms LIMIT 1) END),
    min(CASE WHEN n2 > 0 THEN (SELECT min(t.status_ms) FROM tasks t WHERE t.scope = s.scope AND t.state = 2) END),
    min(CASE WHEN n3 > 0 THEN (SELECT min(t.status_ms) FROM tasks t WHERE t.scope = s.scope AND t.state = 3) END)
FROM scopes s LEFT JOIN idle USING (scope)
WHERE n0 > 0 OR n1 > 0 OR n2 > 0 OR n3 > 0 GROUP BY s.agent ORDER BY s.agent;

-- name: size_bytes
-- The size of a store in memory.
SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size();

-- name: oldest_rows
-- The oldest of what retentions delete, each by an index: see read_oldest. A delegated task is kept until its parent ends.
SELECT
    (SELECT t.status_ms FROM tasks t WHERE (t.state > 3) + t.pruned = 0 AND t.state > 1
        AND (t.parent IS NULL OR NOT EXISTS (SELECT 1 FROM tasks p WHERE p.id = t.parent AND p.state < 4))
        ORDER BY t.status_ms LIMIT 1),
    (SELECT t.status_ms FROM tasks t WHERE (t.state > 3) + t.pruned = 1 AND t.state > 1
        AND (t.parent IS NULL OR NOT EXISTS (SELECT 1 FROM tasks p WHERE p.id = t.parent AND p.state < 4))
        ORDER BY t.status_ms LIMIT 1),
    (SELECT t.status_ms FROM tasks t WHERE (t.state > 3) + t.pruned = 2 AND t.state > 1
        AND (t.parent IS NULL OR NOT EXISTS (SELECT 1 FROM tasks p WHERE p.id = t.parent AND p.state < 4))
        ORDER BY t.status_ms LIMIT 1),
    (SELECT at_ms FROM audit ORDER BY entry LIMIT 1),
    (SELECT min(arrived_ms) FROM receipts),
    (SELECT min(day) FROM usage_days);
