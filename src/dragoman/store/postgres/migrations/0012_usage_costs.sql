-- What prices need of usage: tokens that a cache had, calls whose tokens nobody knows, and the time that tasks waited.
-- serves: 1

ALTER TABLE dragoman.usage_days ADD COLUMN cached_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN uncertain bigint NOT NULL DEFAULT 0, ADD COLUMN waited_ms bigint NOT NULL DEFAULT 0;
