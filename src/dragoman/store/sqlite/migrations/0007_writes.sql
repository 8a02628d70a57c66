-- Writes that are repeated because nobody knows whether they were committed.

-- `write` is the id that the writer gave, null in older files. `epoch` is that of the task after the write. Both are what the
-- repeated write is answered with.
ALTER TABLE pages ADD COLUMN write INTEGER;
ALTER TABLE pages ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
