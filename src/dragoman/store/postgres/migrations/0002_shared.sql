-- Small values with an expiry: leases of workers, sessions, rates, jobs.

-- An entry has a `value` and a `version`; a bucket the time in microseconds at which it is full, as `amount`; a count the
-- `counter` that it belongs to, and the `amount`. Times are those of the database. There is no index on `expires_ms`, so that
-- an update stays within its page.
CREATE TABLE dragoman.shared (
    key text COLLATE "C" NOT NULL,
    counter text COLLATE "C" NOT NULL,
    value bytea,
    version bigint NOT NULL,
    amount bigint NOT NULL,
    expires_ms bigint NOT NULL,
    PRIMARY KEY (key, counter)
) WITH (fillfactor = 70);
