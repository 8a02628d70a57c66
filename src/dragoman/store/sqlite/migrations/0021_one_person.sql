-- Keys that one person alone uses.

ALTER TABLE keys ADD COLUMN one_person INTEGER NOT NULL DEFAULT 0;
