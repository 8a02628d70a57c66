-- The statements for copying a store, beside those that are made of the names of tables and columns. Each driver has more, for
-- the counters and the numbers that only it has.

-- name: count_tasks
-- How many tasks there are.
SELECT count(*) FROM dragoman.tasks;

-- name: last_task
-- The highest number of a task.
SELECT coalesce(max(task), 0) FROM dragoman.tasks;

-- name: task_sizes
-- The next tasks, each with about how many bytes belong to it.
SELECT t.task, (t.log_bytes + octet_length(t.head)
    + coalesce((SELECT sum(octet_length(p.events)) FROM dragoman.pages p WHERE p.task = t.task), 0)
    + coalesce((SELECT octet_length(s.record) FROM dragoman.snapshots s WHERE s.task = t.task), 0)
    + CASE WHEN t.files THEN coalesce((SELECT sum(octet_length(f.bytes)) FROM dragoman.files f WHERE f.task = t.task), 0)
      ELSE 0 END)::bigint
FROM dragoman.tasks t WHERE t.task > $1 ORDER BY t.task LIMIT $2;

-- name: origin
-- The source of an unfinished copy.
SELECT value FROM dragoman.shared WHERE key = $1 AND counter = '';

-- name: note_origin
-- Note the source of a copy, without an end.
INSERT INTO dragoman.shared (key, counter, value, version, amount, expires_ms) VALUES ($1, '', $2, 1, 0, 1::bigint << 62);

-- name: forget_origin
-- The copy is finished.
DELETE FROM dragoman.shared;
