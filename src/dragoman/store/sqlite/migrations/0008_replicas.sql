-- Several replicas on one store: suspended runs that one of them keeps, offers of a lease, and webhooks that others register.

-- `keeper` keeps the suspended run of a task. `offered_until_ms` is when an offer of the lease runs out; it is null once
-- something was written under the lease. `webhooks_version` counts the changes of the task's webhooks.
ALTER TABLE tasks ADD COLUMN keeper TEXT;
ALTER TABLE tasks ADD COLUMN offered_until_ms INTEGER;
ALTER TABLE tasks ADD COLUMN webhooks_version INTEGER NOT NULL DEFAULT 0;

-- `parent` is null for a detached task from now on, because it ends on its own.
UPDATE tasks SET parent = NULL WHERE parent IS NOT NULL AND detached(head);
