-- serves: 1

-- When a replica that served the agent was last alive, for agents that one has served and does no longer. Tasks of agents that
-- nobody serves wait for a while from then on.
CREATE TABLE dragoman.agents_seen (
    agent text COLLATE "C" PRIMARY KEY,
    seen timestamptz NOT NULL
);
