-- The replicas and their beats. Only the clock of the database counts. A replica that is dead is never alive again.

-- name: join
-- $5 is the version of the tables that the replica knows. One that they do not serve may not join.
INSERT INTO dragoman.replicas AS r (id, address, agents, beats_until, knows)
SELECT $1, $2, $3, clock_timestamp() + make_interval(secs => $4), $5
WHERE (SELECT serves FROM dragoman.schema_version) <= $5
ON CONFLICT (id) DO UPDATE
SET address = excluded.address, agents = excluded.agents, beats_until = excluded.beats_until
WHERE NOT r.dead AND r.beats_until > clock_timestamp()
RETURNING extract(epoch FROM clock_timestamp())::float8 * 1000;

-- name: tables_version
SELECT version, serves FROM dragoman.schema_version;

-- name: serve
-- Agents that are not among $2 were seen until now.
WITH served AS (
    SELECT id, agents FROM dragoman.replicas WHERE id = $1 AND NOT dead AND beats_until > clock_timestamp() FOR UPDATE
), seen AS (
    INSERT INTO dragoman.agents_seen AS s (agent, seen)
    SELECT agent, clock_timestamp() FROM served, unnest(agents) AS agent WHERE agent <> ALL ($2) ORDER BY agent
    ON CONFLICT (agent) DO UPDATE SET seen = greatest(s.seen, excluded.seen)
)
UPDATE dragoman.replicas r SET agents = $2 FROM served WHERE r.id = served.id;

-- name: leave
-- A replica that leaves before it has joined may not join any more either.
WITH seen AS (
    INSERT INTO dragoman.agents_seen AS s (agent, seen)
    SELECT agent, max(least(beats_until, clock_timestamp())) FROM dragoman.replicas, unnest(agents) AS agent
    WHERE id = ANY ($1::text[]) AND NOT dead GROUP BY agent ORDER BY agent
    ON CONFLICT (agent) DO UPDATE SET seen = greatest(s.seen, excluded.seen)
)
INSERT INTO dragoman.replicas (id, address, agents, beats_until, dead)
SELECT id, '', '{}', clock_timestamp(), true FROM unnest($1::text[]) AS id
ON CONFLICT (id) DO UPDATE SET dead = true;

-- name: beat
-- Renews the replicas $1, declares those of $3 dead, and says which were renewed, and what time it is.
WITH ended AS (
    UPDATE dragoman.replicas SET dead = true WHERE id = ANY ($3::text[]) AND NOT dead RETURNING agents, beats_until
), seen AS (
    INSERT INTO dragoman.agents_seen AS s (agent, seen)
    SELECT agent, max(least(beats_until, clock_timestamp())) FROM ended, unnest(agents) AS agent
    GROUP BY agent ORDER BY agent
    ON CONFLICT (agent) DO UPDATE SET seen = greatest(s.seen, excluded.seen)
), beaten AS (
    UPDATE dragoman.replicas SET beats_until = clock_timestamp() + make_interval(secs => $2)
    WHERE id = ANY ($1::text[]) AND NOT dead AND beats_until > clock_timestamp()
    RETURNING id
)
SELECT ARRAY(SELECT id FROM beaten), extract(epoch FROM clock_timestamp())::float8 * 1000;

-- name: bury
-- Declares those dead who have not beaten in time, and forgets who has been dead for a day. A row that is being renewed is
-- left alone, so that nobody is buried whose beat is under way. The webhook calls that the dead had in flight are due at $1;
-- a replica that has left may send its own until its last lease is over.
WITH silent AS (
    SELECT id FROM dragoman.replicas WHERE NOT dead AND beats_until <= clock_timestamp() FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM dragoman.replicas WHERE dead AND beats_until < clock_timestamp() - interval '1 day'
), buried AS (
    UPDATE dragoman.replicas r SET dead = true FROM silent s WHERE r.id = s.id AND r.beats_until <= clock_timestamp()
    RETURNING r.id, r.agents, r.beats_until
), seen AS (
    INSERT INTO dragoman.agents_seen AS s (agent, seen)
    SELECT agent, max(beats_until) FROM buried, unnest(agents) AS agent GROUP BY agent ORDER BY agent
    ON CONFLICT (agent) DO UPDATE SET seen = greatest(s.seen, excluded.seen)
), in_flight AS (
    SELECT c.config FROM dragoman.replicas r JOIN dragoman.push_configs c ON c.claimant = r.id
    WHERE r.beats_until <= clock_timestamp() AND (r.dead OR r.id IN (SELECT id FROM buried)) AND c.claimed IS NOT NULL
    ORDER BY c.config FOR NO KEY UPDATE OF c
), voided AS (
    UPDATE dragoman.push_configs c SET due_ms = $1, claimed = NULL, claimant = NULL
    FROM in_flight f WHERE c.config = f.config
)
SELECT id FROM buried;

-- name: alive
SELECT true FROM dragoman.replicas WHERE id = $1 AND NOT dead AND beats_until > clock_timestamp();

-- name: all
SELECT id, address, agents, (extract(epoch FROM started) * 1000)::bigint, (extract(epoch FROM beats_until) * 1000)::bigint
FROM dragoman.replicas WHERE NOT dead AND beats_until > clock_timestamp() ORDER BY started, id;

-- name: served_of_late
-- The agents that somebody alive serves, or that were served less than $1 seconds ago. A replica that has left counts to the end of
-- its last lease, because older programs do not note in agents_seen what it served.
SELECT s.agent FROM dragoman.agents_seen s WHERE s.seen > clock_timestamp() - make_interval(secs => $1)
UNION
SELECT unnest(r.agents) FROM dragoman.replicas r WHERE r.beats_until > clock_timestamp() - make_interval(secs => $1);
