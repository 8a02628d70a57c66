-- The statements about one principal that only PostgreSQL has: counters are in rows of each replica.

-- name: forget_counts
-- Delete the counters of the scopes of $1 that have no tasks.
DELETE FROM dragoman.counts WHERE scope = ANY (ARRAY(SELECT s.scope FROM dragoman.scopes s
    WHERE s.owner = $1 AND NOT EXISTS (SELECT FROM dragoman.tasks t WHERE t.scope = s.scope))) RETURNING scope;

-- name: forget_counted_contexts
-- The same for the contexts that have counters.
DELETE FROM dragoman.counted_contexts WHERE scope = ANY (ARRAY(SELECT s.scope FROM dragoman.scopes s
    WHERE s.owner = $1 AND NOT EXISTS (SELECT FROM dragoman.tasks t WHERE t.scope = s.scope))) RETURNING scope;
