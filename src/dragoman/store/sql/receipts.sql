-- The statements that read and sweep the receipts of deliveries that arrived. Each driver writes them where it settles deliveries.

-- name: receipt_columns
-- What is told of a receipt.
r.delivery, r.id, t.id, s.agent, r.config_id, r.url, r.seq, r.part, r.dialect, r.attempts, r.made_ms, r.arrived_ms, r.status,
    r.took_ms, r.bytes, r.reason, r.digest

-- name: receipts
-- Receipts with numbers below $1, the highest first.
SELECT PIECE(receipt_columns)
FROM dragoman.receipts r JOIN dragoman.tasks t ON t.task = r.task JOIN dragoman.scopes s ON s.scope = t.scope
WHERE r.delivery < $1 ORDER BY r.delivery DESC LIMIT $2;

-- name: receipts_of_task
-- The same for the task $3. No other receipt is looked at.
SELECT PIECE(receipt_columns)
FROM dragoman.receipts r JOIN dragoman.tasks t ON t.task = r.task JOIN dragoman.scopes s ON s.scope = t.scope
WHERE r.task = (SELECT o.task FROM dragoman.tasks o WHERE o.id = $3) AND r.delivery < $1 ORDER BY r.delivery DESC LIMIT $2;

-- name: find_receipt
-- The number of the newest receipt with an id.
SELECT max(delivery) FROM dragoman.receipts WHERE id = $1;

-- name: old_receipts
-- Whether a delivery arrived before $1, of whose receipts a sweep deletes $2.
SELECT EXISTS (SELECT 1 FROM dragoman.receipts WHERE arrived_ms < $1 LIMIT $2);

-- name: sweep_receipts
-- Delete at most $2 receipts of deliveries that arrived before $1, the oldest first.
WITH old AS MATERIALIZED (
    SELECT delivery FROM dragoman.receipts WHERE arrived_ms < $1 ORDER BY arrived_ms LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM dragoman.receipts WHERE delivery = ANY (ARRAY(SELECT delivery FROM old)) RETURNING delivery;
