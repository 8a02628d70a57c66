-- The statements for copying a store that the other database has otherwise.

-- name: numbers
-- The last numbers of tables that never give one again.
SELECT name, seq FROM sqlite_sequence;

-- name: add_number
-- Let a table have a last number, even if it never had a row.
INSERT INTO sqlite_sequence (name, seq) SELECT ?1, 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1);

-- name: raise_number
-- Never give a number of a table up to ?2.
UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1;

-- name: count_scopes
-- Count the tasks of scopes.
UPDATE scopes SET n0 = v.n0, n1 = v.n1, n2 = v.n2, n3 = v.n3, n4 = v.n4, n5 = v.n5, n6 = v.n6, n7 = v.n7
FROM (SELECT scope, sum(state = 0) AS n0, sum(state = 1) AS n1, sum(state = 2) AS n2, sum(state = 3) AS n3,
    sum(state = 4) AS n4, sum(state = 5) AS n5, sum(state = 6) AS n6, sum(state = 7) AS n7 FROM tasks GROUP BY scope) v
WHERE scopes.scope = v.scope;

-- name: count_contexts
-- Count the tasks of contexts.
INSERT INTO contexts (scope, context, n0, n1, n2, n3, n4, n5, n6, n7)
SELECT scope, context, sum(state = 0), sum(state = 1), sum(state = 2), sum(state = 3), sum(state = 4), sum(state = 5),
    sum(state = 6), sum(state = 7) FROM tasks GROUP BY scope, context;

-- name: time_hosts
-- Make hosts due when the first of their webhooks is.
UPDATE push_hosts SET
    due_ms = (SELECT min(c.due_ms) FROM push_configs c WHERE c.host = push_hosts.host AND c.large = 0),
    large_ms = (SELECT min(c.due_ms) FROM push_configs c WHERE c.host = push_hosts.host AND c.large = 1);
