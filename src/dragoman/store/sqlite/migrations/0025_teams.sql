-- Teams of callers.

-- The team of a key's caller; empty for none.
ALTER TABLE keys ADD COLUMN team TEXT NOT NULL DEFAULT '';

-- The team in which a task was made; null for none. It repeats what the head says.
ALTER TABLE tasks ADD COLUMN team TEXT;
CREATE INDEX tasks_by_team ON tasks (team, task) WHERE team IS NOT NULL;
