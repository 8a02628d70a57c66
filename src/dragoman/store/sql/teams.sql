-- The statements about what is kept with the tasks of one team.

-- name: changes_of_owners
-- The $2 oldest statuses of tasks of the owners from $3 to $4 that are not older than $1.
SELECT t.id, s.agent, s.owner, t.context, t.state, t.status_ms, t.seq
FROM dragoman.scopes s JOIN dragoman.tasks t BY_INDEX(tasks_by_scope) ON t.scope = s.scope
    AND t.state IN (0, 1, 2, 3, 4, 5, 6, 7) AND t.status_ms >= $1
WHERE s.owner BETWEEN $3 AND $4 ORDER BY t.status_ms, t.id LIMIT $2;

-- name: owed_of_team
-- The deliveries of tasks of the team $3 after the number $1, at most $2: the dead ones, the others, or (null) all;
-- with a host $5 those to it.
SELECT PIECE(owed_columns)
FROM dragoman.tasks t JOIN dragoman.push_configs c ON c.task = t.task JOIN dragoman.deliveries d ON d.config = c.config
    JOIN dragoman.scopes s ON s.scope = t.scope JOIN dragoman.push_hosts h ON h.host = c.host
WHERE t.team = $3 AND d.delivery > $1 AND ($4::boolean IS NULL OR d.dead = $4)
    AND ($5::text IS NULL OR h.name = $5) ORDER BY d.delivery LIMIT $2;

-- name: owed_count_of_team
-- How many deliveries of tasks of the team $1 are pending, how many are dead, and how many of the first wait for a paused host;
-- then when the first is due.
SELECT count(CASE WHEN FALSE(d.dead) THEN 1 END), count(CASE WHEN TRUE(d.dead) THEN 1 END),
    count(CASE WHEN FALSE(d.dead) AND c.host = ANY (ARRAY(SELECT p.host FROM PAUSED_PUSH_HOSTS p)) THEN 1 END), min(c.due_ms)
FROM dragoman.tasks t JOIN dragoman.push_configs c ON c.task = t.task JOIN dragoman.deliveries d ON d.config = c.config
WHERE t.team = $1;

-- name: receipts_of_team
-- Receipts of tasks of the team $3 with numbers below $1, the highest first.
SELECT PIECE(receipt_columns)
FROM dragoman.tasks t JOIN dragoman.receipts r ON r.task = t.task JOIN dragoman.scopes s ON s.scope = t.scope
WHERE t.team = $3 AND r.delivery < $1 ORDER BY r.delivery DESC LIMIT $2;
