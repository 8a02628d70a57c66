-- What operators set while servers run.
-- serves: 1

-- A row is one version of the record `id` of a kind. `body` null: this version removed the record. The newest versions are
-- kept. `revision` grows by one with each write, whatever its kind; that it is unique makes a write wait for the one before.
CREATE TABLE dragoman.operator_records (
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body bytea,
    changed_ms bigint NOT NULL,
    revision bigint NOT NULL UNIQUE,
    PRIMARY KEY (kind, id, version)
);
