-- The statements that delete what has expired. Rows that another sweep, or a writer, is at are left for the next time.

-- name: sweep_tasks
-- Delete at most $3 tasks of one kind (0 interrupted, 1 terminal, 2 terminal without log) with a status older than $2, oldest
-- first, with all that belongs to them. One that was delegated by a task that has not ended is left: that one may not have read
-- its outcome yet. None has a status older than $6: until a vacuum the index still leads to those that earlier batches deleted.
-- Returns how many tasks, their newest status, how many rows, the tasks that have webhooks, the heads of those that have not
-- ended, and, if there is state of conversations, the scopes and contexts of all.
WITH old AS MATERIALIZED (
    SELECT t.task, t.status_ms, t.files FROM dragoman.tasks t
    WHERE t.state > 1 AND (CASE WHEN t.state < 4 THEN 0 WHEN t.pruned THEN 2 ELSE 1 END) = $1 AND t.status_ms < $2
        AND t.status_ms >= $6
        AND (t.parent IS NULL OR coalesce((SELECT p.state FROM dragoman.tasks p WHERE p.id = t.parent), 4) > 3)
    ORDER BY t.status_ms LIMIT $3 FOR UPDATE OF t SKIP LOCKED
), gone AS (
    DELETE FROM dragoman.tasks t USING old WHERE t.task = ANY (ARRAY[old.task])
    RETURNING t.task, t.scope, t.context, t.state, t.pushed, CASE WHEN t.state < 4 THEN t.head END AS open
), pages AS (
    DELETE FROM dragoman.pages p USING old WHERE p.task = ANY (ARRAY[old.task]) RETURNING 1
), snapshots AS (
    DELETE FROM dragoman.snapshots s USING old WHERE s.task = ANY (ARRAY[old.task]) RETURNING 1
), files AS (
    DELETE FROM dragoman.files f USING old WHERE old.files AND f.task = ANY (ARRAY[old.task]) RETURNING 1
), receipts AS (
    DELETE FROM dragoman.receipts r USING old WHERE r.task = ANY (ARRAY[old.task])
), acts AS (
    DELETE FROM dragoman.state_acts a USING old WHERE a.task = ANY (ARRAY[old.task])
), counted AS (
    INSERT INTO dragoman.counts (scope, context, replica, lane, n0, n1, n2, n3, n4, n5, n6, n7)
    SELECT scope, number, $4, $5, -count(*) FILTER (WHERE state = 0), -count(*) FILTER (WHERE state = 1),
        -count(*) FILTER (WHERE state = 2), -count(*) FILTER (WHERE state = 3), -count(*) FILTER (WHERE state = 4),
        -count(*) FILTER (WHERE state = 5), -count(*) FILTER (WHERE state = 6), -count(*) FILTER (WHERE state = 7)
    FROM (SELECT scope, context AS name, state FROM gone) g CROSS JOIN LATERAL (
        SELECT 0 AS number
        UNION ALL SELECT k.number FROM dragoman.counted_contexts k WHERE k.scope = g.scope AND k.context = g.name) k
    GROUP BY scope, number ORDER BY scope, number
    ON CONFLICT (scope, context, replica, lane) DO UPDATE SET n0 = counts.n0 + excluded.n0, n1 = counts.n1 + excluded.n1,
        n2 = counts.n2 + excluded.n2, n3 = counts.n3 + excluded.n3, n4 = counts.n4 + excluded.n4,
        n5 = counts.n5 + excluded.n5, n6 = counts.n6 + excluded.n6, n7 = counts.n7 + excluded.n7
)
SELECT (SELECT count(*) FROM old), (SELECT max(status_ms) FROM old),
    (SELECT count(*) FROM gone) + (SELECT count(*) FROM pages) + (SELECT count(*) FROM snapshots) + (SELECT count(*) FROM files),
    ARRAY(SELECT task FROM gone WHERE pushed), ARRAY(SELECT open FROM gone WHERE open IS NOT NULL),
    ARRAY(SELECT scope FROM gone WHERE EXISTS (SELECT FROM dragoman.state_spaces) ORDER BY task),
    ARRAY(SELECT context FROM gone WHERE EXISTS (SELECT FROM dragoman.state_spaces) ORDER BY task);

-- name: charge_deleted
-- Charge accounts for tasks that are deleted before their end, in the row of this lane: $2 is what they reserve no longer, $3
-- their cost.
INSERT INTO dragoman.budget_balances AS b (account, replica, lane, granted, used, reserved)
SELECT v.account, $4, $5::smallint, '0', v.used, (-(v.released::numeric))::text
FROM unnest($1::text[], $2::text[], $3::text[]) AS v (account, released, used) ORDER BY v.account
ON CONFLICT (account, replica, lane) DO UPDATE SET used = (b.used::numeric + excluded.used::numeric)::text,
    reserved = (b.reserved::numeric + excluded.reserved::numeric)::text;

-- name: delete_tasks
-- Delete those of the tasks $1 that have ended, with all that belongs to them. Returns their ids, the tasks that have webhooks,
-- and the scopes and contexts of all. The remembered calls are found by reading all of them: only operators ask, and calls
-- expire within minutes.
WITH old AS MATERIALIZED (
    SELECT task, id FROM dragoman.tasks WHERE id = ANY ($1::text[]) AND state > 3 ORDER BY id FOR UPDATE
), gone AS (
    DELETE FROM dragoman.tasks t USING old WHERE t.task = ANY (ARRAY[old.task])
    RETURNING t.task, t.id, t.scope, t.context, t.state, t.pushed
), pages AS (
    DELETE FROM dragoman.pages p USING old WHERE p.task = ANY (ARRAY[old.task]) RETURNING 1
), snapshots AS (
    DELETE FROM dragoman.snapshots s USING old WHERE s.task = ANY (ARRAY[old.task]) RETURNING 1
), files AS (
    DELETE FROM dragoman.files f USING old WHERE f.task = ANY (ARRAY[old.task]) RETURNING 1
), receipts AS (
    DELETE FROM dragoman.receipts r USING old WHERE r.task = ANY (ARRAY[old.task])
), acts AS (
    DELETE FROM dragoman.state_acts a USING old WHERE a.task = ANY (ARRAY[old.task])
), calls AS (
    DELETE FROM dragoman.calls c USING old WHERE c.task_id = old.id RETURNING 1
), counted AS (
    INSERT INTO dragoman.counts (scope, context, replica, lane, n0, n1, n2, n3, n4, n5, n6, n7)
    SELECT scope, number, $2, $3, -count(*) FILTER (WHERE state = 0), -count(*) FILTER (WHERE state = 1),
        -count(*) FILTER (WHERE state = 2), -count(*) FILTER (WHERE state = 3), -count(*) FILTER (WHERE state = 4),
        -count(*) FILTER (WHERE state = 5), -count(*) FILTER (WHERE state = 6), -count(*) FILTER (WHERE state = 7)
    FROM (SELECT scope, context AS name, state FROM gone) g CROSS JOIN LATERAL (
        SELECT 0 AS number
        UNION ALL SELECT k.number FROM dragoman.counted_contexts k WHERE k.scope = g.scope AND k.context = g.name) k
    GROUP BY scope, number ORDER BY scope, number
    ON CONFLICT (scope, context, replica, lane) DO UPDATE SET n0 = counts.n0 + excluded.n0, n1 = counts.n1 + excluded.n1,
        n2 = counts.n2 + excluded.n2, n3 = counts.n3 + excluded.n3, n4 = counts.n4 + excluded.n4,
        n5 = counts.n5 + excluded.n5, n6 = counts.n6 + excluded.n6, n7 = counts.n7 + excluded.n7
)
SELECT ARRAY(SELECT id FROM gone ORDER BY id), ARRAY(SELECT task FROM gone WHERE pushed),
    ARRAY(SELECT scope FROM gone ORDER BY task), ARRAY(SELECT context FROM gone ORDER BY task);

-- name: hold_conversations
-- The spaces of state of the contexts $2 in the scopes $1, kept until the end of the transaction. Two that delete the last tasks
-- of one context look at its tasks one after the other, so that the second one sees that there are none.
SELECT p.space FROM unnest($1::integer[], $2::text[]) AS v (scope, context)
JOIN dragoman.scopes s ON s.scope = v.scope
JOIN dragoman.state_spaces p ON p.agent = s.agent AND p.owner = s.owner AND p.context = v.context AND p.ended = 0
WHERE v.context <> '' ORDER BY p.space FOR UPDATE OF p;

-- name: end_conversations
-- End those of the spaces $1 whose conversation has no tasks left. The order is that of the index of contexts: without one, the
-- planner would read all tasks where it expects to meet one of the conversation early.
UPDATE dragoman.state_spaces p SET ended = 1 WHERE p.space = ANY ($1::bigint[]) AND p.ended = 0 AND (
    SELECT t.task FROM dragoman.tasks t
    WHERE t.scope = (SELECT s.scope FROM dragoman.scopes s WHERE s.agent = p.agent AND s.owner = p.owner)
        AND t.context = p.context
    ORDER BY t.scope, t.context, t.status_ms LIMIT 1) IS NULL;

-- name: sweep_logs
-- Delete the logs of at most $2 terminal tasks with a status older than $1, and not older than $3, oldest first. A task without a
-- snapshot keeps its log, since it could not be read otherwise. Returns how many tasks, and the newest status.
WITH old AS MATERIALIZED (
    SELECT task, status_ms FROM dragoman.tasks
    WHERE state > 1 AND (CASE WHEN state < 4 THEN 0 WHEN pruned THEN 2 ELSE 1 END) = 1 AND status_ms < $1 AND status_ms >= $3
    ORDER BY status_ms LIMIT $2 FOR UPDATE SKIP LOCKED
), pruned AS (
    UPDATE dragoman.tasks t SET pruned = true FROM old WHERE t.task = ANY (ARRAY[old.task])
), pages AS (
    DELETE FROM dragoman.pages p USING old WHERE p.task = ANY (ARRAY[old.task])
        AND EXISTS (SELECT FROM dragoman.snapshots s WHERE s.task = old.task)
)
SELECT count(*), max(status_ms) FROM old;

-- name: sweep_calls
-- Delete at most $2 calls that had expired at $1, but not before $3, the oldest first. Returns how many, and the newest expiry.
WITH old AS MATERIALIZED (
    SELECT key, expires_ms FROM dragoman.calls WHERE expires_ms <= $1 AND expires_ms >= $3 ORDER BY expires_ms LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dragoman.calls c USING old WHERE c.key = ANY (ARRAY[old.key])
)
SELECT count(*), max(expires_ms) FROM old;

-- name: sweep_days
-- Delete at most $2 of the counts of days before $1. Returns how many.
WITH old AS MATERIALIZED (
    SELECT day, owner FROM dragoman.quota_days WHERE day < $1 ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dragoman.quota_days q USING old WHERE q.day = old.day AND q.owner = old.owner RETURNING 1
)
SELECT count(*) FROM gone;

-- name: merge_counts
-- Add up at most $1 counters of replicas that are gone in the one without a name. It does not matter when: a replica that
-- turns out to live begins another row. Returns how many. This reads all counters.
WITH old AS MATERIALIZED (
    SELECT scope, context, replica, lane FROM dragoman.counts c WHERE replica <> ''
        AND NOT EXISTS (SELECT FROM dragoman.replicas r WHERE r.id = c.replica AND NOT r.dead)
    ORDER BY scope, context, replica, lane LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dragoman.counts c USING old
    WHERE c.scope = old.scope AND c.context = old.context AND c.replica = old.replica AND c.lane = old.lane
    RETURNING c.*
), merged AS (
    INSERT INTO dragoman.counts (scope, context, replica, lane, n0, n1, n2, n3, n4, n5, n6, n7)
    SELECT scope, context, '', 0, sum(n0), sum(n1), sum(n2), sum(n3), sum(n4), sum(n5), sum(n6), sum(n7)
    FROM gone GROUP BY scope, context ORDER BY scope, context
    ON CONFLICT (scope, context, replica, lane) DO UPDATE SET n0 = counts.n0 + excluded.n0, n1 = counts.n1 + excluded.n1,
        n2 = counts.n2 + excluded.n2, n3 = counts.n3 + excluded.n3, n4 = counts.n4 + excluded.n4,
        n5 = counts.n5 + excluded.n5, n6 = counts.n6 + excluded.n6, n7 = counts.n7 + excluded.n7
)
SELECT count(*) FROM gone;

-- name: forget_contexts
-- Take their counters from contexts that have no tasks any more, and delete counters that a write added to meanwhile.
WITH empty AS (
    DELETE FROM dragoman.counted_contexts k
    WHERE NOT EXISTS (SELECT FROM dragoman.tasks t WHERE t.scope = k.scope AND t.context = k.context)
    RETURNING number
), gone AS (
    DELETE FROM dragoman.counts c WHERE c.context > 0 AND (c.context IN (SELECT number FROM empty)
        OR NOT EXISTS (SELECT FROM dragoman.counted_contexts k WHERE k.number = c.context))
)
SELECT count(*) FROM empty;

-- name: merge_balances
-- Add up at most $1 balances of replicas that are gone in the ones without a name, to which nothing is granted. Returns how many.
-- This reads all balances.
WITH old AS MATERIALIZED (
    SELECT account, replica, lane FROM dragoman.budget_balances b WHERE replica <> ''
        AND NOT EXISTS (SELECT FROM dragoman.replicas r WHERE r.id = b.replica AND NOT r.dead)
    ORDER BY account, replica, lane LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dragoman.budget_balances b USING old
    WHERE b.account = old.account AND b.replica = old.replica AND b.lane = old.lane
    RETURNING b.*
), merged AS (
    INSERT INTO dragoman.budget_balances AS b (account, replica, lane, granted, used, reserved)
    SELECT account, '', 0, '0', sum(used::numeric)::text, sum(reserved::numeric)::text
    FROM gone GROUP BY account ORDER BY account
    ON CONFLICT (account, replica, lane) DO UPDATE SET used = (b.used::numeric + excluded.used::numeric)::text,
        reserved = (b.reserved::numeric + excluded.reserved::numeric)::text
)
SELECT count(*) FROM gone;

-- name: merge_usage
-- Add up at most $1 sums of days of replicas that are gone in the ones without a name. Returns how many. This reads all sums.
WITH old AS MATERIALIZED (
    SELECT day, scope, model, replica, lane FROM dragoman.usage_days u WHERE replica <> ''
        AND NOT EXISTS (SELECT FROM dragoman.replicas r WHERE r.id = u.replica AND NOT r.dead)
    ORDER BY day, scope, model, replica, lane LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dragoman.usage_days u USING old
    WHERE u.day = old.day AND u.scope = old.scope AND u.model = old.model AND u.replica = old.replica AND u.lane = old.lane
    RETURNING u.*
), merged AS (
    INSERT INTO dragoman.usage_days (day, scope, model, replica, lane, runs, tasks, messages, reported,
        input_tokens, output_tokens, total_tokens, duration_ms, cached_tokens, uncertain, waited_ms)
    SELECT day, scope, model, '', 0, sum(runs), sum(tasks), sum(messages), sum(reported),
        least(sum(input_tokens), 9007199254740991), least(sum(output_tokens), 9007199254740991),
        least(sum(total_tokens), 9007199254740991), sum(duration_ms), least(sum(cached_tokens), 9007199254740991),
        least(sum(uncertain), 9007199254740991), sum(waited_ms)
    FROM gone GROUP BY day, scope, model ORDER BY day, scope, model
    ON CONFLICT (day, scope, model, replica, lane) DO UPDATE SET runs = usage_days.runs + excluded.runs,
        tasks = usage_days.tasks + excluded.tasks, messages = usage_days.messages + excluded.messages,
        reported = usage_days.reported + excluded.reported,
        input_tokens = least(usage_days.input_tokens + excluded.input_tokens, 9007199254740991),
        output_tokens = least(usage_days.output_tokens + excluded.output_tokens, 9007199254740991),
        total_tokens = least(usage_days.total_tokens + excluded.total_tokens, 9007199254740991),
        duration_ms = usage_days.duration_ms + excluded.duration_ms,
        cached_tokens = least(usage_days.cached_tokens + excluded.cached_tokens, 9007199254740991),
        uncertain = least(usage_days.uncertain + excluded.uncertain, 9007199254740991),
        waited_ms = usage_days.waited_ms + excluded.waited_ms
)
SELECT count(*) FROM gone;
