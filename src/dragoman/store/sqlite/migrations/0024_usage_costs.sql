-- What prices need of usage: tokens that a cache had, calls whose tokens nobody knows, and the time that tasks waited.

ALTER TABLE usage_days ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_days ADD COLUMN uncertain INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_days ADD COLUMN waited_ms INTEGER NOT NULL DEFAULT 0;
