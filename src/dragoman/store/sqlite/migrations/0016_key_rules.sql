-- The rules by which keys were made.

-- `rules` is 0 for keys from before there were any.
ALTER TABLE keys ADD COLUMN rules INTEGER NOT NULL DEFAULT 0;
