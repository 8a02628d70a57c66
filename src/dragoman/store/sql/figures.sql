-- The statements about how much there is to do, and how old the oldest rows are.

-- name: open_by_agent
-- The tasks that have not ended, by agent: how many are submitted, working, working without a holder, and interrupted. Then
-- when the oldest status was set: of the submitted, of the working ones without and with a holder, and in the states 2 and 3.
-- The counters say which scopes have any, and for these an index begins with the oldest. Only working tasks are counted one
-- by one, to find those that nobody has.
WITH counted AS MATERIALIZED (
    SELECT c.scope, c.agent, c.n0, c.n1, c.n2, c.n3 FROM COUNTED_SCOPES c
    WHERE c.n0 > 0 OR c.n1 > 0 OR c.n2 > 0 OR c.n3 > 0
), idle AS (
    SELECT t.scope, count(*) AS tasks, min(t.status_ms) AS since_ms
    FROM counted c JOIN dragoman.tasks t ON t.scope = c.scope AND t.state = 1
    WHERE c.n1 > 0 AND t.holder IS NULL GROUP BY t.scope
)
SELECT c.agent, sum(c.n0)::bigint, sum(c.n1)::bigint, sum(idle.tasks)::bigint, sum(c.n2 + c.n3)::bigint,
    min(CASE WHEN c.n0 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = c.scope AND t.state = 0) END),
    min(idle.since_ms),
    min(CASE WHEN c.n1 > 0 THEN (SELECT t.status_ms FROM dragoman.tasks t
        WHERE t.scope = c.scope AND t.state = 1 AND t.holder IS NOT NULL ORDER BY t.status_ms LIMIT 1) END),
    min(CASE WHEN c.n2 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = c.scope AND t.state = 2) END),
    min(CASE WHEN c.n3 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = c.scope AND t.state = 3) END)
FROM counted c LEFT JOIN idle ON idle.scope = c.scope GROUP BY c.agent ORDER BY c.agent;

-- name: oldest_kept
-- The oldest status of tasks of a kind that a retention deletes. A delegated task is kept until its parent ends.
SELECT t.status_ms FROM dragoman.tasks t WHERE KIND(t) = $1 AND t.state > 1
    AND (t.parent IS NULL OR coalesce((SELECT p.state FROM dragoman.tasks p WHERE p.id = t.parent), 4) > 3)
ORDER BY t.status_ms LIMIT 1;

-- name: oldest_rows
-- The oldest of what else retentions delete, each by an index.
SELECT (SELECT at_ms FROM dragoman.audit ORDER BY entry LIMIT 1),
    (SELECT min(arrived_ms) FROM dragoman.receipts),
    (SELECT min(day) FROM dragoman.usage_days);
