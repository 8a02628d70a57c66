-- Hosts that operators have paused: deliveries to them wait.

-- `name` covers a host, `host:port`, or `scheme://host:port`. `paused_by` is the principal.
CREATE TABLE paused_hosts (
    name TEXT PRIMARY KEY,
    paused_ms INTEGER NOT NULL,
    paused_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
