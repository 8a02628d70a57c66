-- Appends without events that are repeated because nobody knows whether they were committed.
-- serves: 4

-- `bare_write` is the id of the task's last append without events, `bare_seq` and `bare_epoch` are what it is answered with.
ALTER TABLE dragoman.tasks ADD COLUMN bare_write bigint;
ALTER TABLE dragoman.tasks ADD COLUMN bare_seq bigint;
ALTER TABLE dragoman.tasks ADD COLUMN bare_epoch integer;
