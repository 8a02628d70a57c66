-- Small values with an expiry: leases of workers, sessions, rates, jobs.

-- An entry has a `value` and a `version`; a bucket the time in microseconds at which it is full, as `amount`; a count the
-- `counter` that it belongs to, and the `amount`.
CREATE TABLE shared (
    key TEXT NOT NULL,
    counter TEXT NOT NULL,
    value BLOB,
    version INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (key, counter)
) STRICT, WITHOUT ROWID;

CREATE INDEX shared_by_expiry ON shared (expires_ms);
