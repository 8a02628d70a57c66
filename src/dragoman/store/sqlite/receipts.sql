-- The statements about deliveries that arrived. Positional values are in the order of their numbers.
-- ROWS(n) expands to rows of n values: see `schema.for_rows`.

-- name: keep_receipts
-- Keep receipts of pending deliveries: number, time, status, duration, URL and digest of each.
INSERT OR IGNORE INTO receipts
    (delivery, task, seq, part, attempts, status, took_ms, bytes, made_ms, arrived_ms, id, config_id, url, dialect, reason,
    digest)
SELECT d.delivery, c.task, d.seq, d.part, d.attempts, v.column3, v.column4, length(d.body), d.made_ms, v.column2, d.id, c.id, v.column5,
    d.dialect, d.reason, v.column6
FROM (VALUES ROWS(6)) v CROSS JOIN deliveries d ON d.delivery = v.column1 AND d.dead = 0
    CROSS JOIN push_configs c ON c.config = d.config;

-- name: trim_receipts
-- Delete all but the newest ?2 receipts of the tasks of some, by a JSON array of their numbers.
DELETE FROM receipts WHERE delivery IN (
    SELECT o.delivery FROM (SELECT DISTINCT a.task FROM json_each(?1) j CROSS JOIN receipts a ON a.delivery = j.value) t
        CROSS JOIN receipts o ON o.task = t.task AND o.delivery <= (SELECT n.delivery FROM receipts n WHERE n.task = t.task
            ORDER BY n.delivery DESC LIMIT 1 OFFSET ?2));

-- name: delete_receipts
-- Delete the receipts of tasks, by a JSON array of their numbers.
DELETE FROM receipts WHERE task IN (SELECT value FROM json_each(?1));

-- name: webhook_stopped
-- Whether a webhook of a task has stopped, with the number of the task. Nothing if there is no such webhook.
SELECT c.task, c.stopped FROM push_configs c WHERE c.task = (SELECT task FROM tasks WHERE id = ?1) AND c.id = ?2;

-- name: owed_already
-- Whether a delivery with an id is owed to a webhook of a task.
SELECT EXISTS (SELECT 1 FROM deliveries d WHERE d.id = ?3 AND d.config = (SELECT config FROM push_configs
    WHERE task = ?1 AND id = ?2));
