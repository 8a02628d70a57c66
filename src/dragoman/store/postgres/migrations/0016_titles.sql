-- Titles of tasks.
-- serves: 8

-- The title that the agent, or else the caller, gave the task; null for none.
ALTER TABLE dragoman.tasks ADD COLUMN title text COLLATE "C";
