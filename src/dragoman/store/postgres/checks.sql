-- Checks of the tables, beside those that both databases share: every statement returns the faults, and nothing if all is well.

-- name: scope_counters
-- Counters of a scope that differ from its rows.
SELECT s.owner, s.agent, c.n, t.n FROM dragoman.scopes s
CROSS JOIN LATERAL (SELECT ARRAY[coalesce(sum(n0), 0), coalesce(sum(n1), 0), coalesce(sum(n2), 0), coalesce(sum(n3), 0),
    coalesce(sum(n4), 0), coalesce(sum(n5), 0), coalesce(sum(n6), 0), coalesce(sum(n7), 0)]::bigint[] AS n
    FROM dragoman.counts c WHERE c.scope = s.scope AND c.context = 0) c
CROSS JOIN LATERAL (SELECT ARRAY[count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1),
    count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4),
    count(*) FILTER (WHERE state = 5), count(*) FILTER (WHERE state = 6), count(*) FILTER (WHERE state = 7)] AS n
    FROM dragoman.tasks t WHERE t.scope = s.scope) t
WHERE c.n <> t.n;

-- name: context_counters
-- Counters of a context that differ from its rows.
SELECT k.scope, k.context, c.n, t.n FROM dragoman.counted_contexts k
CROSS JOIN LATERAL (SELECT ARRAY[coalesce(sum(n0), 0), coalesce(sum(n1), 0), coalesce(sum(n2), 0), coalesce(sum(n3), 0),
    coalesce(sum(n4), 0), coalesce(sum(n5), 0), coalesce(sum(n6), 0), coalesce(sum(n7), 0)]::bigint[] AS n
    FROM dragoman.counts c WHERE c.scope = k.scope AND c.context = k.number) c
CROSS JOIN LATERAL (SELECT ARRAY[count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1),
    count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4),
    count(*) FILTER (WHERE state = 5), count(*) FILTER (WHERE state = 6), count(*) FILTER (WHERE state = 7)] AS n
    FROM dragoman.tasks t WHERE t.scope = k.scope AND t.context = k.context) t
WHERE c.n <> t.n;
