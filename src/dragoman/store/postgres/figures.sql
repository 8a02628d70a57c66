-- name: open_by_agent
-- The tasks that have not ended, by agent: how many are submitted, working, working without a holder, and interrupted. Then
-- when the oldest status was set: of the submitted, of the working ones without and with a holder, and in the states 2 and 3.
-- The counters say which scopes have any, and for these an index begins with the oldest. Only working tasks are counted one
-- by one, to find those that nobody has.
SELECT s.agent, sum(c.n0)::bigint, sum(c.n1)::bigint, sum(idle.tasks)::bigint, sum(c.n2 + c.n3)::bigint,
    min(CASE WHEN c.n0 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = s.scope AND t.state = 0) END),
    min(idle.since_ms),
    min(CASE WHEN c.n1 > 0 THEN (SELECT t.status_ms FROM dragoman.tasks t
        WHERE t.scope = s.scope AND t.state = 1 AND t.holder IS NOT NULL ORDER BY t.status_ms LIMIT 1) END),
    min(CASE WHEN c.n2 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = s.scope AND t.state = 2) END),
    min(CASE WHEN c.n3 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = s.scope AND t.state = 3) END)
FROM dragoman.scopes s JOIN (
    SELECT scope, sum(n0) AS n0, sum(n1) AS n1, sum(n2) AS n2, sum(n3) AS n3 FROM dragoman.counts GROUP BY scope
) c USING (scope)
LEFT JOIN LATERAL (
    SELECT count(*) AS tasks, min(t.status_ms) AS since_ms FROM dragoman.tasks t
    WHERE c.n1 > 0 AND t.scope = s.scope AND t.state = 1 AND t.holder IS NULL
) idle ON true
WHERE c.n0 > 0 OR c.n1 > 0 OR c.n2 > 0 OR c.n3 > 0 GROUP BY s.agent ORDER BY s.agent;

-- name: size_bytes
-- The size of the tables in the schema $1, with their indexes and large values.
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(quote_ident($1));

-- name: oldest_rows
-- The oldest of what retentions delete, each by an index: see read_oldest. A delegated task is kept until its parent ends.
SELECT
    (SELECT t.status_ms FROM dragoman.tasks t
        WHERE (CASE WHEN t.state < 4 THEN 0 WHEN t.pruned THEN 2 ELSE 1 END) = 0 AND t.state > 1
            AND (t.parent IS NULL OR coalesce((SELECT p.state FROM dragoman.tasks p WHERE p.id = t.parent), 4) > 3)
        ORDER BY t.status_ms LIMIT 1),
    (SELECT t.status_ms FROM dragoman.tasks t
        WHERE (CASE WHEN t.state < 4 THEN 0 WHEN t.pruned THEN 2 ELSE 1 END) = 1 AND t.state > 1
            AND (t.parent IS NULL OR coalesce((SELECT p.state FROM dragoman.tasks p WHERE p.id = t.parent), 4) > 3)
        ORDER BY t.status_ms LIMIT 1),
    (SELECT t.status_ms FROM dragoman.tasks t
        WHERE (CASE WHEN t.state < 4 THEN 0 WHEN t.pruned THEN 2 ELSE 1 END) = 2 AND t.state > 1
            AND (t.parent IS NULL OR coalesce((SELECT p.state FROM dragoman.tasks p WHERE p.id = t.parent), 4) > 3)
        ORDER BY t.status_ms LIMIT 1),
    (SELECT at_ms FROM dragoman.audit ORDER BY entry LIMIT 1),
    (SELECT min(arrived_ms) FROM dragoman.receipts),
    (SELECT min(day) FROM dragoman.usage_days);
