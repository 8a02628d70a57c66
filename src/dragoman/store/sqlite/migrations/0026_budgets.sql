-- Budgets: the accounts of their ledger, and what the tasks of agents have cost lately.

-- An account is one budget's, for one period and one member. `owner` is the principal that it belongs to alone, or empty.
-- Amounts are whole numbers of any size, as text. `most` is the limit by which parts of it were granted last.
CREATE TABLE budget_accounts (
    account TEXT PRIMARY KEY,
    ends_ms INTEGER,
    expires_ms INTEGER,
    warned INTEGER NOT NULL,
    told INTEGER NOT NULL,
    budget TEXT NOT NULL,
    member TEXT NOT NULL,
    owner TEXT NOT NULL,
    unit TEXT NOT NULL,
    most TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_accounts_by_expiry ON budget_accounts (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX budget_accounts_by_owner ON budget_accounts (owner) WHERE owner <> '';

-- What is used and reserved of an account is the sum of its rows. `replica` and `lane` are empty and 0 here, and nothing is
-- granted; in PostgreSQL each replica books in rows of its own, and a copy of a store keeps the rows as they are.
CREATE TABLE budget_balances (
    account TEXT NOT NULL,
    replica TEXT NOT NULL,
    lane INTEGER NOT NULL,
    granted TEXT NOT NULL,
    most TEXT,
    used TEXT NOT NULL,
    reserved TEXT NOT NULL,
    PRIMARY KEY (account, replica, lane)
) STRICT, WITHOUT ROWID;

-- The latest costs come first, as a JSON array of texts.
CREATE TABLE budget_lessons (
    agent TEXT NOT NULL,
    unit TEXT NOT NULL,
    costs TEXT NOT NULL,
    PRIMARY KEY (agent, unit)
) STRICT, WITHOUT ROWID;
