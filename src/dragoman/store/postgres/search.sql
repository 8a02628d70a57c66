-- The statement about tasks whose status has changed lately.

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
