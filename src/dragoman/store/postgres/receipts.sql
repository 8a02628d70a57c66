-- The statements about deliveries that arrived. Positional values are in the order of their numbers.

-- name: keep_receipts
-- Keep receipts of pending deliveries, whose webhooks the transaction has locked: number, time, status, duration, URL and
-- digest of each. Older receipts of their tasks are deleted, so that $7 remain, except for those that another transaction is
-- at, which deletes them. Only those are locked: OFFSET beside FOR UPDATE locks what it leaves out.
WITH arrived AS MATERIALIZED (
    SELECT d.delivery, c.task, d.seq, d.part, d.made_ms, v.arrived_ms, v.took_ms, octet_length(d.body) AS bytes,
        d.attempts, v.status, d.id, c.id AS config_id, v.url, d.dialect, d.reason, v.digest
    FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[], $5::text[], $6::bytea[])
        AS v (delivery, arrived_ms, status, took_ms, url, digest)
    CROSS JOIN LATERAL (SELECT * FROM dragoman.deliveries d WHERE d.delivery = v.delivery AND NOT d.dead LIMIT 1) d
    CROSS JOIN LATERAL (SELECT * FROM dragoman.push_configs c WHERE c.config = d.config LIMIT 1) c
), trimmed AS (
    DELETE FROM dragoman.receipts WHERE delivery IN (
        SELECT o.delivery FROM (SELECT task, count(*) AS new FROM arrived GROUP BY task) t
        CROSS JOIN LATERAL (SELECT o.delivery FROM dragoman.receipts o WHERE o.task = t.task AND o.delivery <=
            (SELECT n.delivery FROM dragoman.receipts n WHERE n.task = t.task
                ORDER BY n.delivery DESC LIMIT 1 OFFSET greatest($7 - t.new, 0)) FOR UPDATE SKIP LOCKED) o)
)
INSERT INTO dragoman.receipts (delivery, task, seq, part, made_ms, arrived_ms, took_ms, bytes, attempts, status, id, config_id,
    url, dialect, reason, digest)
SELECT * FROM arrived ON CONFLICT DO NOTHING;

-- name: receipts
-- Receipts with numbers below $1, the highest first.
SELECT r.delivery, r.id, t.id, s.agent, r.config_id, r.url, r.seq, r.part, r.dialect, r.attempts, r.made_ms, r.arrived_ms,
    r.status, r.took_ms, r.bytes, r.reason, r.digest
FROM dragoman.receipts r JOIN dragoman.tasks t ON t.task = r.task JOIN dragoman.scopes s ON s.scope = t.scope
WHERE r.delivery < $1 ORDER BY r.delivery DESC LIMIT $2;

-- name: receipts_of_task
-- The same for a task.
SELECT r.delivery, r.id, t.id, s.agent, r.config_id, r.url, r.seq, r.part, r.dialect, r.attempts, r.made_ms, r.arrived_ms,
    r.status, r.took_ms, r.bytes, r.reason, r.digest
FROM dragoman.tasks t CROSS JOIN LATERAL (SELECT * FROM dragoman.receipts r WHERE r.task = t.task AND r.delivery < $1
    ORDER BY r.delivery DESC LIMIT $2) r JOIN dragoman.scopes s ON s.scope = t.scope
WHERE t.id = $3 ORDER BY r.delivery DESC;

-- name: find_receipt
-- The number of the newest receipt with an id.
SELECT max(delivery) FROM dragoman.receipts WHERE id = $1;

-- name: sweep_receipts
-- Delete at most $2 receipts of deliveries that arrived before a time. Returns how many.
WITH old AS MATERIALIZED (
    SELECT delivery FROM dragoman.receipts WHERE arrived_ms < $1 ORDER BY arrived_ms LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dragoman.receipts r USING old WHERE r.delivery = ANY (ARRAY[old.delivery]) RETURNING 1
)
SELECT count(*) FROM gone;
