-- The statements about usage. Positional values are in the order of their numbers.

-- name: add_usage
-- Add to the sums of days. Sums of tokens stop at TOKENS_MAX.
INSERT INTO usage_days (day, scope, model, replica, lane, runs, tasks, messages, reported, input_tokens, output_tokens,
    total_tokens, duration_ms)
VALUES ROWS(13)
ON CONFLICT (day, scope, model, replica, lane) DO UPDATE SET runs = runs + excluded.runs, tasks = tasks + excluded.tasks,
    messages = messages + excluded.messages, reported = reported + excluded.reported,
    input_tokens = min(input_tokens + excluded.input_tokens, 9007199254740991),
    output_tokens = min(output_tokens + excluded.output_tokens, 9007199254740991),
    total_tokens = min(total_tokens + excluded.total_tokens, 9007199254740991), duration_ms = duration_ms + excluded.duration_ms;

-- name: usage_days
-- The sums of the days from ?1 to ?2.
SELECT u.model, sum(u.runs), sum(u.tasks), sum(u.messages), sum(u.reported), sum(u.input_tokens), sum(u.output_tokens),
    sum(u.total_tokens), sum(u.duration_ms), u.day, s.owner, s.agent
FROM usage_days u JOIN scopes s ON s.scope = u.scope WHERE u.day BETWEEN ?1 AND ?2
GROUP BY u.day, u.scope, u.model;

-- name: old_usage
-- Whether there are sums of a day before ?1.
SELECT EXISTS (SELECT 1 FROM usage_days WHERE day < ?1);

-- name: sweep_usage
-- Delete at most ?2 sums of days before ?1, the oldest first.
DELETE FROM usage_days WHERE (day, scope, model, replica, lane) IN (
    SELECT day, scope, model, replica, lane FROM usage_days WHERE day < ?1 ORDER BY day LIMIT ?2);

-- name: day_tokens
-- How many tokens an owner has used in a day, at most TOKENS_MAX.
SELECT CAST(min(total(u.total_tokens), 9007199254740991) AS INTEGER) FROM scopes s CROSS JOIN usage_days u ON u.day = ?2 AND u.scope = s.scope
WHERE s.owner = ?1;
