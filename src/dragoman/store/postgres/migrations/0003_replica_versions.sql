-- serves: 1

-- `knows` is the version of the tables that the program of the replica knows; null: 1. A step that does not serve it is not
-- made while the replica is alive.
ALTER TABLE dragoman.replicas ADD COLUMN knows integer;
