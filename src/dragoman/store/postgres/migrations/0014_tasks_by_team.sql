-- serves: 8

-- The tasks of a team in the order in which they were made.
CREATE INDEX CONCURRENTLY tasks_by_team ON dragoman.tasks (team, task) WHERE team IS NOT NULL;
