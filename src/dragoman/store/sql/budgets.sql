-- The statements that read, warn of and sweep the accounts of budgets. Each driver books in its own way.

-- name: budget_accounts
-- The balances of those of the accounts $1 that are open, in the order of their names.
SELECT a.account, a.budget, a.member, a.owner, a.unit, a.ends_ms, a.warned, a.told, b.used, b.reserved
FROM dragoman.budget_accounts a LEFT JOIN dragoman.budget_balances b ON b.account = a.account
WHERE a.account = ANY ($1::text[]) ORDER BY a.account;

-- name: current_budgets
-- The balances of at most $3 accounts behind the account $2 whose period has not ended at $1, in the order of their names.
SELECT a.account, a.budget, a.member, a.owner, a.unit, a.ends_ms, a.warned, a.told, b.used, b.reserved
FROM (
    SELECT * FROM dragoman.budget_accounts c
    WHERE c.account > $2 AND (c.ends_ms IS NULL OR c.ends_ms > $1) AND c.budget <> '' ORDER BY c.account LIMIT $3
) a LEFT JOIN dragoman.budget_balances b ON b.account = a.account ORDER BY a.account;

-- name: budget_lessons
-- The latest costs of an agent's tasks in a unit.
SELECT costs FROM dragoman.budget_lessons WHERE agent = $1 AND unit = $2;

-- name: warn_budget
-- Note that operators are warned of a threshold of an account, unless they have been.
UPDATE dragoman.budget_accounts SET warned = $2 WHERE account = $1 AND warned < $2 RETURNING account;

-- name: tell_budget
-- Note that the operator's webhook has been told of a threshold of an account.
UPDATE dragoman.budget_accounts SET told = $2 WHERE account = $1 AND told < $2 RETURNING account;

-- name: old_budgets
-- At most $2 accounts that had expired at $1, and of which nothing is reserved, those that expired first.
SELECT a.account FROM dragoman.budget_accounts a WHERE a.expires_ms <= $1
    AND coalesce((SELECT sum(b.reserved::numeric) FROM dragoman.budget_balances b WHERE b.account = a.account), 0) = 0
ORDER BY a.expires_ms LIMIT $2;

-- name: owned_budgets
-- The accounts that belong to the principal $1 alone, and of which nothing is reserved.
SELECT a.account FROM dragoman.budget_accounts a WHERE a.owner = $1 AND a.owner <> ''
    AND coalesce((SELECT sum(b.reserved::numeric) FROM dragoman.budget_balances b WHERE b.account = a.account), 0) = 0;

-- name: delete_budgets
-- Delete the accounts $1.
DELETE FROM dragoman.budget_accounts WHERE account = ANY ($1::text[]) RETURNING account;

-- name: delete_balances
-- Delete the balances of those of the accounts $1 that are gone.
DELETE FROM dragoman.budget_balances WHERE account = ANY ($1::text[])
    AND NOT EXISTS (SELECT 1 FROM dragoman.budget_accounts a WHERE a.account = budget_balances.account) RETURNING account;
