-- Delegated tasks by the task that delegated them, as long as they have not ended.

-- `parent` is the id of the task whose agent delegated this one, `deadline_ms` when that one stops waiting. Both repeat what
-- the head says; `parent_of` and `deadline_of` read it there.
ALTER TABLE tasks ADD COLUMN parent TEXT;
ALTER TABLE tasks ADD COLUMN deadline_ms INTEGER;
UPDATE tasks SET parent = parent_of(head), deadline_ms = deadline_of(head) WHERE instr(head, CAST('parent' AS BLOB)) > 0;
CREATE INDEX tasks_by_parent ON tasks (parent, deadline_ms) WHERE parent IS NOT NULL AND state < 4;
