-- Keys that one person alone uses.
-- serves: 1

ALTER TABLE dragoman.keys ADD COLUMN one_person bigint NOT NULL DEFAULT 0;
