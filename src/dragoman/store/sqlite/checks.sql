-- Checks of a store file, beside those that both databases share: every statement returns the faults, and nothing if all is well.

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

-- name: unused_hosts
-- Hosts without webhooks.
SELECT host, name FROM push_hosts WHERE host NOT IN (SELECT host FROM push_configs);

-- name: hosts_too_late
-- Hosts that are due after one of their webhooks is.
SELECT h.name, c.large, iif(c.large, h.large_ms, h.due_ms) AS host_ms, min(c.due_ms)
FROM push_hosts h JOIN push_configs c ON c.host = h.host
WHERE c.due_ms IS NOT NULL GROUP BY h.host, c.large HAVING host_ms IS NULL OR host_ms > min(c.due_ms);

-- name: pages
-- The integrity check of SQLite itself.
SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok';
