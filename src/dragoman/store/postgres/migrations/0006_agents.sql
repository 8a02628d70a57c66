-- The agent of each task, so that those who look for work read only tasks of agents that they serve.
-- serves: 4

-- `agent` is that of the scope. It is null for tasks that ended before there was such a column, or that an earlier release made.
ALTER TABLE dragoman.tasks ADD COLUMN agent text COLLATE "C";
UPDATE dragoman.tasks t SET agent = s.agent FROM dragoman.scopes s WHERE s.scope = t.scope AND t.state < 4;

-- Tasks that somebody works on, or shall work on: by holder, null for those in the queue.
DROP INDEX dragoman.tasks_open;
CREATE INDEX tasks_open ON dragoman.tasks (holder, agent, task) WHERE state < 4 AND (state < 2 OR holder IS NOT NULL);

-- The few that somebody works on and that shall be canceled.
CREATE INDEX tasks_canceled ON dragoman.tasks (holder) WHERE cancel AND state < 4;
