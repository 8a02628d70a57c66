-- name: open_by_agent
-- The tasks that have not ended, by agent: how many are queued, at work and interrupted, and when the oldest status of each of
-- the states 0 to 3 was set. The counters say which scopes have any, and for these an index begins with the oldest.
SELECT s.agent, sum(c.n0)::bigint, sum(c.n1)::bigint, sum(c.n2 + c.n3)::bigint,
    min(CASE WHEN c.n0 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = s.scope AND t.state = 0) END),
    min(CASE WHEN c.n1 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = s.scope AND t.state = 1) END),
    min(CASE WHEN c.n2 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = s.scope AND t.state = 2) END),
    min(CASE WHEN c.n3 > 0 THEN (SELECT min(t.status_ms) FROM dragoman.tasks t WHERE t.scope = s.scope AND t.state = 3) END)
FROM dragoman.scopes s JOIN (
    SELECT scope, sum(n0) AS n0, sum(n1) AS n1, sum(n2) AS n2, sum(n3) AS n3 FROM dragoman.counts GROUP BY scope
) c USING (scope)
WHERE c.n0 > 0 OR c.n1 > 0 OR c.n2 > 0 OR c.n3 > 0 GROUP BY s.agent ORDER BY s.agent;

-- name: size_bytes
-- The size of the tables in the schema $1, with their indexes and large values.
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(quote_ident($1));
