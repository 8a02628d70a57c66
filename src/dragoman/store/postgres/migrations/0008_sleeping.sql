-- Tasks that sleep: they are leased to the holder 'asleep' until they wake, and the index of offers finds those that do. Earlier
-- programs would take such a task for one of a dead replica, and run it at once: they may not run beside this step.
COMMENT ON COLUMN dragoman.tasks.offered_until_ms IS 'when an offer of the lease runs out, or a task wakes that sleeps';
