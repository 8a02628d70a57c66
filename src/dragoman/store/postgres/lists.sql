-- The statements of lists. LIST is one of the arms below; `:name` stands for a value. BOUNDS and ORDERED are those of the query.

-- name: list
-- A page: number and status of its tasks in their order, each with its row, snapshot and pages, as far as they fit :max_bytes
-- (null: all). There is always one row, with the total; without a task it has only that. `indexed` is how many tasks of the
-- context were counted for it, 0 if there are counters. The last column says whether there are more.
WITH found AS MATERIALIZED (
    SELECT l.*, row_number() OVER (ORDER BY ORDERED) AS place FROM (LIST ORDER BY ORDERED LIMIT :limit + 1 OFFSET :offset) l
), sized AS MATERIALIZED (
    SELECT f.*, sum(t.log_bytes
        + coalesce((SELECT octet_length(s.record) FROM dragoman.snapshots s WHERE s.task = f.task), 0)
        + CASE WHEN t.files AND :files THEN coalesce((SELECT sum(octet_length(b.bytes)) FROM dragoman.files b
            WHERE b.task = f.task), 0) ELSE 0 END) OVER (ORDER BY f.place) AS bytes
    FROM found f CROSS JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = f.task LIMIT 1) t
)
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files, t.head, t.pushed, t.keeper,
    t.offered_until_ms, t.webhooks_version, t.delivered, s.record, p.firsts, p.pages, n.total, n.indexed,
    (SELECT count(*) FROM found) AS found
FROM (TOTAL) AS n
LEFT JOIN sized v ON v.place <= :limit AND (v.place = 1 OR :max_bytes IS NULL OR v.bytes <= :max_bytes)
LEFT JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = v.task LIMIT 1) t ON true
LEFT JOIN LATERAL (SELECT * FROM dragoman.snapshots s WHERE s.task = v.task LIMIT 1) s ON true
LEFT JOIN LATERAL (
    SELECT array_agg(p.first_seq ORDER BY p.first_seq) AS firsts, array_agg(p.events ORDER BY p.first_seq) AS pages
    FROM dragoman.pages p WHERE p.task = v.task AND p.first_seq > coalesce(s.seq, 0)) p ON true
ORDER BY v.place;

-- name: list_rows
-- The same page without snapshots and pages of logs: the bytes are those of the heads.
WITH found AS MATERIALIZED (
    SELECT l.*, row_number() OVER (ORDER BY ORDERED) AS place FROM (LIST ORDER BY ORDERED LIMIT :limit + 1 OFFSET :offset) l
), sized AS MATERIALIZED (
    SELECT f.*, sum(octet_length(t.head)) OVER (ORDER BY f.place) AS bytes
    FROM found f CROSS JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = f.task LIMIT 1) t
)
SELECT t.task, t.head, t.state, t.status_ms, t.holder, t.cancel, t.text, t.title, n.total, n.indexed,
    (SELECT count(*) FROM found) AS found
FROM (TOTAL) AS n
LEFT JOIN sized v ON v.place <= :limit AND (v.place = 1 OR :max_bytes IS NULL OR v.bytes <= :max_bytes)
LEFT JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = v.task LIMIT 1) t ON true
ORDER BY v.place;

-- name: contexts
-- The :limit first tasks of a list, each with its context if no other task of that has a newer status: how many tasks it has,
-- and the text of the first. At most :most are counted and compared.
WITH looked AS MATERIALIZED (LIST ORDER BY ORDERED LIMIT :limit)
SELECT l.status_ms, l.id, t.context, t.state, o.owner, o.agent, e.newest, n.tasks, f.text
FROM looked l CROSS JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = l.task LIMIT 1) t
JOIN dragoman.scopes o ON o.scope = t.scope
CROSS JOIN LATERAL (SELECT NOT EXISTS (
    SELECT FROM dragoman.tasks c WHERE c.scope = t.scope AND c.context = t.context
        AND (c.status_ms, c.id) > (l.status_ms, l.id)) AS newest) e
LEFT JOIN LATERAL (SELECT count(*) AS tasks, min(c.id) AS first FROM (
    SELECT c.id FROM dragoman.tasks c WHERE c.scope = t.scope AND c.context = t.context LIMIT :most) c) n ON e.newest
LEFT JOIN LATERAL (SELECT f.text FROM dragoman.tasks f WHERE f.id = n.first LIMIT 1) f ON true
ORDER BY l.status_ms DESC, l.id DESC

-- name: scope
-- Tasks of an owner with an agent.
SELECT p.* FROM dragoman.scopes o CROSS JOIN unnest(:states::smallint[]) AS v (state) CROSS JOIN LATERAL (
    SELECT t.task, t.status_ms, t.id FROM dragoman.tasks t WHERE t.scope = o.scope AND t.state = v.state BOUNDS
    ORDER BY ORDERED LIMIT :limit + 1 + :offset) p
WHERE SCOPES

-- name: scopes
-- Tasks of several scopes: those of an agent, of an owner, or all. Each scope and state gives as many as the page may need, so that the cost grows with
-- the owners, not with their tasks.
SELECT p.* FROM dragoman.scopes o CROSS JOIN unnest(:states::smallint[]) AS v (state) CROSS JOIN LATERAL (
    SELECT t.task, t.status_ms, t.id FROM dragoman.tasks t WHERE t.scope = o.scope AND t.state = v.state BOUNDS
    ORDER BY ORDERED LIMIT :limit + 1 + :offset) p
WHERE SCOPES

-- name: scope_context
-- Tasks of an owner with an agent, within a context.
SELECT p.* FROM dragoman.scopes o CROSS JOIN LATERAL (
    SELECT t.task, t.status_ms, t.id FROM dragoman.tasks t
    WHERE t.scope = o.scope AND t.context = :context AND t.state = ANY (:states::smallint[]) BOUNDS
    ORDER BY ORDERED LIMIT :limit + 1 + :offset) p
WHERE SCOPES

-- name: scopes_context
-- Tasks of several scopes within a context, which each of them may have.
SELECT p.* FROM dragoman.scopes o CROSS JOIN LATERAL (
    SELECT t.task, t.status_ms, t.id FROM dragoman.tasks t
    WHERE t.scope = o.scope AND t.context = :context AND t.state = ANY (:states::smallint[]) BOUNDS
    ORDER BY ORDERED LIMIT :limit + 1 + :offset) p
WHERE SCOPES

-- name: after
-- Only tasks whose status is not older than a time.
AND t.status_ms >= :after_ms

-- name: before_newest_changed
-- Only the tasks after the last one of the previous page.
AND (t.status_ms, t.id) < (:before_ms, :before_id)

-- name: before_oldest_changed
-- The same in the reverse order.
AND (t.status_ms, t.id) > (:before_ms, :before_id)

-- name: before_longest_running
-- The same in the order of ids.
AND t.id > :before_id

-- name: newest_changed
status_ms DESC, id DESC

-- name: oldest_changed
status_ms, id

-- name: longest_running
-- An expression that no index has: in the order of an index of ids, PostgreSQL would look through all tasks for those that run.
(id || '')

-- name: total
-- How many tasks there are, from the counters. COUNTERS are the sums of the states that the query asks for.
SELECT coalesce(sum(COUNTERS), 0)::bigint AS total, 0 AS indexed
FROM dragoman.scopes o JOIN dragoman.counts c USING (scope) WHERE SCOPES AND c.context = 0

-- name: total_in_index
-- The same by counting in an index, for a query with a time.
SELECT count(*) AS total, 0 AS indexed FROM dragoman.scopes o CROSS JOIN unnest(:states::smallint[]) AS v (state) CROSS JOIN LATERAL (
    SELECT FROM dragoman.tasks t WHERE t.scope = o.scope AND t.state = v.state BOUNDS OFFSET 0) p
WHERE SCOPES

-- name: total_of_context
-- How many tasks of a context there are: from the counters where it has some, else by counting in an index.
SELECT coalesce(sum(p.total), 0)::bigint AS total, coalesce(sum(p.indexed), 0)::bigint AS indexed
FROM dragoman.scopes o LEFT JOIN dragoman.counted_contexts k ON k.scope = o.scope AND k.context = :context
CROSS JOIN LATERAL (
    SELECT sum(COUNTERS) AS total, 0 AS indexed FROM dragoman.counts c
    WHERE k.number IS NOT NULL AND c.scope = o.scope AND c.context = k.number
    UNION ALL
    SELECT count(*) STATES, count(*) FROM dragoman.tasks t
    WHERE k.number IS NULL AND t.scope = o.scope AND t.context = :context) p
WHERE SCOPES

-- name: total_of_context_in_index
-- The same for a query with a time.
SELECT coalesce(sum(p.tasks), 0)::bigint AS total, 0 AS indexed FROM dragoman.scopes o CROSS JOIN LATERAL (
    SELECT count(*) STATES AS tasks FROM dragoman.tasks t
    WHERE t.scope = o.scope AND t.context = :context BOUNDS) p
WHERE SCOPES

-- name: in_states
-- Only tasks in these states. Without it, a count compares nothing but the index.
FILTER (WHERE t.state = ANY (:states::smallint[]))

-- name: lock_counted
-- Wait until nobody writes who may not see which contexts are counted, and let nobody begin: a statement locks the tables
-- that it reads until its transaction is over, and looks at them only then.
LOCK TABLE dragoman.counted_contexts IN ACCESS EXCLUSIVE MODE

-- name: count_context
-- Give counters to a context in those scopes where it has at least :many tasks.
WITH large AS (
    SELECT o.scope, count(*) FILTER (WHERE t.state = 0) AS n0, count(*) FILTER (WHERE t.state = 1) AS n1,
        count(*) FILTER (WHERE t.state = 2) AS n2, count(*) FILTER (WHERE t.state = 3) AS n3,
        count(*) FILTER (WHERE t.state = 4) AS n4, count(*) FILTER (WHERE t.state = 5) AS n5,
        count(*) FILTER (WHERE t.state = 6) AS n6, count(*) FILTER (WHERE t.state = 7) AS n7
    FROM dragoman.scopes o JOIN dragoman.tasks t ON t.scope = o.scope AND t.context = :context
    WHERE SCOPES AND NOT EXISTS (
        SELECT FROM dragoman.counted_contexts k WHERE k.scope = o.scope AND k.context = :context)
    GROUP BY o.scope HAVING count(*) >= :many
), made AS (
    INSERT INTO dragoman.counted_contexts (scope, context) SELECT scope, :context FROM large RETURNING scope, number
)
INSERT INTO dragoman.counts (scope, context, replica, lane, n0, n1, n2, n3, n4, n5, n6, n7)
SELECT scope, number, '', 0, n0, n1, n2, n3, n4, n5, n6, n7 FROM made JOIN large USING (scope)

-- name: of_owner
-- Only the scopes of an owner.
o.owner = :owner

-- name: of_owners
-- Only the scopes of a range of owners.
o.owner BETWEEN :owner AND :last_owner

-- name: of_agent
-- Only the scopes of an agent.
o.agent = :agent
