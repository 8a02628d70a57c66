-- name: open_by_agent
-- The tasks that have not ended, by agent: how many are queued, at work and interrupted, and when the oldest status of each of
-- the states 0 to 3 was set. The counters say which scopes have any, and for these an index begins with the oldest.
SELECT agent, sum(n0), sum(n1), sum(n2 + n3),
    min(CASE WHEN n0 > 0 THEN (SELECT min(t.status_ms) FROM tasks t WHERE t.scope = s.scope AND t.state = 0) END),
    min(CASE WHEN n1 > 0 THEN (SELECT min(t.status_ms) FROM tasks t WHERE t.scope = s.scope AND t.state = 1) END),
    min(CASE WHEN n2 > 0 THEN (SELECT min(t.status_ms) FROM tasks t WHERE t.scope = s.scope AND t.state = 2) END),
    min(CASE WHEN n3 > 0 THEN (SELECT min(t.status_ms) FROM tasks t WHERE t.scope = s.scope AND t.state = 3) END)
FROM scopes s WHERE n0 > 0 OR n1 > 0 OR n2 > 0 OR n3 > 0 GROUP BY agent ORDER BY agent;

-- name: size_bytes
-- The size of a store in memory.
SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size();
