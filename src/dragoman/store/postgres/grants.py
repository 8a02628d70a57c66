"""Grants: the parts of accounts that the lanes of replicas may claim by themselves.

    plenty left                a lane books in its own row alone, and waits for nobody
    its grant is used up       whoever holds the account grants the lane another part of what is free
    too little is free         the parts that others have not used are taken back first: the account is tight

Invariant: what is granted of an account to all lanes together keeps to its limit, and what a lane has used and reserved
keeps to its grant, but for tasks that cost more than they had reserved. So no claim goes beyond the limit, and none is
refused while anything is left.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.store.api import OverBudget
from dragoman.store.budgets import BudgetClaim, Charge
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.statements import to_text
from dragoman.store.quotas import over_budget

PART = 8
"""A lane is granted at most one such part of what is free."""

AHEAD = 32
"""A lane is granted at most so many times what its batch claims, so that few batches need another grant."""

REMEMBERED = 10_000
"""How many accounts are known to be open, and how many to be tight."""

Row = tuple[str, int]
"""The replica and the lane of a row."""


class AccountPart(Struct):
    """The row of a lane: what it is granted, and what it has used and reserved of it, which others may have settled."""

    granted: int = 0
    taken: int = 0

    @property
    def bound(self) -> int:
        """How much the lane may take at most. It takes more than its grant if tasks cost more than they reserve."""
        return max(self.granted, self.taken)


class HeldAccount(Struct):
    """An account that the transaction of the lane `own` holds: its limit, the parts of all lanes, and whether it is
    tight. The ends in the batch cost `exceeded` more than they had reserved, and its new tasks claim `claimed`.

    `others` is how much other lanes may take: summed up when the parts are read, since every claim asks for it.
    """

    own: Row
    limit: int
    parts: dict[Row, AccountPart]
    others: int = 0
    exceeded: int = 0
    claimed: int = 0
    tight: bool = False

    @property
    def part(self) -> AccountPart:
        """The part of the lane."""
        return self.parts[self.own]

    @property
    def needed(self) -> int:
        """How much the lane takes itself, with its batch."""
        return self.part.taken + self.exceeded + self.claimed

    @property
    def free(self) -> int:
        """How much is left for further claims of the lane: not what others may take, nor what it takes itself."""
        return self.limit - self.others - self.needed

    def sum_up(self) -> None:
        """Sum up the parts of the other lanes."""
        self.others = sum(part.bound for row, part in self.parts.items() if row != self.own)

    def take_back(self) -> None:
        """Leave each lane no more than it has taken."""
        self.tight = True
        for part in self.parts.values():
            part.granted = part.taken
        self.sum_up()


class HeldAccounts:
    """The accounts of which the new tasks of a batch claim, held by its transaction for the lane `own`."""

    def __init__(self, own: Row, accounts: Mapping[str, HeldAccount]) -> None:
        self._own = own
        self._accounts = accounts

    def refusal(self, claims: Iterable[BudgetClaim]) -> OverBudget | None:
        """Why a task that makes these claims may not be made; None if it may."""
        return over_budget(claims, lambda name: self._accounts[name].limit - self._accounts[name].free)

    def claim(self, claims: Iterable[BudgetClaim]) -> None:
        """Count the claims of a task that is made."""
        for claim in claims:
            if claim.account in self._accounts:
                self._accounts[claim.account].claimed += claim.amount

    def left(self) -> dict[tuple[Row, str], int]:
        """How much is left of the parts of this lane, before the batch is booked."""
        return {(self._own, name): held.part.granted - held.part.taken for name, held in self._accounts.items()}

    def grants(self) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        """The rows with the grants after the claims that were counted, and the accounts with their limits."""
        rows: list[dict[str, object]] = []
        limits: list[dict[str, object]] = []
        for name, account in self._accounts.items():
            own, needed = account.part, account.needed
            if account.tight:
                own.granted = needed
            elif needed > own.granted:
                own.granted = needed + max(0, min(account.claimed * AHEAD, account.free // PART))
            changed = account.parts.items() if account.tight else ((self._own, own),)
            for (replica, lane), part in changed:
                granted, most = str(part.granted), str(account.limit)
                rows.append(
                    {"account": to_text(name), "replica": replica, "lane": lane, "granted": granted, "most": most}
                )
            limits.append({"account": to_text(name), "most": str(account.limit)})
        return rows, limits


class Grants:
    """Grants lanes of this process parts of accounts, in transactions under way, and knows about what is left of them.

    The statement that books checks it: somebody may have taken a part back.
    """

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._open: set[str] = set()
        self._tight: set[str] = set()
        self._left: dict[tuple[Row, str], int] = {}
        """How much is left of the parts that the lanes of this process have rows for, by row and account."""

    def forget(self) -> None:
        """Forget what is known: the database may have another history."""
        self._open.clear()
        self._tight.clear()
        self._left.clear()

    def knows(self, claims: Iterable[BudgetClaim]) -> bool:
        """Whether the accounts of claims are open, and not tight."""
        return all(claim.account in self._open and claim.account not in self._tight for claim in claims)

    def suffice(self, own: Row, claims: Iterable[BudgetClaim], charges: Iterable[Charge]) -> bool:
        """Whether a batch can be booked at once: its lane has rows for it, and enough left for the claims."""
        left, claimed = self._left, Counter[str]()
        for claim in claims:
            if claim.account in self._tight or (own, claim.account) not in left:
                return False
            if claim.limit is not None:
                claimed[claim.account] += claim.amount
        if any(left[own, account] < amount for account, amount in claimed.items()):
            return False
        return all((own, charge.account) in left for charge in charges)

    def note(self, own: Row, claims: Iterable[BudgetClaim], charges: Iterable[Charge]) -> None:
        """Take note of a batch that a lane books."""
        left = self._left
        for claim in claims:
            left[own, claim.account] = left.get((own, claim.account), 0) - claim.amount
        for charge in charges:
            left[own, charge.account] = left.get((own, charge.account), 0) + charge.released - charge.used

    async def add_rows(self, connection: DatabaseConnection, own: Row, accounts: Iterable[str]) -> None:
        """Make the rows of a lane for accounts that a batch books in."""
        missing = sorted({to_text(account) for account in accounts if (own, account) not in self._left})
        if missing:
            await connection.execute(self._sql["add_balances"], missing, *own)

    async def hold(
        self,
        connection: DatabaseConnection,
        own: Row,
        claims: Sequence[BudgetClaim],
        charges: Iterable[Charge],
    ) -> HeldAccounts:
        """Open the accounts of claims, and keep everybody else from granting parts of them."""
        by_name = {claim.account: claim for claim in claims}
        if not by_name:
            return HeldAccounts(own, {})
        names = {to_text(name): name for name in by_name}
        opened = await connection.fetch(
            self._sql["open_accounts"], _json([_account(each) for each in by_name.values()])
        )
        known_limits = {names[name]: most for name, most in opened}
        limits = {claim.account: claim.limit for claim in claims if claim.limit is not None}
        accounts = {name: HeldAccount(own, limit, {own: AccountPart()}) for name, limit in limits.items()}
        for charge in charges:
            if charge.account in accounts:
                accounts[charge.account].exceeded += max(0, charge.used - charge.released)
        await self._read(connection, "read_balances", names, accounts)
        wanted: Counter[str] = Counter()
        for claim in claims:
            wanted[claim.account] += claim.amount
        tight: dict[str, HeldAccount] = {}
        for name, account in accounts.items():
            changed = known_limits[name] not in (None, str(account.limit))
            if changed or account.free - wanted[name] < wanted[name] * PART:
                tight[name] = account
        if tight:
            await self._read(connection, "lock_balances", names, tight)
            for account in tight.values():
                account.take_back()
        self._remember(by_name, tight)
        return HeldAccounts(own, accounts)

    async def _read(
        self,
        connection: DatabaseConnection,
        statement: str,
        names: Mapping[str, str],
        accounts: Mapping[str, HeldAccount],
    ) -> None:
        rows: Sequence[Any] = await connection.fetch(self._sql[statement], sorted(map(to_text, accounts)))
        for name, replica, lane, granted, used, reserved in rows:
            accounts[names[name]].parts[replica, lane] = AccountPart(int(granted), int(used) + int(reserved))
        for account in accounts.values():
            account.sum_up()

    async def grant(self, connection: DatabaseConnection, held: HeldAccounts) -> None:
        """Write what lanes are granted, so that this one may make the claims that were counted."""
        rows, limits = held.grants()
        self._left.update(held.left())
        if rows:
            await connection.execute(self._sql["grant_balances"], _json(rows))
            await connection.execute(self._sql["limit_accounts"], _json(limits))

    def _remember(self, opened: Iterable[str], tight: Iterable[str]) -> None:
        if max(len(self._open), len(self._tight)) > REMEMBERED:
            self.forget()
        self._open.update(opened)
        self._tight.difference_update(opened)
        self._tight.update(tight)


def _account(claim: BudgetClaim) -> dict[str, object]:
    """The facts of an account, as its first claim says them."""
    return {
        "account": to_text(claim.account),
        "budget": claim.budget,
        "member": to_text(claim.member),
        "owner": to_text(claim.owner),
        "unit": claim.reservation.unit,
        "ends_ms": claim.ends_ms,
        "expires_ms": claim.expires_ms,
    }


def _json(rows: Sequence[Mapping[str, object]]) -> str:
    return msgspec.json.encode(rows).decode()
