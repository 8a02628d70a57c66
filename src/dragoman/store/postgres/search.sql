-- The statements of a search through tasks by what no index answers, and of those whose status has changed lately.

-- name: search_end
-- The last of the $3 newest tasks between two numbers. For the oldest, DESC is replaced by ASC.
SELECT t.task FROM dragoman.tasks t WHERE t.task BETWEEN $1 AND $2 ORDER BY t.task DESC LIMIT 1 OFFSET $3::int - 1;

-- name: search
-- The tasks that fit between two numbers, the newest first, or with ASC for DESC the oldest, by 3 owner, 4 agent, 5 context,
-- 6 state, 7 and 8 bounds of the status, 9 dialect, 10 text, 12 key; null stands for any. `lower` changes the letters a to z alone,
-- because of the collation.
SELECT t.task, t.head, t.state, t.status_ms, t.holder, t.cancel, t.text
FROM dragoman.tasks t JOIN dragoman.scopes o USING (scope)
WHERE t.task BETWEEN $1 AND $2 AND ($3::text IS NULL OR o.owner = $3) AND ($4::text IS NULL OR o.agent = $4)
    AND ($5::text IS NULL OR t.context = $5) AND ($6::int IS NULL OR t.state = $6)
    AND ($7::bigint IS NULL OR t.status_ms >= $7) AND ($8::bigint IS NULL OR t.status_ms < $8)
    AND ($9::text IS NULL OR t.dialect = $9) AND ($12::text IS NULL OR t.key = $12)
    AND ($10::text IS NULL OR strpos(lower(t.text), lower($10::text COLLATE "C")) > 0)
ORDER BY t.task DESC LIMIT $11;

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
