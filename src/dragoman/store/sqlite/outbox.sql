-- The statements about webhooks, deliveries and quotas. Positional values are in the order of their numbers.
-- ROWS(n) expands to rows of n values: see `schema.for_rows`.

-- name: find_host
-- The number of a host.
SELECT host FROM push_hosts WHERE name = ?1;

-- name: add_host
-- Give a host its number.
INSERT INTO push_hosts (name) VALUES (?1) RETURNING host;

-- name: drop_hosts
-- Delete hosts, by a JSON array of their numbers, that have no webhooks left.
DELETE FROM push_hosts WHERE host IN (SELECT value FROM json_each(?1))
    AND NOT EXISTS (SELECT 1 FROM push_configs c WHERE c.host = push_hosts.host);

-- name: mark_pushed
-- Mark that a task has webhooks.
UPDATE tasks SET pushed = 1, webhooks_version = webhooks_version + 1 WHERE id = ?1 RETURNING task;

-- name: add_webhooks
-- New webhooks, each with its due time and whether its first delivery is large.
INSERT INTO push_configs (config, task, id, host, settings, due_ms, large, key) VALUES ROWS(8);

-- name: find_webhook
-- A webhook of a task.
SELECT config, host FROM push_configs WHERE task = ?1 AND id = ?2;

-- name: replace_webhook
-- Change the host and the settings of a webhook. Its pending deliveries stay in their order.
UPDATE push_configs SET host = ?2, settings = ?3, key = ?4, stopped = 0 WHERE config = ?1;

-- name: remove_webhook
-- Delete a webhook of a task.
DELETE FROM push_configs WHERE task = (SELECT task FROM tasks WHERE id = ?1) AND id = ?2 RETURNING task, config, host;

-- name: unmark_pushed
-- Mark that a task has lost a webhook, and whether it still has any.
UPDATE tasks SET pushed = EXISTS (SELECT 1 FROM push_configs WHERE task = ?1), webhooks_version = webhooks_version + 1
WHERE task = ?1;

-- name: delete_owed
-- Delete the deliveries of a webhook.
DELETE FROM deliveries WHERE config = ?1;

-- name: stop_webhook
-- Stop a webhook: it gets no more deliveries.
UPDATE push_configs SET stopped = 1, due_ms = NULL, claimed = NULL, retries = 0 WHERE config = ?1;

-- name: settings
-- The webhooks of a task, oldest first.
SELECT settings FROM push_configs WHERE task = (SELECT task FROM tasks WHERE id = ?1) ORDER BY config;

-- name: webhooks
-- The active webhooks of tasks, as one JSON array of [task, id, config, idle, retries, host].
SELECT json_group_array(json_array(task, id, config, due_ms IS NULL, retries, host))
FROM push_configs WHERE task IN (SELECT value FROM json_each(?1)) AND NOT stopped;

-- name: merge
-- Delete the deliveries behind the oldest one of each webhook, by a JSON array of their numbers, except kept ones and one in
-- flight: newer ones follow.
DELETE FROM deliveries WHERE delivery IN (
    SELECT d.delivery FROM json_each(?1) j CROSS JOIN push_configs c ON c.config = j.value
        CROSS JOIN deliveries d ON d.config = c.config AND d.dead = 0 AND NOT d.kept AND d.delivery IS NOT c.claimed
            AND d.delivery > (SELECT o.delivery FROM deliveries o WHERE o.config = c.config AND o.dead = 0
                ORDER BY o.delivery LIMIT 1));

-- name: merge_waiting
-- The same for webhooks whose oldest delivery has just failed: of those that are not kept, the newest stays.
DELETE FROM deliveries WHERE delivery IN (
    SELECT d.delivery FROM json_each(?1) j CROSS JOIN deliveries d ON d.config = j.value AND d.dead = 0 AND NOT d.kept
        AND d.delivery > (SELECT o.delivery FROM deliveries o WHERE o.config = j.value AND o.dead = 0
            ORDER BY o.delivery LIMIT 1)
        AND d.delivery < (SELECT n.delivery FROM deliveries n WHERE n.config = j.value AND n.dead = 0 AND NOT n.kept
            ORDER BY n.delivery DESC LIMIT 1));

-- name: add_deliveries
-- New pending deliveries.
INSERT INTO deliveries (config, seq, part, kept, made_ms, id, traceparent, dialect, body) VALUES ROWS(9);

-- name: wake_webhooks
-- Make idle webhooks due, by a JSON array of their numbers, with a large delivery or not.
UPDATE push_configs SET due_ms = ?2, large = ?3 WHERE config IN (SELECT value FROM json_each(?1)) AND due_ms IS NULL;

-- name: wake_hosts
-- Make hosts due at a time, unless they are due earlier.
UPDATE push_hosts SET due_ms = v.column2 FROM (VALUES ROWS(2)) v
WHERE push_hosts.host = v.column1 AND (push_hosts.due_ms IS NULL OR push_hosts.due_ms > v.column2);

-- name: wake_hosts_large
-- The same for large deliveries.
UPDATE push_hosts SET large_ms = v.column2 FROM (VALUES ROWS(2)) v
WHERE push_hosts.host = v.column1 AND (push_hosts.large_ms IS NULL OR push_hosts.large_ms > v.column2);

-- name: align_hosts
-- Make hosts, by a JSON array of their numbers, due when the first of their webhooks is.
UPDATE push_hosts SET
    due_ms = (SELECT c.due_ms FROM push_configs c
        WHERE c.host = push_hosts.host AND c.large = 0 AND c.due_ms IS NOT NULL ORDER BY c.due_ms LIMIT 1),
    large_ms = (SELECT c.due_ms FROM push_configs c
        WHERE c.host = push_hosts.host AND c.large = 1 AND c.due_ms IS NOT NULL ORDER BY c.due_ms LIMIT 1)
WHERE host IN (SELECT value FROM json_each(?1));

-- name: due_hosts
-- Due hosts of a lane, the longest due first, except those whose names are in a JSON array; as one JSON array of
-- [number, name, 0]. The lane is a fixed value of the statement, so that the index is walked in its order.
SELECT json_group_array(json_array(host, name, 0)) FROM (
    SELECT host, name FROM push_hosts INDEXED BY push_hosts_due
    WHERE lane = ?1 AND due_ms <= ?2 AND name NOT IN (SELECT value FROM json_each(?3)) AND NOT PAUSED(push_hosts.name)
    ORDER BY due_ms LIMIT ?4);

-- name: any_due_hosts
-- The same for hosts that are due with small deliveries, as [number, name, 0], or with large ones, as [number, name, 1].
-- Another JSON array excludes hosts for the latter.
SELECT json_group_array(json_array(host, name, large)) FROM (
    SELECT * FROM (SELECT host, name, due_ms, 0 AS large FROM push_hosts INDEXED BY push_hosts_due
        WHERE lane = ?1 AND due_ms <= ?2 AND name NOT IN (SELECT value FROM json_each(?3)) AND NOT PAUSED(push_hosts.name)
        ORDER BY due_ms LIMIT ?4)
    UNION ALL
    SELECT * FROM (SELECT host, name, large_ms AS due_ms, 1 AS large FROM push_hosts INDEXED BY push_hosts_large
        WHERE lane = ?1 AND large_ms <= ?2 AND name NOT IN (SELECT value FROM json_each(?5))
            AND NOT PAUSED(push_hosts.name) ORDER BY large_ms LIMIT ?4)
    ORDER BY due_ms LIMIT ?4);

-- name: due_deliveries
-- The oldest delivery of each due webhook, for hosts in a JSON array of [number, 0 or 1 for large ones]: at most ?3 for each
-- host, at most ?4 in all. Large bodies are left out.
SELECT c.config, length(d.body), d.delivery, t.id, s.agent, h.name, c.settings, d.id, c.id, d.seq, d.part, d.kept, d.dialect,
    CASE WHEN length(d.body) <= 16384 THEN d.body END, d.traceparent, d.attempts, d.made_ms
FROM json_each(?1) j CROSS JOIN push_configs c ON c.config IN (
        SELECT k.config FROM push_configs k WHERE k.host = j.value ->> 0 AND k.large = j.value ->> 1 AND k.due_ms <= ?2
        ORDER BY k.due_ms LIMIT ?3)
    CROSS JOIN push_hosts h ON h.host = c.host
    CROSS JOIN deliveries d ON d.delivery = (SELECT o.delivery FROM deliveries o WHERE o.config = c.config AND o.dead = 0
        ORDER BY o.delivery LIMIT 1)
    CROSS JOIN tasks t ON t.task = c.task CROSS JOIN scopes s ON s.scope = t.scope
LIMIT ?4;

-- name: behind
-- The pending deliveries behind others, by a JSON array of [webhook, delivery], at most ?2 for each, in order. Large bodies
-- are left out. The first value is the index in the array.
SELECT j.key, d.delivery, d.id, d.seq, d.part, d.kept, d.dialect, CASE WHEN length(d.body) <= 16384 THEN d.body END,
    d.traceparent, d.attempts, d.made_ms
FROM json_each(?1) j CROSS JOIN deliveries d ON d.delivery IN (SELECT o.delivery FROM deliveries o
    WHERE o.config = j.value ->> 0 AND o.dead = 0 AND o.delivery > j.value ->> 1 ORDER BY o.delivery LIMIT ?2)
ORDER BY j.key, d.delivery;

-- name: owes
-- The settings of the webhook of a delivery, unless its host is paused.
SELECT c.settings FROM deliveries d CROSS JOIN push_configs c ON c.config = d.config CROSS JOIN push_hosts h ON h.host = c.host
WHERE d.delivery = ?1 AND NOT PAUSED(h.name);

-- name: body
-- The body of a delivery.
SELECT body FROM deliveries WHERE delivery = ?1;

-- name: claim_webhooks
-- Claim deliveries: mark for each webhook which one is in flight, and until when.
UPDATE push_configs SET due_ms = v.column2, claimed = v.column3 FROM (VALUES ROWS(3)) v WHERE config = v.column1;

-- name: void_claims
-- Void all claims but those of deliveries, by a JSON array of their numbers. Returns the hosts, and whether the claimed delivery was large.
UPDATE push_configs SET due_ms = ?1, claimed = NULL
WHERE config IN (SELECT config FROM push_configs INDEXED BY push_configs_due WHERE due_ms IS NOT NULL AND claimed IS NOT NULL)
    AND claimed NOT IN (SELECT value FROM json_each(?2))
RETURNING host, large;

-- name: release
-- Void the claims of deliveries, by a JSON array of their numbers. Returns the hosts, and whether each was large.
UPDATE push_configs SET due_ms = ?1, claimed = NULL
WHERE config IN (SELECT d.config FROM json_each(?2) j CROSS JOIN deliveries d ON d.delivery = j.value)
    AND claimed IN (SELECT value FROM json_each(?2))
RETURNING host, large;

-- name: settling
-- The standings of deliveries, by a JSON array of their numbers, as one JSON array of [number, webhook, delivery in flight to
-- the webhook, own size, host, lane, oldest other pending delivery, its size].
SELECT json_group_array(json_array(d.delivery, d.config, c.claimed, length(d.body), c.host, h.lane, n.delivery,
    coalesce(length(n.body), 0)))
FROM json_each(?1) j CROSS JOIN deliveries d ON d.delivery = j.value AND d.dead = 0
    CROSS JOIN push_configs c ON c.config = d.config CROSS JOIN push_hosts h ON h.host = c.host
    LEFT JOIN deliveries n ON n.delivery = (SELECT o.delivery FROM deliveries o
        WHERE o.config = d.config AND o.dead = 0 AND o.delivery <> d.delivery ORDER BY o.delivery LIMIT 1);

-- name: measure
-- Correct `large` of webhooks, by a JSON array of their numbers, after their oldest delivery. Returns their hosts.
UPDATE push_configs SET large = coalesce((SELECT length(o.body) > 16384 FROM deliveries o
    WHERE o.config = push_configs.config AND o.dead = 0 ORDER BY o.delivery LIMIT 1), 0)
WHERE config IN (SELECT value FROM json_each(?1)) RETURNING host;

-- name: delete_deliveries
-- Delete deliveries, by a JSON array of their numbers.
DELETE FROM deliveries WHERE delivery IN (SELECT value FROM json_each(?1));

-- name: fail_deliveries
-- Count a failed attempt of deliveries, and note the reason and whether they are dead now.
UPDATE deliveries SET attempts = attempts + 1, dead = v.column2, reason = v.column3 FROM (VALUES ROWS(3)) v
WHERE delivery = v.column1;

-- name: free_webhooks
-- End the claims of webhooks: set when each is due, and whether its oldest delivery has failed before and is large.
UPDATE push_configs SET due_ms = v.column2, retries = v.column3, large = v.column4, claimed = NULL
FROM (VALUES ROWS(4)) v WHERE config = v.column1;

-- name: change_lanes
-- Move hosts to lanes.
UPDATE push_hosts SET lane = v.column2 FROM (VALUES ROWS(2)) v WHERE push_hosts.host = v.column1;

-- name: next_due
-- When the first host is due that is not paused. Each lane is walked from its front, past paused hosts only.
SELECT min(due_ms) FROM (
    SELECT * FROM (SELECT due_ms FROM push_hosts WHERE lane = 0 AND due_ms IS NOT NULL AND NOT PAUSED(push_hosts.name)
        ORDER BY due_ms LIMIT 1)
    UNION ALL SELECT * FROM (SELECT due_ms FROM push_hosts WHERE lane = 1 AND due_ms IS NOT NULL
        AND NOT PAUSED(push_hosts.name) ORDER BY due_ms LIMIT 1)
    UNION ALL SELECT * FROM (SELECT due_ms FROM push_hosts WHERE lane = 2 AND due_ms IS NOT NULL
        AND NOT PAUSED(push_hosts.name) ORDER BY due_ms LIMIT 1)
    UNION ALL SELECT min(large_ms) FROM push_hosts WHERE large_ms IS NOT NULL AND NOT PAUSED(push_hosts.name));

-- name: some_pending
-- Pending deliveries, by a JSON array of their numbers, with their webhooks, and whether each is in flight at a time.
SELECT d.delivery, d.config, d.delivery IS c.claimed AND c.due_ms > ?2
FROM json_each(?1) j CROSS JOIN deliveries d ON d.delivery = j.value AND d.dead = 0
    CROSS JOIN push_configs c ON c.config = d.config;

-- name: hasten
-- Make webhooks due that have nothing in flight, by a JSON array of their numbers. Returns their hosts, and whether the
-- oldest delivery is large.
UPDATE push_configs SET due_ms = min(due_ms, ?2)
WHERE config IN (SELECT value FROM json_each(?1)) AND claimed IS NULL AND due_ms IS NOT NULL RETURNING host, large;

-- name: rearm
-- Correct webhooks that have lost pending deliveries, by a JSON array of their numbers. If the oldest one has not failed, it
-- need not wait. Returns their hosts.
UPDATE push_configs SET
    claimed = CASE WHEN EXISTS (SELECT 1 FROM deliveries o WHERE o.delivery = claimed) THEN claimed END,
    due_ms = CASE WHEN NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.config = push_configs.config AND o.dead = 0) THEN NULL
        WHEN EXISTS (SELECT 1 FROM deliveries o WHERE o.delivery = claimed) THEN due_ms
        WHEN (SELECT o.attempts FROM deliveries o WHERE o.config = push_configs.config AND o.dead = 0
            ORDER BY o.delivery LIMIT 1) = 0 THEN min(due_ms, ?2)
        ELSE due_ms END,
    retries = coalesce((SELECT o.attempts > 0 FROM deliveries o WHERE o.config = push_configs.config AND o.dead = 0
        ORDER BY o.delivery LIMIT 1), 0) AND retries,
    large = coalesce((SELECT length(o.body) > 16384 FROM deliveries o WHERE o.config = push_configs.config AND o.dead = 0
        ORDER BY o.delivery LIMIT 1), 0)
WHERE config IN (SELECT value FROM json_each(?1)) RETURNING host;

-- name: some_dead
-- Dead deliveries, by a JSON array of their numbers, with their webhooks and hosts.
SELECT d.delivery, d.config, c.host FROM json_each(?1) j CROSS JOIN deliveries d ON d.delivery = j.value AND d.dead = 1
    CROSS JOIN push_configs c ON c.config = d.config;

-- name: revive
-- Make dead deliveries pending again, by a JSON array of their numbers.
UPDATE deliveries SET dead = 0, attempts = 0, reason = '' WHERE delivery IN (SELECT value FROM json_each(?1));

-- name: wake_revived
-- Make webhooks with revived deliveries due, by a JSON array of their numbers, unless a delivery is in flight. Returns
-- their hosts, and whether the oldest pending delivery is large.
UPDATE push_configs SET retries = 0, due_ms = CASE WHEN claimed IS NULL THEN ?2 ELSE due_ms END,
    large = (SELECT length(o.body) > 16384 FROM deliveries o WHERE o.config = push_configs.config AND o.dead = 0
        ORDER BY o.delivery LIMIT 1)
WHERE config IN (SELECT value FROM json_each(?1)) RETURNING host, large;

-- name: delete_task_owed
-- Delete the deliveries of the webhooks of a task.
DELETE FROM deliveries WHERE config IN (SELECT config FROM push_configs WHERE task = ?1);

-- name: delete_webhooks
-- Delete the webhooks of a task.
DELETE FROM push_configs WHERE task = ?1 RETURNING host;

-- name: open_tasks
-- The scopes of a range of owners with the number of their open tasks, as one JSON array of [scope, tasks].
SELECT json_group_array(json_array(scope, n0 + n1 + n2 + n3)) FROM scopes WHERE owner BETWEEN ?1 AND ?2;

-- name: day_tasks
-- How many tasks an owner made in a day.
SELECT tasks FROM quota_days WHERE day = ?1 AND owner = ?2;

-- name: count_days
-- Add to the tasks that owners made in a day.
INSERT INTO quota_days (day, owner, tasks) VALUES ROWS(3)
ON CONFLICT (day, owner) DO UPDATE SET tasks = tasks + excluded.tasks;

-- name: old_days
-- Whether there are days before one.
SELECT 1 FROM quota_days WHERE day < ?1 LIMIT 1;

-- name: delete_days
-- Delete at most ?2 of the days before ?1.
DELETE FROM quota_days WHERE (day, owner) IN (SELECT day, owner FROM quota_days WHERE day < ?1 ORDER BY day LIMIT ?2);
