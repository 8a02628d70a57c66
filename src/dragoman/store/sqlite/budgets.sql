-- The writing of the accounts of budgets.

-- name: find_balance
-- The used and the reserved part of an account, by its rows: all but one are those of a copied store.
SELECT replica, used, reserved FROM budget_balances WHERE account = ?1;

-- name: open_account
-- Open an account, unless it is open. Its name, its end and what it belongs to never change.
INSERT INTO budget_accounts (account, ends_ms, expires_ms, budget, member, owner, unit, warned, told)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)
ON CONFLICT (account) DO UPDATE SET expires_ms = max(expires_ms, excluded.expires_ms);

-- name: book
-- Put the balance of an account.
INSERT INTO budget_balances (account, replica, lane, granted, used, reserved) VALUES (?1, '', 0, '0', ?2, ?3)
ON CONFLICT (account, replica, lane) DO UPDATE SET used = excluded.used, reserved = excluded.reserved;

-- name: put_lessons
-- The latest costs of an agent's tasks in a unit.
INSERT OR REPLACE INTO budget_lessons (agent, unit, costs) VALUES (?1, ?2, ?3);
