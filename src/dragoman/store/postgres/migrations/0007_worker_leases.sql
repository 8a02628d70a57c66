-- The leases of workers. A task that a worker has is leased to the holder 'worker'; a row here says who that is. Earlier programs
-- kept these leases elsewhere, and would take such a task for one of a dead replica: they may not run beside this step.

-- How many leases of workers a task has had.
ALTER TABLE dragoman.tasks ADD COLUMN delivered integer NOT NULL DEFAULT 0;

-- `lease` is the lease as JSON (`store.worker_leases.WorkerLease`); what the statements look at is beside it. `reports` grows
-- with every word, and counts rather than that of the JSON, which a word leaves as it is. The lease runs until
-- `until_ms`, unless it is `over`; then it is known until that time. `due_ms` is when its worker has worked for too long, null
-- while its question is open, and without a deadline.
CREATE TABLE dragoman.worker_leases (
    task bigint PRIMARY KEY,
    until_ms bigint NOT NULL,
    due_ms bigint,
    deadline_ms bigint,
    version integer NOT NULL,
    reports integer NOT NULL,
    questions integer NOT NULL,
    over boolean NOT NULL DEFAULT false,
    agent text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    lease text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX worker_leases_by_end ON dragoman.worker_leases (until_ms);
CREATE INDEX worker_leases_by_agent ON dragoman.worker_leases (agent, task);
CREATE INDEX worker_leases_due ON dragoman.worker_leases (due_ms) WHERE due_ms IS NOT NULL;
