-- What principals have used.

-- The sums of the runs that ended in a day (counted since 1970, in UTC), by scope and model. `replica` and `lane` are empty
-- and 0 here; in PostgreSQL each replica adds to rows of its own, and a copy of a store keeps the rows as they are.
CREATE TABLE usage_days (
    day INTEGER NOT NULL,
    scope INTEGER NOT NULL,
    model TEXT NOT NULL,
    replica TEXT NOT NULL,
    lane INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    reported INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    total_tokens INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    PRIMARY KEY (day, scope, model, replica, lane)
) STRICT, WITHOUT ROWID;
