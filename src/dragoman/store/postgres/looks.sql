-- The looks at tasks without their logs that SQLite makes in another way.

-- name: changes
-- The $2 oldest statuses that are not older than $1. Those of interrupted and ended tasks are found by the index of the sweep,
-- all others by owners and agents.
SELECT t.id, o.agent, o.owner, t.context, t.state, t.status_ms, t.seq FROM (
    SELECT k.task FROM unnest('{0,1,2}'::int[]) AS v (kind) CROSS JOIN LATERAL (
        SELECT a.task FROM dragoman.tasks a
        WHERE a.state > 1 AND (CASE WHEN a.state < 4 THEN 0 WHEN a.pruned THEN 2 ELSE 1 END) = v.kind AND a.status_ms >= $1
        ORDER BY a.status_ms LIMIT $2) k
    UNION ALL
    SELECT p.task FROM dragoman.scopes o CROSS JOIN unnest('{0,1}'::smallint[]) AS v (state) CROSS JOIN LATERAL (
        SELECT w.task FROM dragoman.tasks w WHERE w.scope = o.scope AND w.state = v.state AND w.status_ms >= $1
        ORDER BY w.status_ms LIMIT $2) p
) c CROSS JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = c.task LIMIT 1) t
JOIN dragoman.scopes o ON o.scope = t.scope
ORDER BY t.status_ms, t.id LIMIT $2;

-- name: queued
-- The oldest tasks of the agent $1 that nobody has, at most $2.
SELECT id FROM dragoman.tasks WHERE state < 4 AND (state < 2 OR holder IS NOT NULL) AND holder IS NULL AND agent = $1
ORDER BY holder, agent, task LIMIT $2;

-- name: missing
-- Those of the ids $1 that no task has.
SELECT w.id FROM unnest($1::text[]) AS w (id) WHERE NOT EXISTS (SELECT FROM dragoman.tasks t WHERE t.id = w.id);

-- name: leased
-- Tasks leased to $1.
SELECT id FROM dragoman.tasks WHERE state < 4 AND (state < 2 OR holder IS NOT NULL) AND holder = $1;

-- name: leased_of
-- Tasks of the agents $1 that replicas and workers have, at most $2.
SELECT id, agent, holder FROM dragoman.tasks
WHERE state < 2 AND (state < 2 OR holder IS NOT NULL) AND holder IS NOT NULL AND holder NOT IN ('asleep', 'aside')
    AND agent = ANY ($1::text[]) ORDER BY task LIMIT $2;

-- name: offered
-- Tasks that were offered to $1, which has not accepted them yet.
SELECT id FROM dragoman.tasks WHERE state < 4 AND offered_until_ms IS NOT NULL AND holder = $1;

-- name: cancels
-- Tasks leased to $1 that shall be canceled.
SELECT id FROM dragoman.tasks WHERE state < 4 AND cancel AND holder = $1;

-- name: orphans
-- The next $2 parents, after the one with the id $1, of delegated tasks that have not ended, each with the heads of these
-- tasks if it has ended or is gone, else with null. One entry of the index is read for each parent.
WITH RECURSIVE parents (parent, place) AS (
    (SELECT t.parent, 1 FROM dragoman.tasks t WHERE t.parent IS NOT NULL AND t.state < 4 AND t.parent > $1
        ORDER BY t.parent LIMIT 1)
    UNION ALL
    SELECT (SELECT t.parent FROM dragoman.tasks t WHERE t.parent IS NOT NULL AND t.state < 4 AND t.parent > p.parent
        ORDER BY t.parent LIMIT 1), p.place + 1
    FROM parents p WHERE p.parent IS NOT NULL AND p.place < $2::int
)
SELECT p.parent, c.head, c.task FROM parents p
LEFT JOIN LATERAL (SELECT t.state FROM dragoman.tasks t WHERE t.id = p.parent LIMIT 1) t ON true
LEFT JOIN LATERAL (SELECT c.task, c.head FROM dragoman.tasks c
    WHERE coalesce(t.state, 4) > 3 AND c.parent = p.parent AND c.state < 4 OFFSET 0) c ON true
WHERE p.parent IS NOT NULL ORDER BY p.place, c.task;
