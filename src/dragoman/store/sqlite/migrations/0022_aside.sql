-- Tasks that are put aside until a replica has their code have a holder of their own, and do not count as sleeping.

DROP INDEX tasks_asleep;

CREATE INDEX tasks_asleep ON tasks (offered_until_ms, scope, state, status_ms, holder) WHERE holder IN ('asleep', 'aside');
