-- Budgets: the accounts of their ledger, and what the tasks of agents have cost lately.
-- serves: 1

-- An account is one budget's, for one period and one member. `owner` is the principal that it belongs to alone, or empty.
-- Amounts are whole numbers of any size, as text. `most` is the limit by which parts of it were granted last. Whoever grants
-- holds the row.
CREATE TABLE dragoman.budget_accounts (
    ends_ms bigint,
    expires_ms bigint,
    warned integer NOT NULL,
    told integer NOT NULL,
    account text COLLATE "C" PRIMARY KEY,
    budget text COLLATE "C" NOT NULL,
    member text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    unit text COLLATE "C" NOT NULL,
    most text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX budget_accounts_by_expiry ON dragoman.budget_accounts (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX budget_accounts_by_owner ON dragoman.budget_accounts (owner) WHERE owner <> '';

-- What is used and reserved of an account is the sum of its rows. Each lane of a replica books in a row of its own, so that no
-- batch waits for another one: as far as it goes, `granted` is the lane's, and the sum over all lanes keeps to the limit `most`.
-- A row changes with every batch: its page has room for that, and no index has a column that changes.
CREATE TABLE dragoman.budget_balances (
    lane smallint NOT NULL,
    account text COLLATE "C" NOT NULL,
    replica text COLLATE "C" NOT NULL,
    granted text NOT NULL,
    most text,
    used text NOT NULL,
    reserved text NOT NULL,
    PRIMARY KEY (account, replica, lane)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- The latest costs come first.
CREATE TABLE dragoman.budget_lessons (
    agent text COLLATE "C" NOT NULL,
    unit text COLLATE "C" NOT NULL,
    costs text[] NOT NULL,
    PRIMARY KEY (agent, unit)
) WITH (fillfactor = 50);
