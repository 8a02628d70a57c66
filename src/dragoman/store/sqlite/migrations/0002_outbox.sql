-- Webhook configurations and their deliveries, and how many tasks owners made in a day.

-- Whether a task has, or had, webhook configurations: a task without any needs no look-up.
ALTER TABLE tasks ADD COLUMN pushed INTEGER NOT NULL DEFAULT 0;

-- The hosts of webhooks, as scheme://host:port. `lane` is the health: 0 healthy, 1 unknown, 2 failing. `due_ms` is when the
-- first configuration of the host is due: it may be too early, never too late. It is null when none is due.
CREATE TABLE push_hosts (
    host INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL DEFAULT 1,
    due_ms INTEGER,
    name TEXT NOT NULL UNIQUE
) STRICT;
CREATE INDEX push_hosts_due ON push_hosts (lane, due_ms) WHERE due_ms IS NOT NULL;

-- A webhook of a task. `due_ms` is when its oldest pending delivery is due, or when its claim runs out; it is null when the
-- webhook has no pending delivery. `claimed` is the delivery in flight. `retries` says that the oldest one has failed before,
-- `stopped` that the webhook gets no more deliveries.
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

-- Pending deliveries in their order; a number is never used again. Those that are `dead` wait for the operator.
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

-- How many tasks an owner made in a day (counted since 1970), only for days with a quota.
CREATE TABLE quota_days (
    day INTEGER NOT NULL,
    owner TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (day, owner)
) STRICT, WITHOUT ROWID;
