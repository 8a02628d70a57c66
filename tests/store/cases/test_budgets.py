"""Budgets: what new tasks claim of accounts, and what those that end are charged.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from dragoman.model.task import Reservation, TaskState
from dragoman.store.api import Append, Appended, Dedupe, NewTask, OverBudget, Repeat, Store
from dragoman.store.budgets import BudgetAccount, BudgetClaim, charge_task
from dragoman.store.usage import DAY_MS
from tests.store.cases.bench import START_MS, Bench, ending, new_task

EURO = 10**18
TEAM = "research|EUR|2027-01|red"


def claim(account: str = TEAM, amount: int = EURO, limit: int | None = 5 * EURO, **more: object) -> BudgetClaim:
    learnt = bool(more.pop("learnt", False))
    held = Reservation(account, "EUR", str(amount), learnt=learnt)
    told = {"budget": "research", "member": "red", "ends_ms": START_MS + DAY_MS, "expires_ms": START_MS + 2 * DAY_MS}
    return BudgetClaim(reservation=held, limit=limit, **{**told, **more})  # type: ignore[arg-type]


def claiming(
    task_id: str, *claims: BudgetClaim, state: TaskState = TaskState.WORKING, holder: str = "h1", agent: str = "echo"
) -> NewTask:
    """A task that makes these claims."""
    new = new_task(task_id, state=state, holder=holder, agent=agent)
    head = replace(new.head, reservations=tuple(each.reservation for each in claims))
    return replace(new, head=head, claims=tuple(claims))


def charged(new: NewTask, cost: int | None = None) -> Append:
    """The end of a task that costs so much."""
    charges = charge_task(new.head.reservations, new.head.agent, {"EUR": cost})
    return replace(ending(new.head.id, 1), charges=charges)


def words(outcomes: Sequence[object]) -> list[str]:
    """The outcome of each: `yes`, or the account that has too little left."""
    found = []
    for outcome in outcomes:
        assert isinstance(outcome, Appended | OverBudget), outcome
        found.append(outcome.claim.account if isinstance(outcome, OverBudget) else "yes")
    return found


async def make(store: Store, *tasks: NewTask) -> list[str]:
    return words(await asyncio.gather(*map(store.create, tasks), return_exceptions=True))


async def balance(store: Store, account: str = TEAM) -> tuple[int, int]:
    """The used and the reserved part of an account."""
    (found,) = await store.budgets.accounts([account])
    return found.used, found.reserved


async def test_tasks_of_a_moment_get_what_is_left_and_no_more(bench: Bench) -> None:
    async with bench.store() as store:
        free = [new_task(f"f{n}", owner="bob") for n in range(3)]
        made = await make(store, *(claiming(f"t{n}", claim(), agent=f"a{n % 2}") for n in range(12)), *free)
        assert made == ["yes"] * 5 + [TEAM] * 7 + ["yes"] * 3
        assert [await store.load(f"t{n}") is not None for n in range(12)] == [True] * 5 + [False] * 7
        assert await balance(store) == (0, 5 * EURO)
        assert await make(store, claiming("more", claim(amount=1))) == [TEAM]
        assert await make(store, claiming("raised", claim(limit=6 * EURO))) == ["yes"]


async def test_the_end_of_a_task_charges_what_it_cost_once(bench: Bench) -> None:
    async with bench.store() as store:
        tasks = [claiming(f"t{n}", claim()) for n in range(3)]
        await make(store, *tasks)
        end = replace(charged(tasks[0], EURO // 2), write=7)
        await store.append(end)
        await store.append(end)
        await store.append(charged(tasks[1]))
        assert await balance(store) == (EURO // 2 + EURO, EURO)
        await store.append(charged(tasks[2], 4 * EURO))
        assert await balance(store) == (5 * EURO + EURO // 2, 0), "more than the limit: that is what it cost"
        assert await make(store, claiming("late", claim(amount=1))) == [TEAM]
    if not bench.durable:
        return
    async with bench.store("h2") as store:
        assert await balance(store) == (5 * EURO + EURO // 2, 0)
        assert await make(store, claiming("later", claim(amount=1))) == [TEAM]


async def test_an_end_makes_room_for_a_task_of_the_same_moment_or_the_next(bench: Bench) -> None:
    async with bench.store() as store:
        tasks = [claiming(f"t{n}", claim()) for n in range(5)]
        await make(store, *tasks)
        await asyncio.gather(store.append(charged(tasks[0], 0)), store.append(charged(tasks[1], EURO)))
        assert await make(store, claiming("next", claim()), claiming("over", claim())) == ["yes", TEAM]
        assert await balance(store) == (EURO, 4 * EURO)


async def test_a_task_claims_of_all_its_accounts_or_of_none(bench: Bench) -> None:
    async with bench.store() as store:
        narrow, wide = claim("narrow", limit=EURO), claim("wide")
        assert await make(store, claiming("t1", wide, narrow)) == ["yes"]
        assert await make(store, claiming("t2", wide, narrow), claiming("t3", wide)) == ["narrow", "yes"]
        assert await balance(store, "wide") == (0, 2 * EURO)
        assert await balance(store, "narrow") == (0, EURO)


async def test_a_claim_without_a_limit_is_never_refused(bench: Bench) -> None:
    async with bench.store() as store:
        assert await make(store, *(claiming(f"t{n}", claim(limit=None)) for n in range(9))) == ["yes"] * 9
        assert await balance(store) == (0, 9 * EURO)


async def test_a_first_claim_beyond_its_limit_reserves_nothing(bench: Bench) -> None:
    async with bench.store() as store:
        assert await make(store, claiming("t1", claim(amount=6 * EURO))) == [TEAM]
        assert [(one.used, one.reserved) for one in await store.budgets.accounts([TEAM])] in ([], [(0, 0)])
        assert await make(store, claiming("t2", claim(amount=5 * EURO))) == ["yes"]


async def test_a_lower_limit_counts_what_was_spent_under_a_higher_one(bench: Bench) -> None:
    async with bench.store() as store:
        wide = [claiming(f"t{n}", claim(limit=1000 * EURO)) for n in range(4)]
        assert await make(store, *wide) == ["yes"] * 4
        assert await make(store, claiming("low", claim()), claiming("over", claim())) == ["yes", TEAM]
        assert await make(store, claiming("high", claim(limit=1000 * EURO))) == ["yes"]
        assert await make(store, claiming("low again", claim())) == [TEAM]


async def test_claims_with_and_without_a_limit_meet_in_one_moment(bench: Bench) -> None:
    """A reload makes a budget soft while tasks are made."""
    async with bench.store() as store:
        bounds = (EURO, None, EURO, None)
        made = await make(store, *(claiming(f"t{n}", claim(limit=limit)) for n, limit in enumerate(bounds)))
        assert made == ["yes", "yes", TEAM, "yes"]
        assert await balance(store) == (0, 3 * EURO)


async def test_a_call_that_is_repeated_claims_once(bench: Bench) -> None:
    async with bench.store() as store:
        key = Dedupe(b"k", b"d", START_MS + 1000)
        new = replace(claiming("t1", claim(limit=EURO)), dedupe=key)
        await store.create(new)
        assert await store.create(new) == Repeat("t1", b"d", 1), "it is not refused either"
        both = await asyncio.gather(store.create(new), store.create(claiming("t2", claim(limit=2 * EURO))))
        assert [type(outcome) for outcome in both] == [Repeat, Appended]
        assert await balance(store) == (0, 2 * EURO)


async def test_a_task_that_is_deleted_while_it_waits_is_charged_what_it_reserved(bench: Bench) -> None:
    async with bench.store() as store:
        asks = claiming("asks", claim(), claim("other", limit=None), state=TaskState.INPUT_REQUIRED)
        ended = claiming("ended", claim())
        await make(store, replace(asks, holder=None), ended)
        await store.append(charged(ended, 0))
        while await store.sweep(START_MS + DAY_MS, DAY_MS // 2, -1, DAY_MS // 2):
            pass
        assert await store.load("asks") is await store.load("ended") is None
        assert (await balance(store), await balance(store, "other")) == ((EURO, 0), (EURO, 0))


async def test_the_dearest_of_the_latest_hundred_tasks_is_known(bench: Bench) -> None:
    async with bench.store() as store:
        assert await store.budgets.dearest("echo", "EUR") is None
        costs = [9 * EURO, 7, *range(99)]
        for n, cost in enumerate(costs):
            new = claiming(f"t{n}", claim(limit=None, learnt=True))
            await store.create(new)
            await store.append(charged(new, cost))
            if n == 0:
                assert await store.budgets.dearest("echo", "EUR") == 9 * EURO
        assert await store.budgets.dearest("echo", "EUR") == 98, "the first one is forgotten"
        assert await store.budgets.dearest("echo", "USD") is await store.budgets.dearest("poet", "EUR") is None


async def test_the_account_that_changed_is_told_by_its_very_name(bench: Bench) -> None:
    r"""A name has the backslashes of principals, such as `CORP\ann`, and those of JSON."""
    async with bench.store() as store:
        await make(store, claiming("t1", claim("a\\b\0")))
        (changed,) = store.budgets.take_changed()
        assert [one.account for one in await store.budgets.accounts([changed])] == ["a\\b\0"]


async def test_accounts_are_listed_warned_of_and_forgotten(bench: Bench) -> None:
    async with bench.store() as store:
        mine = claim("mine", owner="key:ann", member="c1", ends_ms=None, expires_ms=None)
        over = claim("over", ends_ms=START_MS, expires_ms=START_MS)
        hidden = claim("hidden", budget="", limit=None)
        tasks = [claiming(f"t{n}", each) for n, each in enumerate((claim(), mine, over, hidden))]
        await make(store, *tasks)
        assert store.budgets.take_changed() == {TEAM, "mine", "over", "hidden"}
        assert store.budgets.take_changed() == frozenset()
        listed = await store.budgets.current(START_MS, "", 10)
        assert [one.account for one in listed] == ["mine", TEAM]
        assert listed[0] == BudgetAccount(
            account="mine",
            budget="research",
            member="c1",
            owner="key:ann",
            unit="EUR",
            ends_ms=None,
            warned=0,
            told=0,
            used=0,
            reserved=EURO,
        )
        assert [one.account for one in await store.budgets.current(START_MS, "mine", 1)] == [TEAM]
        assert [await store.budgets.warn(TEAM, percent) for percent in (80, 80, 100, 80)] == [True, False, True, False]
        assert await store.budgets.sweep(START_MS + DAY_MS) == 0, "something of it is reserved"
        await store.append(charged(tasks[2], 1))
        assert await store.budgets.sweep(START_MS + DAY_MS) == 1
        assert await store.budgets.accounts(["over"]) == ()
        await store.append(charged(tasks[1], 1))
        while await store.principals.forget("key:ann"):
            pass
        assert await store.budgets.accounts(["mine"]) == ()
        assert await balance(store) == (0, EURO)


@pytest.mark.parametrize("callers", [4])
async def test_stores_that_share_accounts_admit_exactly_what_they_have(bench: Bench, callers: int) -> None:
    """Each of them batches its writes, and knows nothing of the others'."""
    if not bench.shared:
        return
    async with bench.store("h1") as one, bench.store("h2") as two, bench.store("h3") as three:
        stores = (one, two, three)

        async def call(number: int) -> int:
            store, made = stores[number % 3], 0
            for turn in range(12):
                new = claiming(f"t{number}-{turn}", claim(limit=40 * EURO), holder=f"h{number % 3 + 1}")
                (outcome,) = await asyncio.gather(store.create(new), return_exceptions=True)
                if isinstance(outcome, OverBudget):
                    continue
                assert isinstance(outcome, Appended), outcome
                made += 1
                if turn % 2:
                    await store.append(charged(new, EURO))
            return made

        made = await asyncio.gather(*map(call, range(3 * callers)))
        used, reserved = await balance(one)
        assert (sum(made), used + reserved) == (40, 40 * EURO)


async def test_an_account_that_was_deleted_begins_anew(bench: Bench) -> None:
    """The process that has booked in it before knows that, too."""
    async with bench.store() as store:
        own = claim("own", EURO, EURO, owner="key:ann")
        first = claiming("t1", own)
        await make(store, first)
        await store.append(charged(first, EURO))
        assert await make(store, claiming("t2", own)) == ["own"]
        await store.delete(["t1"])
        while await store.principals.forget("key:ann"):
            pass
        assert await make(store, claiming("t3", own)) == ["yes"]
        assert await balance(store, "own") == (0, EURO)
