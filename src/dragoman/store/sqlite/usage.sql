-- The writing of usage.

-- name: add_usage
-- Add to the sums of days. Sums of tokens stop at TOKENS_MAX.
INSERT INTO usage_days (day, scope, model, replica, lane, runs, tasks, messages, reported, input_tokens, output_tokens,
    total_tokens, duration_ms, cached_tokens, uncertain, waited_ms)
VALUES ROWS(16)
ON CONFLICT (day, scope, model, replica, lane) DO UPDATE SET runs = runs + excluded.runs, tasks = tasks + excluded.tasks,
    messages = messages + excluded.messages, reported = reported + excluded.reported,
    input_tokens = min(input_tokens + excluded.input_tokens, 9007199254740991),
    output_tokens = min(output_tokens + excluded.output_tokens, 9007199254740991),
    total_tokens = min(total_tokens + excluded.total_tokens, 9007199254740991), duration_ms = duration_ms + excluded.duration_ms,
    cached_tokens = min(cached_tokens + excluded.cached_tokens, 9007199254740991),
    uncertain = min(uncertain + excluded.uncertain, 9007199254740991), waited_ms = waited_ms + excluded.waited_ms;
