-- The statements of the driver. Positional values are in the order of their numbers.
-- ROWS(n) expands to rows of n values: see `schema.for_rows`.

-- name: find_scope
-- The number of an owner with an agent.
SELECT scope FROM scopes WHERE owner = ?1 AND agent = ?2;

-- name: add_scope
-- Give an owner with an agent its number.
INSERT INTO scopes (owner, agent) VALUES (?1, ?2) RETURNING scope;

-- name: last_numbers
-- The highest numbers of tasks, files and webhooks.
SELECT coalesce((SELECT max(task) FROM tasks), 0), coalesce((SELECT max(file) FROM files), 0),
    coalesce((SELECT max(config) FROM push_configs), 0);

-- name: find_call
-- An earlier call with this key that has not expired.
SELECT task_id, digest, seq, answer FROM calls WHERE key = ?1 AND expires_ms > ?2;

-- name: forget_call
-- Delete a call whose task was refused, so that another can replace it.
DELETE FROM calls WHERE key = ?1 AND task_id = ?2;

-- name: add_calls
-- Remember calls. A known call that has not expired stays unchanged, which `changes()` shows. The last value is the time.
INSERT INTO calls (key, digest, task_id, seq, answer, expires_ms) VALUES ROWS(6)
ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, task_id = excluded.task_id, seq = excluded.seq,
    answer = excluded.answer, expires_ms = excluded.expires_ms
WHERE calls.expires_ms <= ?;

-- name: add_tasks
-- The rows of new tasks.
INSERT INTO tasks (task, id, scope, context, state, status_ms, seq, epoch, holder, log_bytes, files, head,
    pushed, parent, deadline_ms, dialect, text, key, team, title) VALUES ROWS(20);

-- name: name_task
-- Note the title that the agent gives its task.
UPDATE tasks SET title = ?2 WHERE task = ?1;

-- name: add_pages
-- The pages that this commit adds to logs.
INSERT INTO pages (task, first_seq, last_seq, events, write, epoch) VALUES ROWS(6);

-- name: earlier_write
-- The last seq and the epoch of the write with id ?3 to a task, looked for behind seq ?2, or as its last one without events.
SELECT last_seq, epoch FROM pages WHERE task = (SELECT task FROM tasks WHERE id = ?1) AND first_seq > ?2 AND write = ?3
UNION ALL SELECT bare_seq, bare_epoch FROM tasks WHERE id = ?1 AND bare_write = ?3;

-- name: put_snapshots
-- The newest record of tasks.
INSERT OR REPLACE INTO snapshots (task, seq, record) VALUES ROWS(3);

-- name: add_file
-- The bytes of one file, which an earlier write may have inserted.
INSERT OR IGNORE INTO files (file, task, digest, bytes) VALUES (?1, ?2, ?3, ?4);

-- name: guard
-- The condition of every append (invariants 4 and 5): not terminal, the run's own epoch, the seq on which the caller decided,
-- or the epoch and state, rendered for the task's webhooks, and not made before: that is seen in the log, behind the seq that
-- the writer has read, or, without events, in the row. Statements include it as GUARD(epoch or null, expected seq or null, seq
-- read, id of the write or null, version of the webhooks or null, expected epoch or null, state).
tasks.state < 4 AND (EPOCH IS NULL OR (tasks.epoch = EPOCH AND tasks.holder IS NOT NULL))
    AND (EXPECTED IS NULL OR tasks.seq = EXPECTED) AND (WEBHOOKS IS NULL OR tasks.webhooks_version = WEBHOOKS)
    AND (LEASE IS NULL OR (tasks.epoch = LEASE AND tasks.state = STATE)) AND (tasks.bare_write = WRITE) IS NOT TRUE
    AND (WRITE IS NULL OR tasks.seq <= READ OR NOT EXISTS
        (SELECT 1 FROM pages p WHERE p.task = tasks.task AND p.first_seq > READ AND p.write = WRITE));

-- name: append
-- Appends to tasks, by 1 task, 2 events, 3 state, 4 status_ms, 5 leases (0 or 1), 6 holder, 7 lease ends, 8 bytes, 9 snapshot
-- follows, 10 files follow, 11 keeper, 12 end of the offer, the values of the guard without the state, and 19 whether a worker
-- gets the task (0 or 1).
UPDATE tasks SET seq = tasks.seq + v.column2, state = v.column3, status_ms = max(tasks.status_ms, v.column4),
    epoch = tasks.epoch + v.column5,
    holder = CASE WHEN v.column7 THEN NULL ELSE coalesce(v.column6, tasks.holder) END,
    log_bytes = CASE WHEN v.column9 THEN 0 ELSE tasks.log_bytes + v.column8 END, files = tasks.files | v.column10,
    keeper = CASE WHEN v.column7 THEN v.column11 ELSE tasks.keeper END,
    offered_until_ms = CASE WHEN v.column5 OR v.column7 OR v.column13 IS NOT NULL THEN v.column12
        ELSE tasks.offered_until_ms END,
    bare_write = CASE v.column2 WHEN 0 THEN v.column16 ELSE tasks.bare_write END,
    bare_seq = CASE v.column2 WHEN 0 THEN tasks.seq ELSE tasks.bare_seq END,
    bare_epoch = CASE v.column2 WHEN 0 THEN tasks.epoch + v.column5 ELSE tasks.bare_epoch END,
    delivered = tasks.delivered + v.column19
FROM (VALUES ROWS(19)) v
WHERE tasks.task = v.column1
    AND GUARD(v.column13, v.column14, v.column15, v.column16, v.column17, v.column18, v.column3);

-- name: extend
-- The same for appends of events that change neither the state, nor its time, nor the lease, and depend on none of them, such
-- as those of chunks. Indexed columns are left out, because SQLite rewrites the index entries of an assigned column even if its value stays the same.
UPDATE tasks SET seq = tasks.seq + v.column2,
    log_bytes = CASE WHEN v.column4 THEN 0 ELSE tasks.log_bytes + v.column3 END, files = tasks.files | v.column5,
    offered_until_ms = CASE WHEN v.column6 IS NULL THEN tasks.offered_until_ms END
FROM (VALUES ROWS(10)) v
WHERE tasks.task = v.column1 AND GUARD(v.column6, v.column7, v.column8, v.column9, v.column10, NULL, NULL);

-- name: standings
-- The standings of many tasks, as one JSON array of [id, standing].
SELECT json_group_array(json_array(id,
    json_array(task, scope, context, state, seq, epoch, holder IS NOT NULL, status_ms)))
FROM tasks WHERE id IN (SELECT value FROM json_each(?1));

-- name: standing
-- The standing of a task: the values that decide about an append, and the place of its counters; then what decides, too, but is
-- never cached.
SELECT task, scope, context, state, seq, epoch, holder IS NOT NULL, status_ms, webhooks_version FROM tasks WHERE id = ?1;

-- name: request_cancel
-- Mark that the task's run shall stop, unless the task has ended.
UPDATE tasks SET cancel = 1 WHERE id = ?1 AND state < 4 AND cancel = 0;

-- name: count_scope
-- Add to the counters of a scope.
UPDATE scopes SET n0 = n0 + ?2, n1 = n1 + ?3, n2 = n2 + ?4, n3 = n3 + ?5,
    n4 = n4 + ?6, n5 = n5 + ?7, n6 = n6 + ?8, n7 = n7 + ?9
WHERE scope = ?1;

-- name: count_contexts
-- Add to the counters of contexts.
INSERT INTO contexts (scope, context, n0, n1, n2, n3, n4, n5, n6, n7) VALUES ROWS(10)
ON CONFLICT (scope, context) DO UPDATE SET n0 = n0 + excluded.n0, n1 = n1 + excluded.n1, n2 = n2 + excluded.n2,
    n3 = n3 + excluded.n3, n4 = n4 + excluded.n4, n5 = n5 + excluded.n5, n6 = n6 + excluded.n6, n7 = n7 + excluded.n7;

-- name: drop_context
-- Delete a context that has no tasks left.
DELETE FROM contexts WHERE scope = ?1 AND context = ?2 AND n0 + n1 + n2 + n3 + n4 + n5 + n6 + n7 = 0;

-- name: end_conversation
-- End the state of a conversation that has no tasks left.
UPDATE state_spaces SET ended = 1
WHERE (agent, owner) = (SELECT agent, owner FROM scopes WHERE scope = ?1) AND context = ?2 AND context <> '' AND ended = 0;

-- name: probe
-- A meaningless write, to see whether writes work.
INSERT OR REPLACE INTO probes (probe, written_ms) VALUES (1, ?1);

-- name: load
-- A task's row, its snapshot if it has one, and a row for every page after the snapshot, which ends where a page ends.
-- Head and snapshot are in the first row alone: a long log has thousands of pages after a snapshot of megabytes.
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files,
    CASE WHEN p.first_seq > coalesce(s.seq, 0) + 1 THEN NULL ELSE t.head END,
    CASE WHEN p.first_seq > coalesce(s.seq, 0) + 1 THEN NULL ELSE s.record END,
    p.first_seq, p.events, t.pushed, t.keeper, t.offered_until_ms, t.webhooks_version, t.delivered
FROM tasks t LEFT JOIN snapshots s ON s.task = t.task
    LEFT JOIN pages p ON p.task = t.task AND p.first_seq > coalesce(s.seq, 0)
WHERE t.id = ?1 ORDER BY p.first_seq;

-- name: load_snapshot
-- The same without the pages.
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files, t.head, s.record,
    NULL, NULL, t.pushed, t.keeper, t.offered_until_ms, t.webhooks_version, t.delivered
FROM tasks t LEFT JOIN snapshots s ON s.task = t.task WHERE t.id = ?1;

-- name: load_by_number
-- The task with the pages, by its number.
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files,
    CASE WHEN p.first_seq > coalesce(s.seq, 0) + 1 THEN NULL ELSE t.head END,
    CASE WHEN p.first_seq > coalesce(s.seq, 0) + 1 THEN NULL ELSE s.record END,
    p.first_seq, p.events, t.pushed, t.keeper, t.offered_until_ms, t.webhooks_version, t.delivered
FROM tasks t LEFT JOIN snapshots s ON s.task = t.task
    LEFT JOIN pages p ON p.task = t.task AND p.first_seq > coalesce(s.seq, 0)
WHERE t.task = ?1 ORDER BY p.first_seq;

-- name: size
-- The size in bytes of a task's snapshot, the pages after it and its files. No content is read.
SELECT t.log_bytes + coalesce((SELECT length(record) FROM snapshots s WHERE s.task = t.task), 0)
    + CASE WHEN t.files THEN coalesce((SELECT sum(length(bytes)) FROM files f WHERE f.task = t.task), 0) ELSE 0 END
FROM tasks t WHERE t.id = ?1;

-- name: pushed
-- Whether a task has webhooks, and their version.
SELECT pushed, webhooks_version FROM tasks WHERE id = ?1;

-- name: row_head
-- Head, seq, state and number of a task.
SELECT head, seq, state, task FROM tasks WHERE id = ?1;

-- name: row_facts
-- What the row of a task says beside its bytes, by its number.
SELECT t.id, s.owner, s.agent, t.context, t.dialect, t.parent, t.deadline_ms, t.status_ms
FROM tasks t JOIN scopes s ON s.scope = t.scope WHERE t.task = ?1;

-- name: pages_after
-- The pages with the events after a seq, in order.
SELECT first_seq, events FROM pages
WHERE task = ?1 AND first_seq >= coalesce((SELECT max(first_seq) FROM pages WHERE task = ?1 AND first_seq <= ?2 + 1), 0)
    AND last_seq > ?2
ORDER BY first_seq;

-- name: pages_with_notes
-- The pages up to a seq that may hold a note, in order. ?3 and ?4 are how a note begins.
SELECT events FROM pages
WHERE task = ?1 AND last_seq <= ?2 AND (instr(events, ?3) OR instr(events, ?4))
ORDER BY first_seq;

-- name: moved
-- The tasks that have events after a seq, by a JSON array of [id, seq], in the order of the array.
SELECT t.task, t.files, t.id, j.value ->> 1 FROM json_each(?1) j CROSS JOIN tasks t ON t.id = j.value ->> 0
WHERE t.seq > j.value ->> 1 ORDER BY j.key;

-- name: task_number
-- The number of a task, and whether it has files.
SELECT task, files FROM tasks WHERE id = ?1;

-- name: file
-- The bytes of a file.
SELECT bytes FROM files WHERE file = ?1;

-- name: equal_files
-- A file of a task that may have the same bytes as one about to be written.
SELECT file, bytes FROM files WHERE task = (SELECT task FROM tasks WHERE id = ?1) AND digest = ?2 LIMIT 1;

-- name: list_states
-- A page of one state of a scope: one arm of a merge, or all of it. BOUNDS and ORDERED are replaced by those of the query.
SELECT task, status_ms, id FROM tasks INDEXED BY tasks_by_scope WHERE scope = :scope AND state = STATE BOUNDS;

-- name: list_context_states
-- The same within a context.
SELECT task, status_ms, id FROM tasks INDEXED BY tasks_by_context
WHERE scope = :scope AND context = :context AND state = STATE BOUNDS;

-- name: list_states_of_all
-- A page of one state of several scopes: those of an agent, of a range of owners, or all. Each scope gives as many as the page may need, so that the cost
-- grows with the owners, not with their tasks.
SELECT t.task, t.status_ms, t.id FROM scopes s CROSS JOIN tasks t ON t.task IN (
    SELECT task FROM tasks INDEXED BY tasks_by_scope WHERE scope = s.scope AND state = STATE BOUNDS
    ORDER BY ORDERED LIMIT :limit + :offset)
WHERE s.owner BETWEEN :owner AND :last_owner AND (:agent IS NULL OR s.agent = :agent);

-- name: list_context_states_of_all
-- The same within a context, which each owner may have.
SELECT t.task, t.status_ms, t.id FROM scopes s CROSS JOIN tasks t ON t.task IN (
    SELECT task FROM tasks INDEXED BY tasks_by_context
    WHERE scope = s.scope AND context = :context AND state = STATE BOUNDS
    ORDER BY ORDERED LIMIT :limit + :offset)
WHERE s.owner BETWEEN :owner AND :last_owner AND (:agent IS NULL OR s.agent = :agent);

-- name: task_row
-- A task of a list without its log.
SELECT task, head, state, status_ms, holder, cancel, text, title FROM tasks WHERE task = ?1;

-- name: context_of
-- The context of task :task, if no other task of it has a newer status, with how many tasks it has, and the text of the first;
-- at most :most are counted and compared.
SELECT s.owner, s.agent, t.context, t.state, (SELECT count(*) FROM (
        SELECT 1 FROM tasks c INDEXED BY tasks_by_context WHERE c.scope = t.scope AND c.context = t.context LIMIT :most)),
    (SELECT f.text FROM tasks f WHERE f.id = (SELECT min(id) FROM (
        SELECT c.id FROM tasks c INDEXED BY tasks_by_context WHERE c.scope = t.scope AND c.context = t.context LIMIT :most)))
FROM tasks t JOIN scopes s ON s.scope = t.scope
WHERE t.task = :task AND NOT EXISTS (
    SELECT 1 FROM tasks n INDEXED BY tasks_by_context WHERE n.scope = t.scope AND n.context = t.context
        AND n.state IN (0, 1, 2, 3, 4, 5, 6, 7) AND (n.status_ms, n.id) > (t.status_ms, t.id));

-- name: changes
-- The ?2 oldest statuses that are not older than ?1. Those of interrupted and ended tasks are found by the index of the sweep,
-- all others by owners and agents that have any.
SELECT t.id, s.agent, s.owner, t.context, t.state, t.status_ms, t.seq FROM (
    SELECT task FROM (SELECT task FROM tasks INDEXED BY tasks_aging
        WHERE state > 1 AND (state > 3) + pruned = 0 AND status_ms >= ?1 ORDER BY status_ms LIMIT ?2)
    UNION ALL SELECT task FROM (SELECT task FROM tasks INDEXED BY tasks_aging
        WHERE state > 1 AND (state > 3) + pruned = 1 AND status_ms >= ?1 ORDER BY status_ms LIMIT ?2)
    UNION ALL SELECT task FROM (SELECT task FROM tasks INDEXED BY tasks_aging
        WHERE state > 1 AND (state > 3) + pruned = 2 AND status_ms >= ?1 ORDER BY status_ms LIMIT ?2)
    UNION ALL SELECT o.task FROM scopes s CROSS JOIN tasks o INDEXED BY tasks_by_scope
        ON o.scope = s.scope AND o.state = 0 AND o.status_ms >= ?1 WHERE s.n0 > 0
    UNION ALL SELECT o.task FROM scopes s CROSS JOIN tasks o INDEXED BY tasks_by_scope
        ON o.scope = s.scope AND o.state = 1 AND o.status_ms >= ?1 WHERE s.n1 > 0
) c CROSS JOIN tasks t ON t.task = c.task CROSS JOIN scopes s ON s.scope = t.scope
ORDER BY t.status_ms, t.id LIMIT ?2;

-- name: list_order
-- The order of a list, for one arm or the merge of several.
ORDER BY ORDERED LIMIT :limit OFFSET :offset;

-- name: newest_changed
-- The orders of a list.
status_ms DESC, id DESC;

-- name: oldest_changed
-- The reverse.
status_ms, id;

-- name: longest_running
-- That of the ids, which is that of their making.
id;

-- name: bound_after
-- Only tasks whose status is not older than a time.
AND status_ms >= :after_ms;

-- name: bound_newest_changed
-- Only the tasks after the last one of the previous page.
AND (status_ms, id) < (:before_ms, :before_id);

-- name: bound_oldest_changed
-- The same in the reverse order.
AND (status_ms, id) > (:before_ms, :before_id);

-- name: bound_longest_running
-- The same in the order of ids.
AND id > :before_id;

-- name: scope_counts
-- How many tasks a scope has by state.
SELECT n0, n1, n2, n3, n4, n5, n6, n7 FROM scopes WHERE scope = :scope;

-- name: context_counts
-- How many tasks a context has by state.
SELECT n0, n1, n2, n3, n4, n5, n6, n7 FROM contexts WHERE scope = :scope AND context = :context;

-- name: agent_counts
-- How many tasks several scopes have by state.
SELECT total(n0), total(n1), total(n2), total(n3), total(n4), total(n5), total(n6), total(n7) FROM scopes
WHERE owner BETWEEN :owner AND :last_owner AND (:agent IS NULL OR agent = :agent);

-- name: agent_context_counts
-- The same within a context. Without CROSS, all contexts would be read.
SELECT total(c.n0), total(c.n1), total(c.n2), total(c.n3), total(c.n4), total(c.n5), total(c.n6), total(c.n7)
FROM scopes s CROSS JOIN contexts c ON c.scope = s.scope AND c.context = :context
WHERE s.owner BETWEEN :owner AND :last_owner AND (:agent IS NULL OR s.agent = :agent);

-- name: count_after_of_all
-- How many tasks of several scopes and a state have a status not older than a time.
SELECT count(*) FROM scopes s CROSS JOIN tasks t INDEXED BY tasks_by_scope
    ON t.scope = s.scope AND t.state = :state AND t.status_ms >= :after_ms
WHERE s.owner BETWEEN :owner AND :last_owner AND (:agent IS NULL OR s.agent = :agent);

-- name: count_context_after_of_all
-- The same within a context.
SELECT count(*) FROM scopes s CROSS JOIN tasks t INDEXED BY tasks_by_context
    ON t.scope = s.scope AND t.context = :context AND t.state = :state AND t.status_ms >= :after_ms
WHERE s.owner BETWEEN :owner AND :last_owner AND (:agent IS NULL OR s.agent = :agent);

-- name: count_after
-- How many tasks of a state have a status not older than a time. Counted in the index.
SELECT count(*) FROM tasks INDEXED BY tasks_by_scope WHERE scope = :scope AND state = :state AND status_ms >= :after_ms;

-- name: count_context_after
-- The same within a context.
SELECT count(*) FROM tasks INDEXED BY tasks_by_context
WHERE scope = :scope AND context = :context AND state = :state AND status_ms >= :after_ms;

-- name: claim
-- Lease to ?1 the oldest tasks that are queued, whose holder is not in a JSON array of live ones, or that were offered, or
-- sleep, until a time before ?4, at most ?3; without ?8 none that is queued. ?5 is a JSON array of agents, or null for those
-- that nobody serves: all but the JSON array ?6. A task that nobody has begun is offered until ?7. The counters tell which
-- scopes have any; a separate index would cost every task two writes.
UPDATE tasks SET holder = ?1, epoch = epoch + 1,
    offered_until_ms = CASE WHEN holder IS NULL OR offered_until_ms IS NOT NULL THEN ?7 END
WHERE task IN (
    SELECT t.task FROM scopes s CROSS JOIN tasks t INDEXED BY tasks_by_scope ON t.scope = s.scope AND t.state < 4
    WHERE s.n0 + s.n1 + s.n2 + s.n3 > 0 AND (t.state < 2 OR t.holder IS NOT NULL)
        AND (?8 AND t.holder IS NULL OR t.holder NOT IN (SELECT value FROM json_each(?2)) OR t.offered_until_ms <= ?4)
        AND CASE WHEN ?5 IS NULL THEN s.agent NOT IN (SELECT value FROM json_each(?6))
            ELSE s.agent IN (SELECT value FROM json_each(?5)) END
    ORDER BY t.task LIMIT ?3)
RETURNING task;

-- name: claim_woken
-- The same for tasks that sleep, or are put aside, until ?4 at the latest, at most ?3, those that woke first: of a JSON array of agents ?5, or null
-- for those that nobody serves: all but the JSON array ?6. They are offered until ?7.
UPDATE tasks SET holder = ?1, epoch = epoch + 1, offered_until_ms = ?7
WHERE task IN (
    SELECT t.task FROM tasks t INDEXED BY tasks_asleep CROSS JOIN scopes s ON s.scope = t.scope
    WHERE t.holder IN ('asleep', 'aside') AND t.offered_until_ms <= ?4
        AND CASE WHEN ?5 IS NULL THEN s.agent NOT IN (SELECT value FROM json_each(?6))
            ELSE s.agent IN (SELECT value FROM json_each(?5)) END
    ORDER BY t.offered_until_ms LIMIT ?3)
RETURNING task;

-- name: missing
-- Those of a JSON array of ids that no task has.
SELECT w.value FROM json_each(?1) w WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = w.value);

-- name: queued
-- The oldest tasks of the agent ?1 that nobody has, at most ?2 of each owner. The join is a CROSS one, since SQLite would
-- read all tasks else.
SELECT t.id FROM scopes s CROSS JOIN tasks t ON t.task IN (
    SELECT q.task FROM tasks q INDEXED BY tasks_queued WHERE q.scope = s.scope AND q.state < 2 AND q.holder IS NULL
    ORDER BY q.task LIMIT ?2)
WHERE s.agent = ?1 AND s.n0 + s.n1 > 0 ORDER BY t.task LIMIT ?2;

-- name: cancels
-- Tasks leased to ?1 that shall be canceled. Only for processes that share the file with others.
SELECT t.id FROM scopes s CROSS JOIN tasks t INDEXED BY tasks_by_scope ON t.scope = s.scope AND t.state < 4
WHERE s.n0 + s.n1 + s.n2 + s.n3 > 0 AND t.cancel AND t.holder = ?1;

-- name: leased
-- Tasks leased to ?1. Only for processes that share the file with others.
SELECT t.id FROM scopes s CROSS JOIN tasks t INDEXED BY tasks_by_scope ON t.scope = s.scope AND t.state < 4
WHERE s.n0 + s.n1 + s.n2 + s.n3 > 0 AND t.holder = ?1;

-- name: leased_of
-- Tasks of a JSON array of agents that replicas and workers have, at most ?2.
SELECT t.id, s.agent, t.holder FROM scopes s CROSS JOIN tasks t INDEXED BY tasks_by_scope ON t.scope = s.scope AND t.state < 2
WHERE s.agent IN (SELECT value FROM json_each(?1)) AND s.n0 + s.n1 > 0
    AND t.holder IS NOT NULL AND t.holder NOT IN ('asleep', 'aside') ORDER BY t.task LIMIT ?2;

-- name: offered
-- Tasks that were offered to ?1, which has not accepted them yet. Only for processes that share the file with others.
SELECT t.id FROM scopes s CROSS JOIN tasks t INDEXED BY tasks_by_scope ON t.scope = s.scope AND t.state < 4
WHERE s.n0 + s.n1 + s.n2 + s.n3 > 0 AND t.holder = ?1 AND t.offered_until_ms IS NOT NULL;

-- name: orphans
-- The next ?2 parents, after the one with the id ?1, of delegated tasks that have not ended, each with the heads of these
-- tasks if it has ended or is gone, else with null. One entry of the index is read for each parent.
WITH RECURSIVE parents (parent, place) AS (
    SELECT (SELECT t.parent FROM tasks t INDEXED BY tasks_by_parent
        WHERE t.parent IS NOT NULL AND t.state < 4 AND t.parent > ?1 ORDER BY t.parent LIMIT 1), 1
    UNION ALL
    SELECT (SELECT t.parent FROM tasks t INDEXED BY tasks_by_parent
        WHERE t.parent IS NOT NULL AND t.state < 4 AND t.parent > p.parent ORDER BY t.parent LIMIT 1), p.place + 1
    FROM parents p WHERE p.parent IS NOT NULL AND p.place < ?2
)
SELECT p.parent, c.head, c.task FROM parents p LEFT JOIN tasks t ON t.id = p.parent
LEFT JOIN tasks c INDEXED BY tasks_by_parent ON c.parent = p.parent AND c.state < 4 AND coalesce(t.state, 4) > 3
WHERE p.parent IS NOT NULL ORDER BY p.place, c.task;

-- name: oldest_calls
-- The oldest calls, and when they expire.
SELECT call, expires_ms FROM calls ORDER BY call LIMIT ?1;

-- name: sweep_tasks
-- Tasks of one kind (0 interrupted, 1 terminal, 2 terminal without log) with a status older than a time, oldest first. One that
-- was delegated by a task that has not ended is left: that one may not have read its outcome yet.
SELECT t.id, t.task, t.scope, t.context, t.state, t.seq FROM tasks t INDEXED BY tasks_aging
WHERE t.state > 1 AND (t.state > 3) + t.pruned = ?1 AND t.status_ms < ?2
    AND (t.parent IS NULL OR NOT EXISTS (SELECT 1 FROM tasks p WHERE p.id = t.parent AND p.state < 4))
ORDER BY t.status_ms LIMIT ?3;

-- name: delete_task
-- Delete a task, unless it has changed since the sweep found it. Returns the head of one that has not ended.
DELETE FROM tasks WHERE task = ?1 AND state = ?2 AND seq = ?3 RETURNING pushed, CASE WHEN state < 4 THEN head END;

-- name: prune_task
-- Mark that the log of a terminal task is deleted.
UPDATE tasks SET pruned = 1 WHERE task = ?1 AND state > 3 AND pruned = 0;

-- name: prune_pages
-- Delete the log of a terminal task. A task without a snapshot keeps its log, since it could not be read otherwise.
DELETE FROM pages WHERE task = ?1 AND EXISTS (SELECT 1 FROM snapshots s, tasks t WHERE s.task = ?1 AND t.task = ?1 AND t.pruned);

-- name: delete_pages
-- Delete the logs of tasks, by a JSON array of their numbers.
DELETE FROM pages WHERE task IN (SELECT value FROM json_each(?1));

-- name: delete_snapshots
-- Delete the snapshots of tasks.
DELETE FROM snapshots WHERE task IN (SELECT value FROM json_each(?1));

-- name: delete_files
-- Delete the files of tasks.
DELETE FROM files WHERE task IN (SELECT value FROM json_each(?1));

-- name: delete_acts
-- Delete the acts of tasks.
DELETE FROM state_acts WHERE task IN (SELECT value FROM json_each(?1));

-- name: calls_of_tasks
-- The remembered calls of tasks, by a JSON array of ids. It reads all calls: only operators ask, and calls expire within minutes.
SELECT call FROM calls WHERE task_id IN (SELECT value FROM json_each(?1));

-- name: delete_calls_of_tasks
-- Delete calls, by a JSON array of their numbers, unless they belong to another task by now than those of a JSON array of ids.
DELETE FROM calls WHERE call IN (SELECT value FROM json_each(?1)) AND task_id IN (SELECT value FROM json_each(?2));

-- name: delete_calls
-- Delete calls, by a JSON array of their numbers, that are still expired.
DELETE FROM calls WHERE call IN (SELECT value FROM json_each(?1)) AND expires_ms <= ?2;
