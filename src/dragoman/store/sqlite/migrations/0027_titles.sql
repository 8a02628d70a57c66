-- Titles of tasks.

-- The title that the agent, or else the caller, gave the task; null for none.
ALTER TABLE tasks ADD COLUMN title TEXT;
