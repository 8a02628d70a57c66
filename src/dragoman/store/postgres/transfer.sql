-- The statements for copying a store that the other database has otherwise.

-- name: last_delivery
-- The last number that a delivery got.
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('dragoman.deliveries', 'delivery')), 0);

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
    setval(pg_get_serial_sequence('dragoman.state_spaces', 'space'),
        (SELECT coalesce(max(space), 0) + 1 FROM dragoman.state_spaces), false),
    setval(pg_get_serial_sequence('dragoman.keys', 'key'), (SELECT coalesce(max(key), 0) + 1 FROM dragoman.keys), false),
    setval(pg_get_serial_sequence('dragoman.audit', 'entry'), (SELECT coalesce(max(entry), 0) + 1 FROM dragoman.audit), false);

-- name: go_on_with_deliveries
-- Go on from the source's last number of a delivery.
SELECT setval(pg_get_serial_sequence('dragoman.deliveries', 'delivery'),
    greatest($1::bigint, (SELECT coalesce(max(delivery), 0) FROM dragoman.deliveries)) + 1, false);
