-- The statements for copying a store, beside those that are made of the names of tables and columns.

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

-- name: last_delivery
-- The last number that a delivery got.
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('dragoman.deliveries', 'delivery')), 0);

-- name: origin
-- The source of an unfinished copy.
SELECT value FROM dragoman.shared WHERE key = $1 AND counter = '';

-- name: note_origin
-- Note the source of a copy.
INSERT INTO dragoman.shared (key, counter, value, version, amount, expires_ms) VALUES ($1, '', $2, 1, 0, 1::bigint << 62);

-- name: forget_origin
-- The copy is finished.
DELETE FROM dragoman.shared;

-- name: count_states
-- Count the tasks of scopes.
INSERT INTO dragoman.counts (scope, context, replica, lane, n0, n1, n2, n3, n4, n5, n6, n7)
SELECT scope, 0, '', 0, count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1),
    count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4),
    count(*) FILTER (WHERE state = 5), count(*) FILTER (WHERE state = 6), count(*) FILTER (WHERE state = 7)
FROM dragoman.tasks GROUP BY scope;

-- name: name_agents
-- Name the agents of open tasks, for those who look for work.
UPDATE dragoman.tasks t SET agent = s.agent FROM dragoman.scopes s WHERE s.scope = t.scope AND t.state < 4;

-- name: go_on
-- Go on from the last numbers.
SELECT setval(pg_get_serial_sequence('dragoman.tasks', 'task'), (SELECT coalesce(max(task), 0) + 1 FROM dragoman.tasks), false),
    setval(pg_get_serial_sequence('dragoman.scopes', 'scope'), (SELECT coalesce(max(scope), 0) + 1 FROM dragoman.scopes), false),
    setval(pg_get_serial_sequence('dragoman.push_hosts', 'host'),
        (SELECT coalesce(max(host), 0) + 1 FROM dragoman.push_hosts), false),
    setval(pg_get_serial_sequence('dragoman.push_configs', 'config'),
        (SELECT coalesce(max(config), 0) + 1 FROM dragoman.push_configs), false),
    setval(pg_get_serial_sequence('dragoman.keys', 'key'), (SELECT coalesce(max(key), 0) + 1 FROM dragoman.keys), false),
    setval(pg_get_serial_sequence('dragoman.audit', 'entry'), (SELECT coalesce(max(entry), 0) + 1 FROM dragoman.audit), false);

-- name: go_on_with_deliveries
-- Go on from the source's last number of a delivery.
SELECT setval(pg_get_serial_sequence('dragoman.deliveries', 'delivery'),
    greatest($1::bigint, (SELECT coalesce(max(delivery), 0) FROM dragoman.deliveries)) + 1, false);
