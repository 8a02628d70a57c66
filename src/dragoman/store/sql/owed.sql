-- The statements by which operators look at pending and dead deliveries, at the hosts that they have paused, and at the webhooks of
-- keys.

-- name: owed_columns
-- What is told of a delivery, without its body.
d.delivery, d.id, t.id, s.agent, c.id, c.settings, d.seq, d.attempts, d.dead,
    CASE WHEN FALSE(d.dead) AND d.delivery = (SELECT min(o.delivery) FROM dragoman.deliveries o
        WHERE o.config = d.config AND FALSE(o.dead)) THEN c.due_ms END,
    d.made_ms, d.reason, h.name, h.host = ANY (ARRAY(SELECT p.host FROM PAUSED_PUSH_HOSTS p))

-- name: owed_tables
-- Where that is read, in the order of the deliveries.
dragoman.deliveries d JOIN dragoman.push_configs c ON c.config = d.config JOIN dragoman.tasks t ON t.task = c.task
    JOIN dragoman.scopes s ON s.scope = t.scope JOIN dragoman.push_hosts h ON h.host = c.host

-- name: owed
-- The deliveries after the number $1, at most $2, to the host $3, null for all.
SELECT PIECE(owed_columns) FROM PIECE(owed_tables)
WHERE d.delivery > $1 AND ($3::text IS NULL OR h.name = $3) ORDER BY d.delivery LIMIT $2;

-- name: owed_pending
-- Those of them that are pending.
SELECT PIECE(owed_columns) FROM PIECE(owed_tables)
WHERE d.delivery > $1 AND FALSE(d.dead) AND ($3::text IS NULL OR h.name = $3) ORDER BY d.delivery LIMIT $2;

-- name: owed_dead
-- Those of them that are dead.
SELECT PIECE(owed_columns) FROM PIECE(owed_tables)
WHERE d.delivery > $1 AND TRUE(d.dead) AND ($3::text IS NULL OR h.name = $3) ORDER BY d.delivery LIMIT $2;

-- name: owed_by_task
-- Those of them of the task $3, the dead ones, the others, or (null) all. No other delivery is looked at.
SELECT PIECE(owed_columns)
FROM dragoman.tasks t JOIN dragoman.push_configs c ON c.task = t.task JOIN dragoman.deliveries d ON d.config = c.config
    JOIN dragoman.scopes s ON s.scope = t.scope JOIN dragoman.push_hosts h ON h.host = c.host
WHERE t.id = $3 AND d.delivery > $1 AND ($4::boolean IS NULL OR d.dead = $4) ORDER BY d.delivery LIMIT $2;

-- name: find_number
-- The number of the delivery with an id.
SELECT delivery FROM dragoman.deliveries WHERE id = $1 ORDER BY delivery LIMIT 1;

-- name: delivery_standing
-- The standing of a delivery: part, kept, dialect, size, lane of its host, end of its claim if it is in flight, and how many
-- pending deliveries of its webhook come before and after it.
SELECT d.part, d.kept, d.dialect, octet_length(d.body), h.lane, CASE WHEN c.claimed = d.delivery THEN c.due_ms END,
    (SELECT count(*) FROM dragoman.deliveries o WHERE o.config = d.config AND FALSE(o.dead) AND o.delivery < d.delivery),
    (SELECT count(*) FROM dragoman.deliveries o WHERE o.config = d.config AND FALSE(o.dead) AND o.delivery > d.delivery)
FROM dragoman.deliveries d JOIN dragoman.push_configs c ON c.config = d.config JOIN dragoman.push_hosts h ON h.host = c.host
WHERE d.delivery = $1;

-- name: owed_count
-- How many deliveries are pending, and how many are dead.
SELECT (SELECT count(*) FROM dragoman.deliveries) - d.dead, d.dead
FROM (SELECT count(*) AS dead FROM dragoman.deliveries o WHERE TRUE(o.dead)) d;

-- name: owed_groups
-- The deliveries of the tasks of the team $1, null for all, by host, cause and whether they are dead: at most $2 groups, the
-- largest first, each with the number of its deliveries and of their webhooks, and when the oldest was made. A pending one that
-- waits for another has the cause of that: nothing else of its webhook has been tried.
SELECT h.name, g.dead, g.cause, sum(g.calls)::bigint, count(*), min(g.made_ms),
    h.host = ANY (ARRAY(SELECT p.host FROM PAUSED_PUSH_HOSTS p))
FROM (SELECT d.config, d.dead, max(d.reason) AS cause, count(*) AS calls, min(d.made_ms) AS made_ms FROM dragoman.deliveries d
        GROUP BY d.config, d.dead, CASE WHEN TRUE(d.dead) THEN d.reason END) g
    JOIN dragoman.push_configs c ON c.config = g.config JOIN dragoman.push_hosts h ON h.host = c.host
    JOIN dragoman.tasks t ON t.task = c.task
WHERE $1::text IS NULL OR t.team = $1
GROUP BY h.host, h.name, g.dead, g.cause ORDER BY sum(g.calls) DESC, h.name, g.dead, g.cause LIMIT $2;

-- name: next_dead
-- At most $3 dead deliveries after $1, up to $2.
SELECT d.delivery FROM dragoman.deliveries d WHERE TRUE(d.dead) AND d.delivery > $1 AND d.delivery <= $2 ORDER BY d.delivery LIMIT $3;

-- name: last_dead
-- The newest dead delivery.
SELECT max(d.delivery) FROM dragoman.deliveries d WHERE TRUE(d.dead);

-- name: pause_host
-- Pause a host.
INSERT INTO dragoman.paused_hosts (name, paused_ms, paused_by) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING name;

-- name: resume_host
-- End the pause of a host.
DELETE FROM dragoman.paused_hosts WHERE name = $1 RETURNING name;

-- name: paused_hosts
-- The paused hosts, each with the number of the deliveries that wait for it.
SELECT p.name, p.paused_ms, p.paused_by, (SELECT count(*) FROM PAUSED_PUSH_HOSTS h
    JOIN dragoman.push_configs c ON c.host = h.host JOIN dragoman.deliveries d ON d.config = c.config AND FALSE(d.dead)
    WHERE h.name = p.name)
FROM dragoman.paused_hosts p ORDER BY p.name;

-- name: host_backlog
-- The deliveries that wait for the paused host $1: how many, how many of these another pause holds, and of the others how many
-- are not due at $2, and when the first of them is.
SELECT count(*), count(*) FILTER (WHERE held), count(*) FILTER (WHERE later AND NOT held),
    min(due_ms) FILTER (WHERE later AND NOT held)
FROM (
    SELECT EXISTS (SELECT 1 FROM PAUSED_PUSH_HOSTS o WHERE o.host = h.host AND o.name <> h.name) AS held,
        c.claimed IS NULL AND c.due_ms > $2::bigint AS later, c.due_ms
    FROM PAUSED_PUSH_HOSTS h JOIN dragoman.push_configs c ON c.host = h.host
        JOIN dragoman.deliveries d ON d.config = c.config AND FALSE(d.dead)
    WHERE h.name = $1
) w;

-- name: paused_count
-- How many deliveries wait for a paused host.
SELECT count(*) FROM dragoman.push_configs c JOIN dragoman.deliveries d ON d.config = c.config AND FALSE(d.dead)
WHERE c.host = ANY (ARRAY(SELECT p.host FROM PAUSED_PUSH_HOSTS p));

-- name: webhooks_of_key
-- The $2 oldest webhooks that were made with a key.
SELECT t.id, s.agent, c.id, h.name FROM dragoman.push_configs c JOIN dragoman.tasks t ON t.task = c.task
    JOIN dragoman.scopes s ON s.scope = t.scope JOIN dragoman.push_hosts h ON h.host = c.host
WHERE c.key = $1 ORDER BY c.config LIMIT $2;

-- name: keyless_webhooks
-- How many webhooks of open tasks of an owner have no key noted.
SELECT count(*) FROM dragoman.scopes s
    JOIN dragoman.tasks t BY_INDEX(tasks_by_scope) ON t.scope = s.scope AND t.state BETWEEN 0 AND 3
    JOIN dragoman.push_configs c ON c.task = t.task
WHERE s.owner = $1 AND t.pushed AND c.key IS NULL;
