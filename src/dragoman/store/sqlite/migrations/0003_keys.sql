-- The keys of callers, the server's keys for signatures, and the audit trail.

-- `digest` is the SHA-256 of the whole key. `agents` and `scopes` are JSON arrays; null: all.
CREATE TABLE keys (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    agents TEXT,
    scopes TEXT,
    digest BLOB NOT NULL,
    made_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER
) STRICT;

-- Private keys of the server, as JSON (RFC 7517). The first one counts.
CREATE TABLE signing_keys (
    signing_key INTEGER PRIMARY KEY,
    kid TEXT NOT NULL UNIQUE,
    jwk BLOB NOT NULL,
    made_ms INTEGER NOT NULL
) STRICT;

-- The audit trail. Rows are in the order of their writing, nearly that of their times: the sweep takes them from the front.
CREATE TABLE audit (
    entry INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    principal TEXT NOT NULL,
    action TEXT NOT NULL,
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    allowed INTEGER NOT NULL,
    reason TEXT NOT NULL,
    peer TEXT NOT NULL,
    subject TEXT NOT NULL
) STRICT;

-- Refusals are queried most and are few. Other entries need no index and cost one write each.
CREATE INDEX audit_refused ON audit (entry) WHERE allowed = 0;
