-- What operators look for among all tasks, without reading their logs.

-- `dialect` is that of the head, `text` the first 200 characters of the first message.
ALTER TABLE tasks ADD COLUMN dialect TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN text TEXT NOT NULL DEFAULT '';
UPDATE tasks SET dialect = dialect_of(head), text = coalesce(
    (SELECT text_of_page(p.events) FROM pages p WHERE p.task = tasks.task AND p.first_seq = 1),
    (SELECT text_of_record(s.record) FROM snapshots s WHERE s.task = tasks.task), '');
