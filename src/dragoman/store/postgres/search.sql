-- The statements of a search through tasks by what no index answers.

-- name: search_end
-- The last of the $2 newest tasks below a number.
SELECT t.task FROM dragoman.tasks t WHERE t.task < $1 ORDER BY t.task DESC LIMIT 1 OFFSET $2::int - 1;

-- name: search
-- The tasks that fit between two numbers, the newest first, by 3 owner, 4 agent, 5 context, 6 state, 7 and 8 bounds of the
-- status, 9 dialect, 10 text; null stands for any. `lower` changes the letters a to z alone, because of the collation.
SELECT t.task, t.head, t.state, t.status_ms, t.holder, t.cancel, t.text
FROM dragoman.tasks t JOIN dragoman.scopes o USING (scope)
WHERE t.task >= $1 AND t.task < $2 AND ($3::text IS NULL OR o.owner = $3) AND ($4::text IS NULL OR o.agent = $4)
    AND ($5::text IS NULL OR t.context = $5) AND ($6::int IS NULL OR t.state = $6)
    AND ($7::bigint IS NULL OR t.status_ms >= $7) AND ($8::bigint IS NULL OR t.status_ms < $8)
    AND ($9::text IS NULL OR t.dialect = $9)
    AND ($10::text IS NULL OR strpos(lower(t.text), lower($10::text COLLATE "C")) > 0)
ORDER BY t.task DESC LIMIT $11;
