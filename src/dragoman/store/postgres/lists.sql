-- The statements of lists. LIST is one of the arms below; `:name` stands for a value. BOUNDS are those of the query.

-- name: list
-- A page: number and status of its tasks in their order, each with its row, snapshot and pages, as far as they fit :max_bytes
-- (null: all). There is always one row, with the total; without a task it has only that. The last column says whether there
-- are more.
WITH found AS MATERIALIZED (
    LIST
    ORDER BY status_ms DESC, id DESC LIMIT :limit + 1 OFFSET :offset
), sized AS MATERIALIZED (
    SELECT f.*, row_number() OVER w AS place, sum(t.log_bytes
        + coalesce((SELECT octet_length(s.record) FROM dragoman.snapshots s WHERE s.task = f.task), 0)
        + CASE WHEN t.files AND :files THEN coalesce((SELECT sum(octet_length(b.bytes)) FROM dragoman.files b
            WHERE b.task = f.task), 0) ELSE 0 END) OVER w AS bytes
    FROM found f CROSS JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = f.task LIMIT 1) t
    WINDOW w AS (ORDER BY f.status_ms DESC, f.id DESC)
)
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files, t.head, t.pushed, t.keeper,
    t.offered_until_ms, t.webhooks_version, s.record, p.firsts, p.pages, (TOTAL)::bigint AS total,
    (SELECT count(*) FROM found) AS found
FROM (SELECT 1) AS one
LEFT JOIN sized v ON v.place <= :limit AND (v.place = 1 OR :max_bytes IS NULL OR v.bytes <= :max_bytes)
LEFT JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = v.task LIMIT 1) t ON true
LEFT JOIN LATERAL (SELECT * FROM dragoman.snapshots s WHERE s.task = v.task LIMIT 1) s ON true
LEFT JOIN LATERAL (
    SELECT array_agg(p.first_seq ORDER BY p.first_seq) AS firsts, array_agg(p.events ORDER BY p.first_seq) AS pages
    FROM dragoman.pages p WHERE p.task = v.task AND p.first_seq > coalesce(s.seq, 0)) p ON true
ORDER BY v.place;

-- name: scope
-- Tasks of an owner with an agent.
SELECT p.* FROM dragoman.scopes o CROSS JOIN unnest(:states::smallint[]) AS v (state) CROSS JOIN LATERAL (
    SELECT t.task, t.status_ms, t.id FROM dragoman.tasks t WHERE t.scope = o.scope AND t.state = v.state BOUNDS
    ORDER BY t.status_ms DESC, t.id DESC LIMIT :limit + 1 + :offset) p
WHERE SCOPES

-- name: scopes
-- Tasks of several scopes: those of an agent, of an owner, or all. Each scope and state gives as many as the page may need, so that the cost grows with
-- the owners, not with their tasks.
SELECT p.* FROM dragoman.scopes o CROSS JOIN unnest(:states::smallint[]) AS v (state) CROSS JOIN LATERAL (
    SELECT t.task, t.status_ms, t.id FROM dragoman.tasks t WHERE t.scope = o.scope AND t.state = v.state BOUNDS
    ORDER BY t.status_ms DESC, t.id DESC LIMIT :limit + 1 + :offset) p
WHERE SCOPES

-- name: scope_context
-- Tasks of an owner with an agent, within a context.
SELECT p.* FROM dragoman.scopes o CROSS JOIN LATERAL (
    SELECT t.task, t.status_ms, t.id FROM dragoman.tasks t
    WHERE t.scope = o.scope AND t.context = :context AND t.state = ANY (:states::smallint[]) BOUNDS
    ORDER BY t.status_ms DESC, t.id DESC LIMIT :limit + 1 + :offset) p
WHERE SCOPES

-- name: scopes_context
-- Tasks of several scopes within a context, which each of them may have.
SELECT p.* FROM dragoman.scopes o CROSS JOIN LATERAL (
    SELECT t.task, t.status_ms, t.id FROM dragoman.tasks t
    WHERE t.scope = o.scope AND t.context = :context AND t.state = ANY (:states::smallint[]) BOUNDS
    ORDER BY t.status_ms DESC, t.id DESC LIMIT :limit + 1 + :offset) p
WHERE SCOPES

-- name: after
-- Only tasks whose status is not older than a time.
AND t.status_ms >= :after_ms

-- name: before
-- Only the tasks after the last one of the previous page.
AND (t.status_ms, t.id) < (:before_ms, :before_id)

-- name: total
-- How many tasks there are, from the counters. COUNTERS are the sums of the states that the query asks for.
SELECT coalesce(sum(COUNTERS), 0) FROM dragoman.scopes o JOIN dragoman.counts c USING (scope) WHERE SCOPES

-- name: total_in_index
-- The same by counting in an index, for a query with a context or a time.
SELECT count(*) FROM dragoman.scopes o CROSS JOIN unnest(:states::smallint[]) AS v (state) CROSS JOIN LATERAL (
    SELECT FROM dragoman.tasks t WHERE t.scope = o.scope AND t.state = v.state BOUNDS OFFSET 0) p
WHERE SCOPES

-- name: total_of_context
-- The same within a context.
SELECT coalesce(sum(p.tasks), 0) FROM dragoman.scopes o CROSS JOIN LATERAL (
    SELECT count(*) AS tasks FROM dragoman.tasks t
    WHERE t.scope = o.scope AND t.context = :context STATES BOUNDS) p
WHERE SCOPES

-- name: in_states
-- Only tasks in these states. Without it, a count compares nothing but the index.
AND t.state = ANY (:states::smallint[])

-- name: of_owner
-- Only the scopes of an owner.
o.owner = :owner

-- name: of_agent
-- Only the scopes of an agent.
o.agent = :agent
