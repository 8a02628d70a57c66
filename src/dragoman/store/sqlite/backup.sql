-- The statements for backups: what a store holds, and how a restored one differs from its backup.

-- name: tables
-- The tables of the file, which an earlier version has fewer of.
SELECT name FROM sqlite_schema WHERE type = 'table';

-- name: totals
-- How many tasks, events and files there are.
SELECT (SELECT count(*) FROM tasks), (SELECT coalesce(sum(seq), 0) FROM tasks), (SELECT count(*) FROM files);

-- name: count_keys
-- How many keys of callers there are.
SELECT count(*) FROM keys;

-- name: owed
-- How many webhook calls are pending.
SELECT count(*) FROM deliveries WHERE dead = 0;

-- name: signing_key
-- The id of the key that the store signs with.
SELECT kid FROM signing_keys ORDER BY signing_key LIMIT 1;

-- name: stored_files
-- Pages (1) and snapshots (0) that may name bytes in the blob store, with the heads of their tasks.
SELECT t.head, p.events, 1 FROM tasks t JOIN pages p ON p.task = t.task WHERE instr(p.events, CAST(t.id || '/' AS BLOB))
UNION ALL
SELECT t.head, s.record, 0 FROM tasks t JOIN snapshots s ON s.task = t.task WHERE instr(s.record, CAST(t.id || '/' AS BLOB));

-- name: present
-- The tasks of a JSON array of ids that are there.
SELECT id FROM tasks WHERE id IN (SELECT value FROM json_each(?1));

-- name: void_leases
-- Nobody who held a lease when the backup was made may write: the epoch makes the old right worthless. Tasks that sleep sleep on.
UPDATE tasks SET epoch = epoch + (holder IS NOT NULL), keeper = NULL,
    offered_until_ms = CASE WHEN holder IN ('asleep', 'aside') THEN offered_until_ms END
WHERE holder IS NOT NULL OR keeper IS NOT NULL OR offered_until_ms IS NOT NULL;

-- name: forget_shared
-- Leases of workers, sessions and rates were those of the old server.
DELETE FROM shared;

-- name: drop_owed
-- Delete the pending webhook calls.
DELETE FROM deliveries WHERE dead = 0;

-- name: settle_webhooks
-- No webhook has a pending delivery.
UPDATE push_configs SET due_ms = NULL, claimed = NULL, retries = 0, large = 0;

-- name: settle_hosts
-- No host is due.
UPDATE push_hosts SET due_ms = NULL, large_ms = NULL;

-- name: void_all_claims
-- No delivery is in flight.
UPDATE push_configs SET claimed = NULL WHERE claimed IS NOT NULL;
