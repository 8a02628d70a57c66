-- The statements that read and sweep usage. Each driver adds to the sums in its own way.

-- name: usage_days
-- The sums of the days from $1 to $2, of the owners from $3 to $4.
SELECT u.model, sum(u.runs)::bigint, sum(u.tasks)::bigint, sum(u.messages)::bigint, sum(u.reported)::bigint,
    sum(u.input_tokens)::bigint, sum(u.output_tokens)::bigint, sum(u.total_tokens)::bigint, sum(u.duration_ms)::bigint,
    sum(u.cached_tokens)::bigint, sum(u.uncertain)::bigint, sum(u.waited_ms)::bigint,
    u.day, s.owner, s.agent
FROM dragoman.usage_days u JOIN dragoman.scopes s ON s.scope = u.scope
WHERE u.day BETWEEN $1 AND $2 AND s.owner BETWEEN $3 AND $4
GROUP BY u.day, u.scope, u.model, s.owner, s.agent;

-- name: usage_by_agent
-- The sums of the days from $1 to $2 of all owners together, each at most TOKENS_MAX.
SELECT u.model, least(sum(u.runs * 1.0), 9007199254740991)::bigint, least(sum(u.tasks * 1.0), 9007199254740991)::bigint,
    least(sum(u.messages * 1.0), 9007199254740991)::bigint, least(sum(u.reported * 1.0), 9007199254740991)::bigint,
    least(sum(u.input_tokens * 1.0), 9007199254740991)::bigint, least(sum(u.output_tokens * 1.0), 9007199254740991)::bigint,
    least(sum(u.total_tokens * 1.0), 9007199254740991)::bigint, least(sum(u.duration_ms * 1.0), 9007199254740991)::bigint,
    least(sum(u.cached_tokens * 1.0), 9007199254740991)::bigint, least(sum(u.uncertain * 1.0), 9007199254740991)::bigint,
    least(sum(u.waited_ms * 1.0), 9007199254740991)::bigint, u.day, s.agent
FROM dragoman.usage_days u JOIN dragoman.scopes s ON s.scope = u.scope
WHERE u.day BETWEEN $1 AND $2
GROUP BY u.day, s.agent, u.model;

-- name: day_tokens
-- How many tokens a range of owners has used in a day, at most TOKENS_MAX. SQLite's sum of integers fails where it overflows, and this
-- one of others does not.
SELECT least(coalesce(sum(u.total_tokens * 1.0), 0), 9007199254740991)::bigint
FROM dragoman.scopes s JOIN dragoman.usage_days u ON u.day = $2 AND u.scope = s.scope WHERE s.owner BETWEEN $1 AND $3;

-- name: old_usage
-- Whether there are sums of a day before $1, of which a sweep deletes $2.
SELECT EXISTS (SELECT 1 FROM dragoman.usage_days WHERE day < $1 LIMIT $2);

-- name: sweep_usage
-- Delete at most $2 sums of days before $1, the oldest first.
WITH old AS MATERIALIZED (
    SELECT day, scope, model, replica, lane FROM dragoman.usage_days WHERE day < $1 ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM dragoman.usage_days WHERE (day, scope, model, replica, lane) IN (SELECT day, scope, model, replica, lane FROM old)
RETURNING day;
