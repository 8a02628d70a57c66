-- The tasks that sleep: they are leased to the holder 'asleep' until they wake.

CREATE INDEX tasks_asleep ON tasks (offered_until_ms, scope, state, status_ms) WHERE holder = 'asleep';
