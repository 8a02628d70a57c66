"""Budgets: what new tasks reserve of the accounts of a ledger, and what tasks that end are charged.

Invariant: a task reserves in the transaction that makes it, and is charged in the one that ends or deletes it, once
each. Its reservations are part of its head, so that an account's reserved amount is the sum over the open tasks, and
nothing is lost with a process.

Amounts are whole numbers of any size. Those of money count 10^-30 of the currency: the cost of a run is a multiple of
that, since prices have at most 24 decimals for a million tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from dragoman.model.task import Reservation

LESSONS = 100
"""How many of the latest costs of an agent's tasks are remembered."""

UNKNOWN = 1
"""The amount that a task reserves if nobody knows what it costs: the least there is."""


class BudgetClaim(Struct, frozen=True, kw_only=True):
    """A reservation that a new task makes, unless its account would have more than `limit` used and reserved then.

    Without a `limit` it is never refused. The rest describes the account, which its first claim opens: the `budget` it
    belongs to, whose it is (`member`), the principal it belongs to alone (`owner`, or empty), when its period ends and
    when it may be forgotten. These are in milliseconds since the epoch; None: never.
    """

    reservation: Reservation
    limit: int | None
    budget: str
    member: str = ""
    owner: str = ""
    ends_ms: int | None = None
    expires_ms: int | None = None

    @property
    def account(self) -> str:
        """The name of the account."""
        return self.reservation.account

    @property
    def amount(self) -> int:
        """How much is reserved."""
        return int(self.reservation.amount)


class Charge(Struct, frozen=True):
    """The change of an account by the end of a task: `released` is reserved no longer, and `used` is used.

    With an `agent`, `used` is remembered as the latest cost of its tasks in that unit.
    """

    account: str
    unit: str
    released: int
    used: int
    agent: str = ""


class BudgetAccount(Struct, frozen=True, kw_only=True):
    """An account as it stands: see BudgetClaim for the names that both have.

    `warned` is the highest threshold, in percent of the limit, of which operators have been warned, and `told` the one
    of which their webhook has been told.
    """

    account: str
    budget: str
    member: str
    owner: str
    unit: str
    ends_ms: int | None
    warned: int
    told: int
    used: int
    reserved: int


class BudgetBook(Protocol):
    """The accounts in the store."""

    def take_changed(self) -> frozenset[str]:
        """Return the accounts that this process has changed since this was last called."""
        ...

    async def accounts(self, names: Sequence[str]) -> tuple[BudgetAccount, ...]:
        """Return those of the accounts that are open, in no particular order. Raises StoreError."""
        ...

    async def current(self, now_ms: int, after: str, limit: int) -> tuple[BudgetAccount, ...]:
        """Return the next accounts of budgets by name, whose period has not ended. Raises StoreError."""
        ...

    async def dearest(self, agent: str, unit: str) -> int | None:
        """Return the highest of the latest costs of an agent's tasks; None if none is known. Raises StoreError."""
        ...

    async def warn(self, account: str, threshold: int) -> bool:
        """Note that operators are warned of a threshold. Returns False if they were, of this or of a higher one.

        Raises StoreError.
        """
        ...

    async def note_told(self, account: str, threshold: int) -> None:
        """Note that the operator's webhook has been told of a threshold. Raises StoreError."""
        ...

    async def sweep(self, now_ms: int) -> int:
        """Delete some accounts that have expired and of which nothing is reserved. Returns how many.

        Raises StoreError.
        """
        ...


def charge_task(
    reservations: Sequence[Reservation], agent: str, costs: Mapping[str, int | None], *, completed: bool = False
) -> tuple[Charge, ...]:
    """Return what a task of `agent` that ends is charged, by its cost in each unit.

    A cost that is unknown (None, or not among `costs`) counts as much as was reserved for it, and nothing if it was
    unknown from the beginning. Later tasks learn nothing from it, unless the task has `completed`: then its agent says
    nothing of costs, and its next tasks need not wait for that. Nothing is learnt without an `agent`.
    """
    charges: list[Charge] = []
    taught: set[str] = set()
    for one in reservations:
        amount, cost = int(one.amount), costs.get(one.unit)
        blind = one.learnt and amount == UNKNOWN
        teaches = one.learnt and one.unit not in taught and (cost is not None or (completed and blind))
        if one.first:
            cost = 0
        elif cost is None:
            cost = 0 if blind else amount
        if teaches:
            taught.add(one.unit)
        charges.append(Charge(one.account, one.unit, amount, cost, agent if teaches else ""))
    return tuple(charges)
