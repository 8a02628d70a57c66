-- The statements about usage.

-- name: usage_days
-- The sums of the days from $1 to $2.
SELECT u.model, sum(u.runs)::bigint, sum(u.tasks)::bigint, sum(u.messages)::bigint, sum(u.reported)::bigint,
    sum(u.input_tokens)::bigint, sum(u.output_tokens)::bigint, sum(u.total_tokens)::bigint, sum(u.duration_ms)::bigint,
    u.day, s.owner, s.agent
FROM dragoman.usage_days u JOIN dragoman.scopes s ON s.scope = u.scope WHERE u.day BETWEEN $1 AND $2
GROUP BY u.day, u.model, s.owner, s.agent;

-- name: sweep_usage
-- Delete at most $2 sums of days before $1, the oldest first. Returns how many.
WITH old AS MATERIALIZED (
    SELECT day, scope, model, replica, lane FROM dragoman.usage_days WHERE day < $1 ORDER BY day LIMIT $2
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dragoman.usage_days u USING old
    WHERE (u.day, u.scope, u.model, u.replica, u.lane) = (old.day, old.scope, old.model, old.replica, old.lane) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: day_tokens
-- How many tokens an owner has used in a day, at most TOKENS_MAX.
SELECT least(coalesce(sum(u.total_tokens), 0), 9007199254740991)::bigint FROM dragoman.scopes s
JOIN dragoman.usage_days u ON u.day = $2 AND u.scope = s.scope WHERE s.owner = $1;
