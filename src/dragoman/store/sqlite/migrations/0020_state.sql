-- What agents keep beside their tasks.

-- A space is a scope with a number: see `store.state.StateScope`. One that has ended is nobody's any more; its entries are
-- deleted a few at a time. `revision` is the version that the last write gave. `entries` and `bytes` say what there is.
CREATE TABLE state_spaces (
    space INTEGER PRIMARY KEY,
    ended INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    context TEXT NOT NULL,
    kind TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX state_spaces_by_scope ON state_spaces (agent, owner, context, kind) WHERE ended = 0;
CREATE INDEX state_spaces_by_owner ON state_spaces (owner) WHERE ended = 0;
CREATE INDEX state_spaces_ended ON state_spaces (ended) WHERE ended = 1;

-- Values are in the rows, so that the index alone is read for keys: SQLite keeps large ones on pages of their own.
CREATE TABLE state_entries (
    entry INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    version INTEGER NOT NULL,
    expires_ms INTEGER,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (space, key)
) STRICT;
CREATE INDEX state_entries_by_expiry ON state_entries (expires_ms) WHERE expires_ms IS NOT NULL;

-- The writes that tasks make once, however often they are told.
CREATE TABLE state_acts (
    task INTEGER NOT NULL,
    act TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (task, act)
) STRICT, WITHOUT ROWID;
