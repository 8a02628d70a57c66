-- The statements about the state of agents. A space is a scope with a number; one that has ended is nobody's any more, and the
-- sweep deletes its entries. The size of an entry is that of its key and its value.

-- name: hold_task
-- The task $1 if its run under the epoch $2 may write, kept so until the end of the transaction: with its context, owner and agent.
SELECT t.task, t.context, s.owner, s.agent FROM dragoman.tasks t JOIN dragoman.scopes s ON s.scope = t.scope
WHERE t.id = $1 AND t.epoch = $2 AND t.state < 4 AND (t.holder IS NOT NULL OR t.state > 1) FOR SHARE OF t;

-- name: find_act
-- The version that the act $2 of the task $1 has given to its entries, if it was made.
SELECT version FROM dragoman.state_acts WHERE task = $1 AND act = $2;

-- name: add_act
-- Note an act.
INSERT INTO dragoman.state_acts (task, act, version) VALUES ($1, $2, $3);

-- name: hold_space
-- The space of a scope, which nobody else changes until the end of the transaction.
SELECT space, revision, entries, bytes FROM dragoman.state_spaces
WHERE agent = $1 AND owner = $2 AND context = $3 AND kind = $4 AND ended = 0 FOR UPDATE;

-- name: hold_numbered_space
-- The same by its number.
SELECT space, revision, entries, bytes FROM dragoman.state_spaces WHERE space = $1 AND ended = 0 FOR UPDATE;

-- name: add_space
-- Make the space of a scope, unless somebody else just has.
INSERT INTO dragoman.state_spaces (agent, owner, context, kind, ended, revision, entries, bytes)
VALUES ($1, $2, $3, $4, 0, 0, 0, 0) ON CONFLICT (agent, owner, context, kind) WHERE ended = 0 DO NOTHING;

-- name: change_space
-- Set the version, the number of entries and the size that the space $1 has after a write.
UPDATE dragoman.state_spaces SET revision = $2, entries = $3, bytes = $4 WHERE space = $1;

-- name: weigh_entries
-- The versions, sizes and expiries of those of the entries $2 that there are.
SELECT key, version, ENTRY_BYTES, expires_ms FROM dragoman.state_entries
WHERE space = $1 AND key = ANY ($2::text[]);

-- name: weigh_entries_below
-- The same of the entries from the key $2 on, before the key $3.
SELECT key, version, ENTRY_BYTES, expires_ms FROM dragoman.state_entries
WHERE space = $1 AND key >= $2 AND key < $3;

-- name: weigh_expired_entries
-- The same of the entries of a space that have expired at $2.
SELECT key, version, ENTRY_BYTES, expires_ms FROM dragoman.state_entries
WHERE space = $1 AND expires_ms <= $2;

-- name: weigh_first_entries
-- The first $2 entries of a space, with their sizes.
SELECT key, ENTRY_BYTES FROM dragoman.state_entries WHERE space = $1 ORDER BY key LIMIT $2;

-- name: put_state
-- Write an entry.
INSERT INTO dragoman.state_entries (space, key, version, expires_ms, value) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (space, key) DO UPDATE
SET version = excluded.version, expires_ms = excluded.expires_ms, value = excluded.value;

-- name: drop_state
-- Delete the entries $2 of a space. Returns their sizes.
DELETE FROM dragoman.state_entries WHERE space = $1 AND key = ANY ($2::text[])
RETURNING ENTRY_BYTES;

-- name: drop_expired_state
-- The same for those that have expired at $3.
DELETE FROM dragoman.state_entries WHERE space = $1 AND key = ANY ($2::text[]) AND expires_ms <= $3
RETURNING ENTRY_BYTES;

-- name: space_of
-- The number of the space of a scope.
SELECT space FROM dragoman.state_spaces WHERE agent = $1 AND owner = $2 AND context = $3 AND kind = $4 AND ended = 0

-- name: state_columns
-- The columns of an entry that is read.
SELECT key, value, version, expires_ms FROM dragoman.state_entries

-- name: read_state
-- Those of the entries $5 of a scope that there are at $6.
PIECE(state_columns)
WHERE space = (PIECE(space_of)) AND key = ANY ($5::text[]) AND (expires_ms IS NULL OR expires_ms > $6) ORDER BY key;

-- name: list_state
-- At most $8 entries of a scope at $7, from the key $5 on, before the key $6.
PIECE(state_columns)
WHERE space = (PIECE(space_of)) AND key >= $5 AND key < $6 AND (expires_ms IS NULL OR expires_ms > $7)
ORDER BY key LIMIT $8;

-- name: list_state_after
-- The same from after the key $5.
PIECE(state_columns)
WHERE space = (PIECE(space_of)) AND key > $5 AND key < $6 AND (expires_ms IS NULL OR expires_ms > $7)
ORDER BY key LIMIT $8;

-- name: list_state_descending
-- The same as the first, in the reverse order.
PIECE(state_columns)
WHERE space = (PIECE(space_of)) AND key >= $5 AND key < $6 AND (expires_ms IS NULL OR expires_ms > $7)
ORDER BY key DESC LIMIT $8;

-- name: count_state
-- The size of a scope.
SELECT bytes FROM dragoman.state_spaces WHERE agent = $1 AND owner = $2 AND context = $3 AND kind = $4 AND ended = 0;

-- name: scopes_of_owner
-- The scopes of the owner $1.
SELECT agent, owner, context, kind FROM dragoman.state_spaces WHERE owner = $1 AND ended = 0;

-- name: end_scopes_of_owner
-- End them.
UPDATE dragoman.state_spaces SET ended = 1 WHERE owner = $1 AND ended = 0 RETURNING space;

-- name: count_state_kinds
-- How many scopes and entries of each kind there are, and their sizes.
SELECT kind, count(*), sum(entries)::bigint, sum(bytes)::bigint FROM dragoman.state_spaces
WHERE ended = 0 GROUP BY kind ORDER BY kind;

-- name: old_state
-- Whether a space has ended, or an entry has expired at $1.
SELECT EXISTS (SELECT 1 FROM dragoman.state_spaces WHERE ended = 1)
    OR EXISTS (SELECT 1 FROM dragoman.state_entries WHERE expires_ms <= $1);

-- name: hold_ended_space
-- A space that has ended.
SELECT space FROM dragoman.state_spaces WHERE ended = 1 LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: drop_space
-- Delete a space without entries.
DELETE FROM dragoman.state_spaces WHERE space = $1;

-- name: find_expired_state
-- At most $2 entries that have expired at $1, with their spaces. Those of a space that has ended go with that.
SELECT e.space, e.key FROM dragoman.state_entries e WHERE e.expires_ms <= $1
    AND EXISTS (SELECT 1 FROM dragoman.state_spaces s WHERE s.space = e.space AND s.ended = 0) LIMIT $2;
