-- How many leases of workers a task has had.

ALTER TABLE tasks ADD COLUMN delivered INTEGER NOT NULL DEFAULT 0;

-- The tasks that wait for somebody to take them.
CREATE INDEX tasks_queued ON tasks (scope, task) WHERE state < 2 AND holder IS NULL;
