-- The statements about how much there is to do, and how old the oldest rows are.

-- name: open_by_agent
-- The tasks of the owners from $1 to $2 that have not ended, by agent: how many are submitted, working, working without a holder or put aside, asleep, and
-- interrupted. Then when the oldest status was set: of the submitted, of the working ones without a holder, with one, and asleep,
-- in the states 2 and 3, and of those put aside.
-- The counters say which scopes have any, and for these an index begins with the oldest. Only working tasks that nobody has, and
-- those that sleep, are counted one by one.
WITH counted AS MATERIALIZED (
    SELECT c.scope, c.agent, c.n0, c.n1, c.n2, c.n3 FROM COUNTED_SCOPES c
    WHERE c.owner BETWEEN $1 AND $2 AND (c.n0 > 0 OR c.n1 > 0 OR c.n2 > 0 OR c.n3 > 0)
), idle AS (
    SELECT t.scope, count(*) AS tasks, min(t.status_ms) AS since_ms
    FROM counted c JOIN dragoman.tasks t BY_INDEX(tasks_queued) ON t.scope = c.scope AND t.state < 2 AND t.holder IS NULL
    WHERE c.n1 > 0 AND t.state = 1 GROUP BY t.scope
), asleep AS (
    SELECT t.scope, sum(CASE WHEN t.holder = 'asleep' THEN 1 ELSE 0 END) AS tasks,
        sum(CASE WHEN t.holder = 'aside' THEN 1 ELSE 0 END) AS aside,
        min(CASE WHEN t.holder = 'asleep' THEN t.status_ms END) AS since_ms,
        min(CASE WHEN t.holder = 'aside' THEN t.status_ms END) AS aside_since_ms
    FROM dragoman.tasks t BY_INDEX(tasks_asleep) WHERE t.holder IN ('asleep', 'aside') AND t.state < 4 GROUP BY t.scope
)
SELECT c.agent, sum(c.n0)::bigint, sum(c.n1)::bigint, sum(coalesce(idle.tasks, 0) + coalesce(asleep.aside, 0))::bigint,
    sum(asleep.tasks)::bigint,
    sum(c.n2 + c.n3)::bigint,
    min(CASE WHEN c.n0 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = c.scope AND t.state = 0) END),
    min(idle.since_ms),
    min(CASE WHEN c.n1 > coalesce(idle.tasks, 0) + coalesce(asleep.tasks, 0) + coalesce(asleep.aside, 0) THEN (
        SELECT t.status_ms FROM dragoman.tasks t
        WHERE t.scope = c.scope AND t.state = 1 AND t.holder NOT IN ('asleep', 'aside') ORDER BY t.status_ms LIMIT 1) END),
    min(asleep.since_ms),
    min(CASE WHEN c.n2 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = c.scope AND t.state = 2) END),
    min(CASE WHEN c.n3 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = c.scope AND t.state = 3) END),
    min(asleep.aside_since_ms)
FROM counted c LEFT JOIN idle ON idle.scope = c.scope LEFT JOIN asleep ON asleep.scope = c.scope GROUP BY c.agent ORDER BY c.agent;

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
