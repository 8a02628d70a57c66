-- The statements about leases of workers. `t` is the time of the database. Appends to tasks grant and end them (tasks.sql).

-- name: get_lease
-- The newest lease of the task with the id $1, for how long it runs, and whether it or its task is over.
SELECT w.lease, w.reports, w.until_ms - (extract(epoch FROM clock_timestamp()) * 1000)::bigint, w.over OR k.state > 3
FROM dragoman.tasks k JOIN dragoman.worker_leases w ON w.task = k.task WHERE k.id = $1;

-- name: renew_leases
-- Let the leases of the tasks $1 with the tokens $2 run for $3 milliseconds more. Rows are locked in the order of batches of
-- writes, by the ids of the tasks, against deadlocks.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms), locked AS MATERIALIZED (
    SELECT w.task FROM unnest($1::text[], $2::text[]) AS v (id, token)
    JOIN dragoman.tasks k ON k.id = v.id AND k.state < 4
    JOIN dragoman.worker_leases w ON w.task = k.task AND w.token = v.token ORDER BY k.id FOR UPDATE OF w)
UPDATE dragoman.worker_leases w SET until_ms = t.ms + $3
FROM locked, t WHERE w.task = locked.task AND NOT w.over AND w.until_ms > t.ms
RETURNING w.token, w.lease, w.reports;

-- name: note_lease
-- Change the lease of the task $1 with the token $2 to $6, the version $3 with $4 questions and $5 reports, if it runs and has
-- the version before, and not more reports.
UPDATE dragoman.worker_leases w SET version = $3, questions = $4, reports = $5, lease = $6
FROM dragoman.tasks k WHERE k.id = $1 AND k.state < 4 AND w.task = k.task AND w.token = $2 AND w.version = $3 - 1
    AND w.reports <= $5 AND NOT w.over AND w.until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint
RETURNING w.task;

-- name: leases_of_agent
-- The leases of the tasks of the agent $1 that run.
SELECT w.lease, w.reports, w.until_ms - (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM dragoman.worker_leases w JOIN dragoman.tasks k ON k.task = w.task AND k.state < 4
WHERE w.agent = $1 AND NOT w.over AND w.until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint ORDER BY w.task;

-- name: running_leases
-- The tokens of the leases of the tasks $1 with the tokens $2 that run. Each is found by its task, however many there are.
SELECT v.token FROM unnest($1::text[], $2::text[]) AS v (id, token)
CROSS JOIN LATERAL (SELECT k.task FROM dragoman.tasks k WHERE k.id = v.id AND k.state + 0 < 4 LIMIT 1) k
CROSS JOIN LATERAL (SELECT w.token, w.over, w.until_ms FROM dragoman.worker_leases w WHERE w.task = k.task LIMIT 1) w
WHERE w.token = v.token AND NOT w.over AND w.until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: due_leases
-- Leases that have run out and are not over, and those that run, whose workers have worked for too long: at most $1 of each.
-- One whose task waits for its caller does not work.
(SELECT false, w.lease, w.reports, k.id, w.agent, w.token, w.version FROM dragoman.worker_leases w
JOIN dragoman.tasks k ON k.task = w.task AND k.state < 4 WHERE w.until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint AND NOT w.over ORDER BY w.until_ms LIMIT $1)
UNION ALL
(SELECT true, w.lease, w.reports, k.id, w.agent, w.token, w.version FROM dragoman.worker_leases w
JOIN dragoman.tasks k ON k.task = w.task AND k.state < 2
WHERE w.due_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint AND NOT w.over AND w.until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint ORDER BY w.due_ms LIMIT $1);

-- name: forget_leases
-- Delete what is over, or whose task is, and is not known any more: after $2 milliseconds, at most $1 rows.
DELETE FROM dragoman.worker_leases WHERE task IN (
    SELECT w.task FROM dragoman.worker_leases w LEFT JOIN dragoman.tasks k ON k.task = w.task
    WHERE w.until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - CASE WHEN w.over THEN 0 ELSE $2::bigint END AND w.until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
        AND (w.over OR k.state IS NULL OR k.state > 3) ORDER BY w.until_ms LIMIT $1 FOR UPDATE OF w SKIP LOCKED);
