-- Tasks, their logs and snapshots, the files in them, the calls that made them, and counters for totals.
-- States are numbered by their place in TaskState: 0 submitted, 1 working, 2 and 3 interrupted, 4 to 7 terminal.

-- A scope is an owner with an agent. n0 to n7 count its tasks by state.
CREATE TABLE scopes (
    scope INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    n0 INTEGER NOT NULL DEFAULT 0, n1 INTEGER NOT NULL DEFAULT 0, n2 INTEGER NOT NULL DEFAULT 0, n3 INTEGER NOT NULL DEFAULT 0,
    n4 INTEGER NOT NULL DEFAULT 0, n5 INTEGER NOT NULL DEFAULT 0, n6 INTEGER NOT NULL DEFAULT 0, n7 INTEGER NOT NULL DEFAULT 0,
    UNIQUE (owner, agent)
) STRICT;

-- The same counters for each context of a scope.
CREATE TABLE contexts (
    scope INTEGER NOT NULL,
    context TEXT NOT NULL,
    n0 INTEGER NOT NULL, n1 INTEGER NOT NULL, n2 INTEGER NOT NULL, n3 INTEGER NOT NULL,
    n4 INTEGER NOT NULL, n5 INTEGER NOT NULL, n6 INTEGER NOT NULL, n7 INTEGER NOT NULL,
    PRIMARY KEY (scope, context)
) STRICT, WITHOUT ROWID;

-- One row a task: the columns that change with every append, and the head, which never changes.
-- `log_bytes` counts since the snapshot; `files` says whether the table `files` holds any; `pruned` that the log is gone.
CREATE TABLE tasks (
    task INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    scope INTEGER NOT NULL,
    context TEXT NOT NULL,
    state INTEGER NOT NULL,
    status_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    holder TEXT,
    cancel INTEGER NOT NULL DEFAULT 0,
    log_bytes INTEGER NOT NULL,
    files INTEGER NOT NULL DEFAULT 0,
    pruned INTEGER NOT NULL DEFAULT 0,
    head BLOB NOT NULL
) STRICT;

-- Pages of a list: up to eight ranges, one a state, merged; with and without a context.
CREATE INDEX tasks_by_scope ON tasks (scope, state, status_ms, id);
CREATE INDEX tasks_by_context ON tasks (scope, context, state, status_ms, id);

-- Tasks that expire, by kind: 0 interrupted, 1 terminal, 2 terminal and without its log.
CREATE INDEX tasks_aging ON tasks ((state > 3) + pruned, status_ms) WHERE state > 1;

-- The events that one commit added to one task.
CREATE TABLE pages (
    task INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    events BLOB NOT NULL,
    PRIMARY KEY (task, first_seq)
) STRICT, WITHOUT ROWID;

-- The record as of `seq`, without the head. It is not in the task's row, whose small columns change often.
CREATE TABLE snapshots (
    task INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    record BLOB NOT NULL
) STRICT;

-- The raw bytes of file parts, once for each task. `digest` finds equal ones; pages and snapshots refer to `file`.
CREATE TABLE files (
    file INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    digest BLOB NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE INDEX files_by_task ON files (task, digest);

-- Calls by their dedupe key. Rows are nearly in the order of their expiry: the sweep takes them from the front.
CREATE TABLE calls (
    call INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    digest BLOB NOT NULL,
    task_id TEXT,
    seq INTEGER NOT NULL,
    answer BLOB,
    expires_ms INTEGER NOT NULL
) STRICT;

-- The probe writes here.
CREATE TABLE probes (
    probe INTEGER PRIMARY KEY,
    written_ms INTEGER NOT NULL
) STRICT;
