-- Webhook configurations and what is owed to them, and how many tasks owners made in a day.

-- Whether a task has, or had, webhook configurations: one that has none costs no look.
ALTER TABLE tasks ADD COLUMN pushed INTEGER NOT NULL DEFAULT 0;

-- Where webhooks are, as scheme://host:port. `lane` is how it has done: 0 healthy, 1 unknown, 2 failing. `due_ms` is when the
-- first of its configurations is due: it may be too early, never too late; null: none is.
CREATE TABLE push_hosts (
    host INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL DEFAULT 1,
    due_ms INTEGER,
    name TEXT NOT NULL UNIQUE
) STRICT;
CREATE INDEX push_hosts_due ON push_hosts (lane, due_ms) WHERE due_ms IS NOT NULL;

-- A webhook of a task. `due_ms`: when the oldest that is owed to it goes out, or when its claim runs out; null: nothing is owed.
-- `claimed` is the delivery that is in flight. `retries`: the oldest has failed before. `stopped`: nothing is owed to it any more.
CREATE TABLE push_configs (
    config INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    host INTEGER NOT NULL,
    due_ms INTEGER,
    claimed INTEGER,
    retries INTEGER NOT NULL DEFAULT 0,
    stopped INTEGER NOT NULL DEFAULT 0,
    id TEXT NOT NULL,
    settings BLOB NOT NULL,
    UNIQUE (task, id)
) STRICT;
CREATE INDEX push_configs_due ON push_configs (host, due_ms, claimed);

-- What is owed, in its order; a number is never used again. `dead` ones wait for the operator.
CREATE TABLE deliveries (
    delivery INTEGER PRIMARY KEY AUTOINCREMENT,
    config INTEGER NOT NULL,
    dead INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    seq INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    id TEXT NOT NULL,
    traceparent TEXT,
    reason TEXT NOT NULL DEFAULT '',
    body BLOB NOT NULL
) STRICT;
CREATE INDEX deliveries_by_config ON deliveries (config, dead);
CREATE INDEX deliveries_dead ON deliveries (delivery) WHERE dead = 1;

-- How many tasks an owner made in a day (since 1970); only of days in which there was a quota.
CREATE TABLE quota_days (
    day INTEGER NOT NULL,
    owner TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (day, owner)
) STRICT, WITHOUT ROWID;
