-- The rules by which keys were made.
-- serves: 1

-- `rules` is 0 for keys from before there were any.
ALTER TABLE dragoman.keys ADD COLUMN rules bigint NOT NULL DEFAULT 0;
