-- The statements about webhooks and deliveries. Positional values are in the order of their numbers.
-- Rows of webhooks are locked in the order of their numbers, after that of their task and before those of hosts, so that
-- those who wait for each other never form a circle.

-- name: find_hosts
-- The numbers of hosts, which nobody deletes until the end of the transaction.
SELECT name, host FROM dragoman.push_hosts WHERE name = ANY ($1::text[]) FOR KEY SHARE;

-- name: add_hosts
-- Give hosts their numbers, unless others do.
INSERT INTO dragoman.push_hosts (name) SELECT DISTINCT name FROM unnest($1::text[]) AS v (name) ORDER BY name
ON CONFLICT DO NOTHING;

-- name: lock_hosts
-- Those of some hosts that nobody registers a webhook for at present.
SELECT host FROM dragoman.push_hosts WHERE host = ANY ($1::int[]) ORDER BY host FOR UPDATE SKIP LOCKED;

-- name: drop_hosts
-- Delete hosts that have no webhooks left.
DELETE FROM dragoman.push_hosts h WHERE host = ANY ($1::int[])
    AND NOT EXISTS (SELECT 1 FROM dragoman.push_configs c WHERE c.host = h.host);

-- name: lock_task
-- The number of a task, to which nobody else writes until the end of the transaction.
SELECT task FROM dragoman.tasks WHERE id = $1 FOR NO KEY UPDATE;

-- name: keep_webhooks
-- Store webhooks of tasks that this transaction has locked, in place of those with the same ids. A task that was made with a
-- webhook, and has none yet, is marked already.
WITH v AS (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::int[], $4::bytea[], $5::text[]) WITH ORDINALITY
        AS v (task, id, host, settings, key, place)
), marked AS (
    UPDATE dragoman.tasks t SET pushed = true, webhooks_version = t.webhooks_version + 1 FROM v
    WHERE t.task = v.task
        AND NOT (t.pushed AND NOT EXISTS (SELECT 1 FROM dragoman.push_configs c WHERE c.task = t.task))
)
INSERT INTO dragoman.push_configs (task, id, host, settings, key)
SELECT task, id, host, settings, key FROM v ORDER BY place
ON CONFLICT (task, id) DO UPDATE SET host = excluded.host, settings = excluded.settings, key = excluded.key, stopped = false;

-- name: lock_webhooks
-- The active webhooks of tasks. Nobody else changes what is owed to them until the end of the transaction.
SELECT task, id, config, due_ms IS NULL, retries FROM dragoman.push_configs
WHERE task = ANY ($1::bigint[]) AND NOT stopped ORDER BY config FOR NO KEY UPDATE;

-- name: merge
-- Delete the deliveries behind the oldest one of each webhook, except kept ones and one in flight: newer ones follow.
DELETE FROM dragoman.deliveries d USING dragoman.push_configs c
WHERE c.config = ANY ($1::bigint[]) AND d.config = c.config AND NOT d.dead AND NOT d.kept
    AND d.delivery IS DISTINCT FROM c.claimed
    AND d.delivery > (SELECT min(o.delivery) FROM dragoman.deliveries o WHERE o.config = c.config AND NOT o.dead);

-- name: merge_waiting
-- The same for webhooks whose oldest delivery has just failed: of those that are not kept, the newest stays.
DELETE FROM dragoman.deliveries d
WHERE d.config = ANY ($1::bigint[]) AND NOT d.dead AND NOT d.kept
    AND d.delivery > (SELECT min(o.delivery) FROM dragoman.deliveries o WHERE o.config = d.config AND NOT o.dead)
    AND d.delivery < (SELECT max(n.delivery) FROM dragoman.deliveries n WHERE n.config = d.config AND NOT n.dead
        AND NOT n.kept);

-- name: owe
-- New pending deliveries, in order; and make those webhooks due that were idle, with a large delivery or not.
WITH added AS (
    INSERT INTO dragoman.deliveries (config, seq, part, kept, made_ms, id, traceparent, dialect, body)
    SELECT config, seq, part, kept, $9::bigint, id, traceparent, dialect, body
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::boolean[], $5::text[], $6::text[], $7::text[], $8::bytea[])
        WITH ORDINALITY AS v (config, seq, part, kept, id, traceparent, dialect, body, place)
    ORDER BY place
)
UPDATE dragoman.push_configs c SET due_ms = $9::bigint, large = v.large
FROM unnest($10::bigint[], $11::boolean[]) AS v (config, large) WHERE c.config = v.config;

-- name: already_owed
-- Those of some deliveries that are owed to the webhooks of a task.
SELECT d.id FROM dragoman.deliveries d
WHERE d.config IN (SELECT c.config FROM dragoman.push_configs c WHERE c.task = $1) AND d.id = ANY ($2::text[]);

-- name: delete_receipts
-- Delete the receipts of tasks.
DELETE FROM dragoman.receipts WHERE task = ANY ($1::bigint[]);

-- name: webhook_stopped
-- Whether a webhook of a task has stopped. Nothing if there is no such webhook.
SELECT stopped FROM dragoman.push_configs WHERE task = $1 AND id = $2;

-- name: settings
-- The webhooks of a task, oldest first.
SELECT c.settings FROM dragoman.push_configs c JOIN dragoman.tasks t ON t.task = c.task WHERE t.id = $1 ORDER BY c.config;

-- name: lock_webhook
-- A webhook of a task, which nobody else changes until the end of the transaction.
SELECT config, host FROM dragoman.push_configs WHERE task = $1 AND id = $2 FOR UPDATE;

-- name: lock_webhooks_of
-- All webhooks of tasks, in the same way.
SELECT config, host FROM dragoman.push_configs WHERE task = ANY ($1::bigint[]) ORDER BY config FOR UPDATE;

-- name: delete_webhooks
-- Delete webhooks, and what is owed to them.
WITH gone AS (
    DELETE FROM dragoman.deliveries WHERE config = ANY ($1::bigint[])
)
DELETE FROM dragoman.push_configs WHERE config = ANY ($1::bigint[]);

-- name: unmark_pushed
-- Mark that a task has lost a webhook, and whether it still has any.
UPDATE dragoman.tasks SET pushed = EXISTS (SELECT 1 FROM dragoman.push_configs WHERE task = $1),
    webhooks_version = webhooks_version + 1
WHERE task = $1;

-- name: due_hosts
-- Hosts of a lane that are due, the longest due first, each with whether that is with large deliveries. Only the hosts to which
-- something is owed are looked at, each once for small and once for large ones. $3 and $5 are the names of hosts to leave out
-- for small and for large ones, $6 says whether to take large ones at all.
WITH RECURSIVE pending AS (
    (SELECT host, large FROM dragoman.push_configs WHERE due_ms IS NOT NULL ORDER BY host, large LIMIT 1)
    UNION ALL
    SELECT n.host, n.large FROM pending p CROSS JOIN LATERAL (
        SELECT c.host, c.large FROM dragoman.push_configs c
        WHERE c.due_ms IS NOT NULL AND (c.host, c.large) > (p.host, p.large) ORDER BY c.host, c.large LIMIT 1) n
)
SELECT h.host, h.name, p.large FROM pending p
CROSS JOIN LATERAL (SELECT * FROM dragoman.push_hosts h WHERE h.host = p.host AND h.lane = $1 LIMIT 1) h
CROSS JOIN LATERAL (SELECT c.due_ms FROM dragoman.push_configs c
    WHERE c.host = p.host AND c.large = p.large AND c.due_ms IS NOT NULL ORDER BY c.due_ms LIMIT 1) f
WHERE f.due_ms <= $2 AND p.host <> ALL (ARRAY(SELECT host FROM dragoman.paused_push_hosts)) AND CASE WHEN p.large THEN $6 AND h.name <> ALL ($5::text[]) ELSE h.name <> ALL ($3::text[]) END
ORDER BY f.due_ms, h.host LIMIT $4;

-- name: lock_due
-- Due webhooks of hosts that nobody else claims or changes at present: at most $4 for each host, at most $5 in all.
SELECT c.config FROM unnest($1::int[], $2::boolean[]) AS v (host, large) CROSS JOIN LATERAL (
    SELECT c.config FROM dragoman.push_configs c WHERE c.host = v.host AND c.large = v.large AND c.due_ms <= $3
    ORDER BY c.due_ms LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED) c
LIMIT $5;

-- name: oldest
-- The oldest pending delivery of each of some webhooks, in the order of the array. Large bodies are left out.
SELECT c.config, octet_length(d.body), d.delivery, t.id, s.agent, h.name, c.settings, d.id, c.id, d.seq, d.part, d.kept,
    d.dialect, CASE WHEN octet_length(d.body) <= 16384 THEN d.body END, d.traceparent, d.attempts, d.made_ms
FROM unnest($1::bigint[]) WITH ORDINALITY AS v (config, place)
CROSS JOIN LATERAL (SELECT * FROM dragoman.push_configs c WHERE c.config = v.config LIMIT 1) c
CROSS JOIN LATERAL (SELECT * FROM dragoman.deliveries d WHERE d.config = v.config AND NOT d.dead
    ORDER BY d.delivery LIMIT 1) d
CROSS JOIN LATERAL (SELECT * FROM dragoman.push_hosts h WHERE h.host = c.host LIMIT 1) h
CROSS JOIN LATERAL (SELECT t.id, t.scope FROM dragoman.tasks t WHERE t.task = c.task LIMIT 1) t
CROSS JOIN LATERAL (SELECT s.agent FROM dragoman.scopes s WHERE s.scope = t.scope LIMIT 1) s
ORDER BY v.place;

-- name: body
-- The body of a delivery.
SELECT body FROM dragoman.deliveries WHERE delivery = $1;

-- name: claim
-- Claim deliveries: mark for each webhook which one is in flight, until when, and who sends it. A
-- webhook that was taken for due and has nothing pending comes with null.
UPDATE dragoman.push_configs c SET due_ms = CASE WHEN v.delivery IS NULL THEN NULL ELSE $3::bigint END, claimed = v.delivery,
    claimant = $4
FROM unnest($1::bigint[], $2::bigint[]) AS v (config, delivery) WHERE c.config = v.config;

-- name: behind
-- The pending deliveries behind others, at most $3 for each, in order. Large bodies are left out. The first value is the index
-- in the arrays.
SELECT (v.place - 1)::int, d.delivery, d.id, d.seq, d.part, d.kept, d.dialect,
    CASE WHEN octet_length(d.body) <= 16384 THEN d.body END, d.traceparent, d.attempts, d.made_ms
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS v (config, delivery, place)
CROSS JOIN LATERAL (SELECT * FROM dragoman.deliveries d
    WHERE d.config = v.config AND NOT d.dead AND d.delivery > v.delivery ORDER BY d.delivery LIMIT $3) d
ORDER BY v.place, d.delivery;

-- name: owes
-- The settings of the webhook of a delivery, unless its host is paused.
SELECT c.settings FROM dragoman.deliveries d JOIN dragoman.push_configs c ON c.config = d.config
WHERE d.delivery = $1 AND c.host NOT IN (SELECT host FROM dragoman.paused_push_hosts);

-- name: void_claims
-- Make due what replicas had in flight that are dead, and what $2 has in flight besides the deliveries $3.
UPDATE dragoman.push_configs c SET due_ms = $1, claimed = NULL, claimant = NULL
WHERE c.claimed IS NOT NULL AND ((c.claimant = $2 AND c.claimed <> ALL ($3::bigint[])) OR NOT EXISTS (
    SELECT 1 FROM dragoman.replicas r WHERE r.id = c.claimant AND NOT r.dead AND r.beats_until > clock_timestamp()))
RETURNING c.config;

-- name: release
-- Make deliveries due that are in flight.
WITH in_flight AS (
    SELECT c.config FROM dragoman.push_configs c
    WHERE c.config IN (SELECT d.config FROM dragoman.deliveries d WHERE d.delivery = ANY ($1::bigint[]))
        AND c.claimed = ANY ($1::bigint[])
    ORDER BY c.config FOR NO KEY UPDATE
)
UPDATE dragoman.push_configs c SET due_ms = $2, claimed = NULL, claimant = NULL
FROM in_flight f WHERE c.config = f.config RETURNING c.config;

-- name: lock_settling
-- The webhooks of deliveries, whose deliveries nobody else changes until the end of the transaction.
SELECT config FROM dragoman.push_configs
WHERE config IN (SELECT d.config FROM dragoman.deliveries d WHERE d.delivery = ANY ($1::bigint[]))
ORDER BY config FOR NO KEY UPDATE;

-- name: settling
-- The standings of deliveries: number, webhook, delivery in flight to the webhook, own size, host, lane, oldest other pending
-- delivery, its size.
SELECT d.delivery, d.config, c.claimed, octet_length(d.body), c.host, h.lane::int, n.delivery,
    coalesce(octet_length(n.body), 0)
FROM unnest($1::bigint[]) AS v (delivery)
CROSS JOIN LATERAL (SELECT * FROM dragoman.deliveries d WHERE d.delivery = v.delivery AND NOT d.dead LIMIT 1) d
CROSS JOIN LATERAL (SELECT * FROM dragoman.push_configs c WHERE c.config = d.config LIMIT 1) c
CROSS JOIN LATERAL (SELECT * FROM dragoman.push_hosts h WHERE h.host = c.host LIMIT 1) h
LEFT JOIN LATERAL (SELECT o.delivery, o.body FROM dragoman.deliveries o
    WHERE o.config = d.config AND NOT o.dead AND o.delivery <> d.delivery ORDER BY o.delivery LIMIT 1) n ON true;

-- name: stop_webhooks
-- Stop webhooks, which get no more deliveries, and delete what is owed to them.
WITH gone AS (
    DELETE FROM dragoman.deliveries WHERE config = ANY ($1::bigint[])
)
UPDATE dragoman.push_configs SET stopped = true, due_ms = NULL, claimed = NULL, claimant = NULL, retries = false
WHERE config = ANY ($1::bigint[]);

-- name: delete_deliveries
-- Delete deliveries.
DELETE FROM dragoman.deliveries WHERE delivery = ANY ($1::bigint[]);

-- name: fail_deliveries
-- Count a failed attempt of deliveries, and note the reason and whether they are dead now.
UPDATE dragoman.deliveries d SET attempts = d.attempts + 1, dead = v.dead, reason = v.reason
FROM unnest($1::bigint[], $2::boolean[], $3::text[]) AS v (delivery, dead, reason) WHERE d.delivery = v.delivery;

-- name: free_webhooks
-- End the claims of webhooks: set when each is due, and whether its oldest delivery has failed before and is large.
UPDATE dragoman.push_configs c SET due_ms = v.due_ms, retries = v.retries, large = v.large, claimed = NULL, claimant = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::boolean[]) AS v (config, due_ms, retries, large)
WHERE c.config = v.config;

-- name: measure
-- Correct `large` of webhooks after their oldest delivery.
UPDATE dragoman.push_configs c SET large = coalesce((SELECT octet_length(o.body) > 16384 FROM dragoman.deliveries o
    WHERE o.config = c.config AND NOT o.dead ORDER BY o.delivery LIMIT 1), false)
WHERE c.config = ANY ($1::bigint[]);

-- name: change_lanes
-- Move hosts to lanes. The arrays are in the order of the hosts.
UPDATE dragoman.push_hosts h SET lane = v.lane FROM unnest($1::int[], $2::int[]) AS v (host, lane)
WHERE h.host = v.host AND h.lane <> v.lane;

-- name: next_due
-- When the first webhook is due whose host is not paused.
SELECT min(due_ms) FROM dragoman.push_configs
WHERE due_ms IS NOT NULL AND host <> ALL (ARRAY(SELECT host FROM dragoman.paused_push_hosts));

-- name: hasten
-- Make webhooks of pending deliveries due that have nothing in flight. Returns the deliveries.
WITH found AS (
    SELECT delivery, config FROM dragoman.deliveries WHERE delivery = ANY ($1::bigint[]) AND NOT dead
), due AS (
    UPDATE dragoman.push_configs c SET due_ms = least(c.due_ms, $2::bigint)
    WHERE c.config IN (SELECT config FROM found) AND c.claimed IS NULL AND c.due_ms IS NOT NULL
)
SELECT delivery FROM found;

-- name: drop_pending
-- Delete pending deliveries that are not in flight. Returns the webhook of each.
DELETE FROM dragoman.deliveries d USING dragoman.push_configs c
WHERE d.delivery = ANY ($1::bigint[]) AND NOT d.dead AND c.config = d.config
    AND (c.claimed IS DISTINCT FROM d.delivery OR c.due_ms <= $2::bigint)
RETURNING d.config;

-- name: rearm
-- Correct webhooks that have lost pending deliveries. If the oldest one has not failed, it need not wait.
UPDATE dragoman.push_configs c SET claimed = v.claimed, claimant = CASE WHEN v.claimed IS NULL THEN NULL ELSE c.claimant END,
    due_ms = CASE WHEN v.attempts IS NULL THEN NULL WHEN v.claimed IS NULL AND v.attempts = 0 THEN least(c.due_ms, $2::bigint)
        ELSE c.due_ms END,
    retries = c.retries AND coalesce(v.attempts, 0) > 0, large = coalesce(v.large, false)
FROM (
    SELECT k.config, (SELECT o.delivery FROM dragoman.deliveries o WHERE o.delivery = k.claimed) AS claimed,
        f.attempts, f.large
    FROM dragoman.push_configs k LEFT JOIN LATERAL (
        SELECT o.attempts, octet_length(o.body) > 16384 AS large FROM dragoman.deliveries o
        WHERE o.config = k.config AND NOT o.dead ORDER BY o.delivery LIMIT 1) f ON true
    WHERE k.config = ANY ($1::bigint[])
) v
WHERE c.config = v.config;

-- name: revive
-- Make dead deliveries pending again. Returns the webhooks of those there were.
UPDATE dragoman.deliveries SET dead = false, attempts = 0, reason = '' WHERE delivery = ANY ($1::bigint[]) AND dead
RETURNING config;

-- name: wake_revived
-- Make webhooks with revived deliveries due, unless a delivery is in flight.
UPDATE dragoman.push_configs c SET retries = false, due_ms = CASE WHEN c.claimed IS NULL THEN $2 ELSE c.due_ms END,
    large = (SELECT octet_length(o.body) > 16384 FROM dragoman.deliveries o WHERE o.config = c.config AND NOT o.dead
        ORDER BY o.delivery LIMIT 1)
WHERE c.config = ANY ($1::bigint[]);

-- name: drop_dead
-- Delete dead deliveries.
DELETE FROM dragoman.deliveries WHERE delivery = ANY ($1::bigint[]) AND dead RETURNING delivery;
