-- Teams of callers.
-- serves: 8

-- The team of a key's caller; empty for none.
ALTER TABLE dragoman.keys ADD COLUMN team text NOT NULL DEFAULT '';

-- The team in which a task was made; null for none. It repeats what the head says.
ALTER TABLE dragoman.tasks ADD COLUMN team text COLLATE "C";
