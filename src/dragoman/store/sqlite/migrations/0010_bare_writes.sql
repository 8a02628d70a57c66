-- Appends without events that are repeated because nobody knows whether they were committed.

-- `bare_write` is the id of the task's last append without events, `bare_seq` and `bare_epoch` are what it is answered with.
ALTER TABLE tasks ADD COLUMN bare_write INTEGER;
ALTER TABLE tasks ADD COLUMN bare_seq INTEGER;
ALTER TABLE tasks ADD COLUMN bare_epoch INTEGER;
