-- The looks at tasks without their logs: searches by what no index answers, and delegated tasks that have not ended.

-- name: search_end
-- The last of the $3 newest tasks between two numbers.
SELECT t.task FROM dragoman.tasks t WHERE t.task BETWEEN $1 AND $2 ORDER BY t.task DESC LIMIT 1 OFFSET $3::int - 1;

-- name: search_end_oldest
-- The last of the $3 oldest ones.
SELECT t.task FROM dragoman.tasks t WHERE t.task BETWEEN $1 AND $2 ORDER BY t.task LIMIT 1 OFFSET $3::int - 1;

-- name: search_team_end
-- The same for the tasks of the team $4, and no others are looked at.
SELECT t.task FROM dragoman.tasks t WHERE t.team = $4 AND t.task BETWEEN $1 AND $2
ORDER BY t.task DESC LIMIT 1 OFFSET $3::int - 1;

-- name: search_team_end_oldest
-- The last of its $3 oldest ones.
SELECT t.task FROM dragoman.tasks t WHERE t.team = $4 AND t.task BETWEEN $1 AND $2
ORDER BY t.task LIMIT 1 OFFSET $3::int - 1;

-- name: searched
-- The tasks that fit between two numbers, by 3 owner, 4 agent, 5 context, 6 state, 7 and 8 bounds of the status, 9 dialect,
-- 10 text, 12 key, 13 whether it is asleep, 14 what is in an id, the context or the words, where null stands for any. `lower` changes the letters a to z alone, because of the collation.
SELECT t.task, t.head, t.state, t.status_ms, t.holder, t.cancel, t.text, t.title
FROM dragoman.tasks t JOIN dragoman.scopes s ON s.scope = t.scope
WHERE t.task BETWEEN $1 AND $2 AND ($3::text IS NULL OR s.owner = $3) AND ($4::text IS NULL OR s.agent = $4)
    AND ($5::text IS NULL OR t.context = $5) AND ($6::int IS NULL OR t.state = $6)
    AND ($7::bigint IS NULL OR t.status_ms >= $7) AND ($8::bigint IS NULL OR t.status_ms < $8)
    AND ($9::text IS NULL OR t.dialect = $9) AND ($12::text IS NULL OR t.key = $12)
    AND ($13::int IS NULL OR CASE WHEN t.holder = 'asleep' THEN 1 ELSE 0 END = $13)
    AND ($10::text IS NULL OR strpos(lower(t.text), lower($10::text COLLATE "C")) > 0
        OR strpos(lower(t.title), lower($10::text COLLATE "C")) > 0)
    AND ($14::text IS NULL OR strpos(t.id, lower($14::text COLLATE "C")) > 0 OR strpos(t.context, $14) > 0
        OR strpos(lower(t.text), lower($14::text COLLATE "C")) > 0
        OR strpos(lower(t.title), lower($14::text COLLATE "C")) > 0)

-- name: search
-- The newest of them, at most $11.
PIECE(searched) ORDER BY t.task DESC LIMIT $11;

-- name: search_oldest
-- The oldest of them.
PIECE(searched) ORDER BY t.task LIMIT $11;

-- name: search_team
-- The newest of those that are of the team $15.
PIECE(searched) AND t.team = $15 ORDER BY t.task DESC LIMIT $11;

-- name: search_team_oldest
-- The oldest of these.
PIECE(searched) AND t.team = $15 ORDER BY t.task LIMIT $11;

-- name: children
-- Heads of the tasks that a task delegated, did not detach, and that have not ended.
SELECT head, task FROM dragoman.tasks BY_INDEX(tasks_by_parent) WHERE parent = $1 AND state < 4 ORDER BY task;

-- name: asking
-- Heads of delegated tasks that are interrupted.
SELECT head, task FROM dragoman.tasks BY_INDEX(tasks_by_parent) WHERE parent IS NOT NULL AND state < 4 AND state > 1 ORDER BY task;

-- name: overdue
-- Heads of delegated tasks that have not ended by their deadline, which is not after $1, at most $2, the earliest deadline first.
SELECT head, task FROM dragoman.tasks BY_INDEX(tasks_by_parent)
WHERE parent IS NOT NULL AND state < 4 AND deadline_ms IS NOT NULL AND deadline_ms <= $1
ORDER BY deadline_ms, task LIMIT $2;

-- name: next_wake
-- When the next task wakes after $1, or the next that was put aside is looked at again. PostgreSQL passes over offers to replicas, which are few and brief.
SELECT min(offered_until_ms) FROM dragoman.tasks BY_INDEX(tasks_asleep)
WHERE holder IN ('asleep', 'aside') AND state < 4 AND offered_until_ms IS NOT NULL AND offered_until_ms > $1;
