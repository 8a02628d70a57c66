"""Budgets: what callers may spend, whatever becomes of their tasks."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.config import Config
from dragoman.config.budgets import Budget, Reserve, scale
from dragoman.config.prices import Price, Prices
from dragoman.engine.api import Delegation, DelegationFailed, Ended, Run
from dragoman.engine.spending import SpendingRules, account_name, period_at, spending_rules
from dragoman.model.errors import BudgetExhausted, TooManyRequests, Unavailable
from dragoman.model.message import Message, Part
from dragoman.model.principal import Principal, member_id
from dragoman.model.task import Record, Reservation, TaskState, Usage
from dragoman.store.budgets import UNKNOWN, Charge, charge_task
from tests.engine.house import House, Scripted, call, echo, house, say, sending, streaming

UUID = "0190b0a0-0000-7000-8000-000000000001"
HOUR_MS = 3_600_000
FLAT = Prices("EUR", agents={"agent": Price(per_message=Decimal("0.10"))})
BY_TOKEN = Prices("EUR", agents={"agent": Price(input_per_million=Decimal(1_000_000))})


def rules(*budgets: Budget, prices: Prices = FLAT, **more: Any) -> SpendingRules:
    config = Config(budgets=budgets, prices=prices, max_tasks_per_context=more.pop("max_tasks_per_context", 0))
    return replace(spending_rules(config), **more)


def euros(limit: str, **fields: Any) -> Budget:
    return Budget(**{"id": "money", "unit": "EUR", "limit": scale(Decimal(limit)), **fields})


def tasks(limit: int, **fields: Any) -> Budget:
    return Budget(**{"id": "tasks", "unit": "tasks", "limit": limit, "period": "day", **fields})


async def balance(h: House, budget: Budget, member: str = "", owner: str = "") -> tuple[int, int]:
    """The used and the reserved part of the account of this moment."""
    name = account_name(budget, period_at(budget, h.clock.now_ms()), member, owner)
    found = await h.store.budgets.accounts([name])
    return (found[0].used, found[0].reserved) if found else (0, 0)


async def outcomes(h: House, count: int, **around: Any) -> tuple[list[Record], list[TooManyRequests]]:
    """The tasks that so many callers at once have made, and the refusals of the others."""
    made: list[Record] = []
    refused: list[TooManyRequests] = []
    for outcome in await asyncio.gather(*(h.send(around=around) for _ in range(count)), return_exceptions=True):
        assert isinstance(outcome, Record | TooManyRequests), outcome
        (made if isinstance(outcome, Record) else refused).append(outcome)  # type: ignore[arg-type]
    return made, refused


async def test_a_budget_for_so_many_tasks_of_a_fixed_price_makes_exactly_these() -> None:
    budget = euros("2.50")
    async with house(spending=rules(budget)) as h:
        made, refused = await outcomes(h, 64)
        assert (len(made), len(refused)) == (25, 39)
        assert await balance(h, budget) == (scale(Decimal("2.50")), 0)
        assert {type(error) for error in refused} == {BudgetExhausted}


async def test_the_first_task_shows_what_one_costs_and_no_two_run_until_then() -> None:
    """The budget is exceeded by the cost of one task at most, however many callers come at once."""
    budget, working, peak = euros("10", per="key"), 0, [0]

    async def use(run: Run) -> None:
        nonlocal working
        working += 1
        peak.append(working)
        await asyncio.sleep(0)
        run.usage(Usage.of(3, 0))
        await echo(run)
        working -= 1

    async with house(Scripted(use), spending=rules(budget, prices=BY_TOKEN)) as h:
        made, refused = await outcomes(h, 64)
        assert (len(made), max(peak)) == (1, 1)
        assert {(error.limit, error.retry_after_s) for error in refused} == {("budgets", 1)}
        more = await asyncio.gather(*(outcomes(h, 4) for _ in range(16)))
        assert sum(len(some) for some, _ in more) == 2
        assert await balance(h, budget, "anna", "anna") == (scale(Decimal(9)), 0)
        assert await h.send(around={"owner": "bert"}), "somebody else has an account of their own"


async def test_an_agent_that_reports_nothing_is_held_up_until_one_task_has_completed_and_no_longer() -> None:
    """A task that has failed, or that nobody took on, has not shown what one costs."""
    budget = Budget(id="tokens", unit="tokens", limit=1000)
    busy = Ended(TaskState.FAILED, (Part(text="later"),), "busy", 3)
    ends = [Ended(TaskState.FAILED), Ended(TaskState.CANCELED), busy]

    async def use(run: Run) -> None:
        await asyncio.sleep(0)
        if ends:
            raise ends.pop()
        await echo(run)

    async with house(Scripted(use), spending=rules(budget)) as h:
        with pytest.raises(Unavailable):
            await h.send()
        for _ in range(3):
            made, refused = await outcomes(h, 4)
            assert (len(made), {error.limit for error in refused}) == (1, {"budgets"})
        made, refused = await outcomes(h, 8)
        assert (len(made), len(refused)) == (8, 0)
        assert await balance(h, budget) == (0, 0)


def test_a_task_of_unknown_cost_is_charged_what_it_reserved_and_teaches_nothing() -> None:
    """Else the dearest of the latest tasks would be among them for good."""
    learnt = Reservation("a", "tokens", "500", learnt=True)
    assert charge_task((learnt,), "agent", {}, completed=True) == (Charge("a", "tokens", 500, 500),)
    assert charge_task((learnt,), "agent", {"tokens": 20}) == (Charge("a", "tokens", 500, 20, "agent"),)
    blind = Reservation("a", "tokens", str(UNKNOWN), learnt=True)
    assert charge_task((blind,), "agent", {}, completed=True) == (Charge("a", "tokens", UNKNOWN, 0, "agent"),)
    assert charge_task((blind,), "agent", {}) == (Charge("a", "tokens", UNKNOWN, 0),)


@pytest.mark.parametrize("seed", range(5))
async def test_overspending_is_at_most_what_open_tasks_cost_more_than_they_reserve(seed: int) -> None:
    random = Random(seed)
    budget = Budget(id="tokens", unit="tokens", limit=400)
    reserves = {"agent": Reserve(tokens=10)} if seed % 2 else {}
    running: dict[str, int] = {}

    async def use(run: Run) -> None:
        held = next((int(one.amount) for one in run.head.reservations if not one.first), 0)
        cost = running[run.head.id] = random.choice((5, 10, 40))
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        excess = sum(max(0, other - 10) for other in running.values()) if reserves else 40 * len(running)
        used, _ = await balance(h, budget)
        assert used <= budget.limit + excess, held
        run.usage(Usage.of(cost, 0))
        if random.random() < 0.2:
            raise RuntimeError
        await echo(run)

    async with house(Scripted(use), spending=rules(budget, reserves=reserves)) as h:
        records: list[Record] = []
        for _ in range(30):
            made, _ = await outcomes(h, random.randrange(1, 6))
            for record in made:
                running.pop(record.head.id, None)
            records += made
        used, reserved = await balance(h, budget)
        spent = sum(record.usage.total_tokens for record in records if record.usage is not None)
        assert (used, reserved) == (spent, 0)
        assert len(records) > 5


async def test_answers_of_the_caller_belong_to_the_task_which_is_charged_once_at_its_end() -> None:
    budget = euros("0.20")

    async def ask(run: Run) -> None:
        await run.ask((Part(text="?"),))
        await echo(run)

    async with house(Scripted(ask), spending=rules(budget)) as h:
        first, second = await h.send(message_id=UUID), await h.send()
        with pytest.raises(BudgetExhausted):
            await h.open(streaming())
        assert await balance(h, budget) == (0, scale(Decimal("0.20")))
        assert (await h.send(message_id=UUID, return_immediately=True)).head.id == first.head.id, (
            "a repeat is no new one"
        )
        assert (await h.send("yes", task_id=first.head.id)).terminal
        assert await balance(h, budget) == (scale(Decimal("0.20")), scale(Decimal("0.10"))), "two messages"
        await h.cancel(second.head.id)
        assert await balance(h, budget) == (scale(Decimal("0.30")), 0)


async def test_a_task_that_has_spent_more_than_is_left_gets_no_further_message() -> None:
    budget = Budget(id="tokens", unit="tokens", limit=30)
    reserves = {"agent": Reserve(tokens=10)}

    async def ask(run: Run) -> None:
        run.usage(Usage.of(15, 0))
        await run.ask((Part(text="?"),))
        run.usage(Usage.of(10, 0))
        await run.ask((Part(text="and?"),))
        await echo(run)

    async with house(Scripted(ask), spending=rules(budget, reserves=reserves)) as h:
        first, second = await h.send(), await h.send()
        assert (await h.send("a", task_id=first.head.id)).state is TaskState.INPUT_REQUIRED
        with pytest.raises(BudgetExhausted, match="tokens"):
            await h.send("b", task_id=first.head.id)
        assert (await h.send("a", task_id=second.head.id)).state is TaskState.INPUT_REQUIRED
        await h.cancel(second.head.id)
        await h.cancel(first.head.id)
        assert await balance(h, budget) == (50, 0)


async def test_a_task_whose_messages_cost_more_than_is_left_gets_no_further_one() -> None:
    """Its price is known before, and its agent reports nothing."""
    budget = euros("0.25")

    async def ask(run: Run) -> None:
        while True:
            await run.ask((Part(text="?"),))

    async with house(Scripted(ask), spending=rules(budget)) as h:
        first = await h.send()
        for _ in range(2):
            assert (await h.send("more", task_id=first.head.id)).state is TaskState.INPUT_REQUIRED
        with pytest.raises(BudgetExhausted, match="money"):
            await h.send("more", task_id=first.head.id)
        await h.cancel(first.head.id)
        assert await balance(h, budget) == (scale(Decimal("0.30")), 0)


async def test_a_budget_stops_a_run_at_the_report_with_which_it_has_nothing_left() -> None:
    budget = Budget(id="tokens", unit="tokens", limit=100, stops=True)
    said: list[int] = []

    async def use(run: Run) -> None:
        for count in range(1, 100):
            run.usage(Usage.of(30, 0))
            said.append(count)
            await say(run, "x")
            await asyncio.sleep(0.01)

    async with house(Scripted(use), spending=rules(budget, reserves={"agent": Reserve(tokens=40)})) as h:
        record = await h.send()
        message = record.status.message
        assert message is not None
        assert (record.state, message.text) == (TaskState.FAILED, "The budget tokens is used up.")
        assert message.metadata == {"reason": "budget_exhausted"}
        assert 4 <= len(said) < 50, "it has spent 120"
        assert record.usage is not None
        assert await balance(h, budget) == (record.usage.total_tokens, 0)


async def test_a_task_that_its_agent_did_not_take_on_costs_nothing() -> None:
    budget, count = euros("1"), tasks(5)

    async def busy(run: Run) -> None:
        raise Ended(TaskState.FAILED, (Part(text="later"),), "busy", 3)

    async with house(Scripted(busy), spending=rules(budget, count)) as h:
        with pytest.raises(Exception, match="later"):
            await h.send()
        assert (await balance(h, budget), await balance(h, count)) == ((0, 0), (0, 0))


async def test_a_budget_that_gets_another_unit_stops_no_task_that_reserved_in_the_old_one() -> None:
    old, new = euros("9", stops=True), Budget(id="money", unit="tokens", limit=100, stops=True)
    first = rules(old, prices=BY_TOKEN, reserves={"agent": Reserve(money=Decimal(1))})

    async def use(run: Run) -> None:
        h.engine.spending.replace(replace(first, budgets=(new,)))
        run.usage(Usage.of(3, 0))
        await asyncio.sleep(0.05)
        await echo(run)

    async with house(Scripted(use), spending=first) as h:
        assert (await h.send()).state is TaskState.COMPLETED
        assert await balance(h, old) == (scale(Decimal(3)), 0)


async def test_delegated_tasks_are_charged_to_the_same_budgets_and_a_refused_one_is_a_failed_delegation() -> None:
    count, children = tasks(3), tasks(1, id="children", agent="child")
    said: list[str] = []

    async def parent(run: Run) -> None:
        for _ in range(2):
            try:
                await run.delegate(Delegation(agent="child", parts=(Part(text="do"),)))
                said.append("")
            except DelegationFailed as failed:
                said.append(str(failed))
        await echo(run)

    async with house(Scripted(parent), Scripted(echo, "child"), spending=rules(count, children)) as h:
        assert (await h.send()).state is TaskState.COMPLETED
        assert said[0] == ""
        assert said[1].startswith("agent child: rejected: the budget is used up until ")
        assert (await balance(h, count), await balance(h, children)) == ((2, 0), (1, 0))


@pytest.mark.parametrize("mode", [True, "auto"])
async def test_an_agent_that_answers_with_a_message_makes_tasks_under_a_budget(mode: Any) -> None:
    count = tasks(2, key="anna")
    async with house(Scripted(echo, direct=mode), spending=rules(count)) as h:
        made, refused = await outcomes(h, 5)
        assert (len(made), len(refused)) == (2, 3)
        assert isinstance(await h.ask(sending(), owner="bert"), Message), "who has no budget is answered as before"


async def test_a_team_shares_its_budget_with_the_agents_that_work_for_it_and_with_no_other_team() -> None:
    count, each = tasks(3, team="red"), tasks(3, id="each", per="team")

    async def parent(run: Run) -> None:
        await run.delegate(Delegation(agent="child", parts=(Part(text="do"),)))
        await echo(run)

    async with house(Scripted(parent), Scripted(echo, "child"), spending=rules(count, each)) as h:
        ann, ben, cid = (
            Principal(member_id(team, own), team=team) for team, own in (("red", "a"), ("red", "b"), ("blue", "c"))
        )
        for who in (ann, cid):
            await h.engine.operations.call(replace(call(sending()), principal=who))
        with pytest.raises(BudgetExhausted) as refusal:
            await h.engine.operations.call(replace(call(sending()), principal=replace(ben, key="k2")))
            await h.engine.operations.call(replace(call(sending()), principal=ann))
        assert refusal.value.limit == "tasks"
        assert await balance(h, count) == (3, 0)
        assert (await balance(h, each, "red"), await balance(h, each, "blue")) == ((3, 0), (2, 0))
        await h.send()


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({"key": "ann"}, ["key:ann"]),
        ({"key": "ann", "team": "red"}, ["team:red/key:ann"]),
        ({"key": "key:ann", "team": "red"}, ["team:red/key:ann"]),
        ({"key": "team:blue/key:ann"}, ["team:blue/key:ann"]),
        ({"key": "team:blue/key:ann", "team": "red"}, []),
        ({"key": "jwt:7@https://id"}, ["jwt:7@https://id"]),
        ({"key": "jwt:7@https://id", "team": "red"}, ["team:red/jwt:7@https://id"]),
    ],
)
async def test_a_budget_of_a_key_is_that_of_one_caller_whatever_teams_call_theirs(
    fields: dict[str, str], counted: list[str]
) -> None:
    callers = [
        Principal(member_id(team, own) if team else own, team=team)
        for own in ("key:ann", "jwt:7@https://id")
        for team in ("", "red", "blue")
    ]
    async with house(spending=rules(tasks(9, **fields))) as h:
        assert [who.id for who in callers if h.engine.spending.limits(who, "agent")] == counted


async def test_a_conversation_has_so_many_tasks_with_those_that_agents_delegate() -> None:
    async def parent(run: Run) -> None:
        await run.delegate(Delegation(agent="child", parts=(Part(text="do"),)))
        await echo(run)

    spending = rules(max_tasks_per_context=4)
    async with house(Scripted(parent), Scripted(echo, "child"), spending=spending) as h:
        await h.send(context_id="c1")
        await h.send(context_id="c1")
        with pytest.raises(BudgetExhausted, match="4 tasks, which is the limit") as refusal:
            await h.send(context_id="c1")
        assert (refusal.value.limit, refusal.value.retry_after_s) == ("max_tasks_per_context", None)
        await h.send(context_id="c1", around={"owner": "bert"})
        await h.send(context_id="c2")


async def test_a_refusal_says_when_the_period_ends_and_asks_to_come_back_within_an_hour() -> None:
    async with house(spending=rules(tasks(1))) as h:
        h.clock.ms += 24 * HOUR_MS - h.clock.ms % (24 * HOUR_MS) - HOUR_MS // 2
        await h.send()
        with pytest.raises(BudgetExhausted) as refusal:
            await h.send()
        assert (refusal.value.limit, refusal.value.retry_after_s) == ("tasks", 1800)
        midnight = datetime.fromtimestamp((h.clock.ms + HOUR_MS // 2) / 1000, UTC)
        assert refusal.value.resets_at == f"{midnight:%Y-%m-%dT%H:%M:%S}.000Z"
        h.clock.ms -= 10 * HOUR_MS
        with pytest.raises(BudgetExhausted) as refusal:
            await h.send()
        assert refusal.value.retry_after_s == 3600
        h.clock.ms += 11 * HOUR_MS
        await h.send()
        h.clock.ms -= 11 * HOUR_MS  # the clock is set back: the day before counts again
        with pytest.raises(BudgetExhausted):
            await h.send()


async def test_a_task_is_charged_to_the_day_on_which_it_began_although_its_budget_is_gone() -> None:
    count = tasks(1)

    async def ask(run: Run) -> None:
        await run.ask((Part(text="?"),))
        await echo(run)

    async with house(Scripted(ask), spending=rules(count)) as h:
        task = await h.send()
        h.engine.spending.replace(rules(tasks(2)))
        await h.send()
        h.engine.spending.replace(rules())
        h.clock.ms += 24 * HOUR_MS
        await h.send("yes", task_id=task.head.id)
        assert await balance(h, count) == (0, 0), "the new day"
        h.clock.ms -= 24 * HOUR_MS
        assert await balance(h, count) == (1, 1)


async def test_tasks_of_a_server_that_died_are_charged_when_they_are_ended_in_its_place(tmp_path: Path) -> None:
    budget, url = euros("5"), f"sqlite:///{tmp_path / 'store.db'}"

    async def hang(run: Run) -> None:
        await asyncio.Event().wait()

    async with house(Scripted(hang), url=url, crashes=True, spending=rules(budget)) as h:
        for _ in range(3):
            await h.send(return_immediately=True)
        assert await balance(h, budget) == (0, scale(Decimal("0.30")))
    async with house(Scripted(hang), url=url, spending=rules(budget)) as h:
        for record in (await h.listed()).records:
            await h.reach(record.head.id, TaskState.FAILED)
        assert await balance(h, budget) == (scale(Decimal("0.30")), 0)


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("period", "zone", "now", "name", "begins", "ends"),
    [
        ("day", "UTC", "2027-02-28T23:59:59+00:00", "2027-02-28", "2027-02-28T00:00+00:00", "2027-03-01T00:00+00:00"),
        ("month", "UTC", "2028-02-29T12:00+00:00", "2028-02", "2028-02-01T00:00+00:00", "2028-03-01T00:00+00:00"),
        ("month", "UTC", "2027-12-31T23:59+00:00", "2027-12", "2027-12-01T00:00+00:00", "2028-01-01T00:00+00:00"),
        # Summer time begins, and ends: days of 23 and 25 hours.
        (
            "day",
            "Europe/Berlin",
            "2027-03-28T12:00+00:00",
            "2027-03-28",
            "2027-03-27T23:00+00:00",
            "2027-03-28T22:00+00:00",
        ),
        (
            "day",
            "Europe/Berlin",
            "2027-10-31T12:00+00:00",
            "2027-10-31",
            "2027-10-30T22:00+00:00",
            "2027-10-31T23:00+00:00",
        ),
        (
            "month",
            "Europe/Berlin",
            "2027-03-31T22:30+00:00",
            "2027-04",
            "2027-03-31T22:00+00:00",
            "2027-04-30T22:00+00:00",
        ),
        (
            "month",
            "America/New_York",
            "2027-11-01T03:30+00:00",
            "2027-10",
            "2027-10-01T04:00+00:00",
            "2027-11-01T04:00+00:00",
        ),
        # A day whose midnight does not exist begins at one.
        (
            "day",
            "America/Santiago",
            "2027-09-05T12:00+00:00",
            "2027-09-05",
            "2027-09-05T04:00+00:00",
            "2027-09-06T03:00+00:00",
        ),
        (
            "day",
            "Asia/Kathmandu",
            "2027-05-01T18:15+00:00",
            "2027-05-02",
            "2027-05-01T18:15+00:00",
            "2027-05-02T18:15+00:00",
        ),
    ],
)
def test_periods_go_by_the_calendar_of_their_time_zone(
    period: Any, zone: str, now: str, name: str, begins: str, ends: str
) -> None:
    budget = Budget(id="b", unit="tasks", limit=1, period=period, time_zone=zone)
    found = period_at(budget, at(now))
    assert (found.name, found.begins_ms, found.ends_ms) == (name, at(begins), at(ends))
    assert found.covers(at(now))
    assert period_at(budget, at(ends) - 1) == found
    assert found.ends_ms == period_at(budget, at(ends)).begins_ms


def test_a_cost_is_exact_to_the_last_digit_that_a_price_can_have() -> None:
    assert scale(Decimal("0.000000000000000000000001").scaleb(-6)) == 1
    assert scale(Decimal("999999999999.999999999999999999999999")) == (10**36 - 1) * 10**6
