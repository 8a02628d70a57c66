-- What operators set while servers run.

-- A row is one version of the record `id` of a kind. `body` null: this version removed the record. The newest versions are
-- kept. `revision` grows by one with each write, whatever its kind.
CREATE TABLE operator_records (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    body BLOB,
    changed_ms INTEGER NOT NULL,
    revision INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (kind, id, version)
) STRICT, WITHOUT ROWID;
