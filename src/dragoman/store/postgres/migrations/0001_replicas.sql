-- The tables that replicas share beside tasks: who they are, small values with an expiry, the keys of callers and of the server, and
-- the audit trail.

-- A replica is alive until `beats_until`, by the clock of the database, unless it is `dead`. Its id is the holder of leases
-- and is never used again, so that the row stays for a while after its death. `address` and `agents` are what it says.
CREATE TABLE dragoman.replicas (
    id text PRIMARY KEY,
    address text NOT NULL,
    agents text[] NOT NULL,
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    beats_until timestamptz NOT NULL,
    dead boolean NOT NULL DEFAULT false
);

-- Leases of workers, sessions, rates, jobs. An entry has a `value` and a `version`; a bucket the time in microseconds at which
-- it is full, as `amount`; a count the `counter` that it belongs to, and the `amount`. Times are those of the database. There
-- is no index on `expires_ms`, so that an update stays within its page.
CREATE TABLE dragoman.shared (
    key text COLLATE "C" NOT NULL,
    counter text COLLATE "C" NOT NULL,
    value bytea,
    version bigint NOT NULL,
    amount bigint NOT NULL,
    expires_ms bigint NOT NULL,
    PRIMARY KEY (key, counter)
) WITH (fillfactor = 70);

-- `digest` is the SHA-256 of the whole key. `agents` and `scopes` null: all. `limits` is a JSON object; null: those of the settings.
CREATE TABLE dragoman.keys (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    name text NOT NULL,
    role text NOT NULL,
    agents text[],
    scopes text[],
    digest bytea NOT NULL,
    made_ms bigint NOT NULL,
    expires_ms bigint,
    revoked_ms bigint,
    limits text
);

-- The private key of the server, as JSON (RFC 7517). There is one row at most: the first one that is offered.
CREATE TABLE dragoman.signing_keys (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    kid text NOT NULL,
    jwk bytea NOT NULL,
    made_ms bigint NOT NULL
);

-- The audit trail. Rows are in the order of their writing, nearly that of their times: the sweep takes them from the front.
-- `xact` is the transaction that wrote the row: those of all transactions before the oldest one under way are visible.
CREATE TABLE dragoman.audit (
    entry bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    at_ms bigint NOT NULL,
    principal text NOT NULL,
    action text NOT NULL,
    agent text NOT NULL,
    task_id text NOT NULL,
    allowed boolean NOT NULL,
    reason text NOT NULL,
    peer text NOT NULL,
    subject text NOT NULL
);

-- Refusals are queried most and are few. Other entries need no index and cost one write each.
CREATE INDEX audit_refused ON dragoman.audit (entry) WHERE NOT allowed;

-- Administrative acts, whose names have a dot.
CREATE INDEX audit_acts ON dragoman.audit (xact) WHERE strpos(action, '.') > 0;
