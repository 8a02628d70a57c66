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
