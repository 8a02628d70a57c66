"""The watch over budgets: who is warned of what, and how often."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from msgspec.structs import replace

from dragoman.admin.budgets import BudgetQuery
from dragoman.config.budgets import Budget
from dragoman.dialects.api import Signing
from dragoman.dialects.push import standard_signature
from dragoman.engine.admin.budget_report import report_budgets
from dragoman.engine.spending import SpendingRules, TaskSpending
from dragoman.model.ids import SystemClock
from dragoman.net.address import Resolver
from dragoman.net.dialer import operator_named
from dragoman.push.courier import way_out
from dragoman.push.operator_hook import OperatorHook
from dragoman.server import budgets
from dragoman.server.budgets import BudgetWatch
from dragoman.store.api import Store
from dragoman.telemetry.counts import Counts
from dragoman.testing.agents import echo
from tests.kit.places import server
from tests.kit.waiting import until
from tests.store.cases.test_budgets import claim, claiming

ACCOUNT = "b|tokens|2027-01|red"
BUDGET = Budget(id="b", unit="tokens", limit=10, per="team", hard=False, warn_at=(50, 100))
SECRET = "a secret of the operator"


class Receiver:
    """A receiver that refuses its first calls."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.calls.append((dict(request.headers), await request.read()))
        return web.Response(status=503 if len(self.calls) <= self.refuses else 200)


@asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[Receiver]:
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def spend(store: Store, task_id: str, tokens: int) -> None:
    one = claim(ACCOUNT, amount=tokens, limit=None, budget="b", ends_ms=None, expires_ms=None)
    held = replace(one.reservation, unit="tokens")
    await store.create(claiming(task_id, replace(one, reservation=held)))


async def test_each_threshold_is_warned_of_once_whoever_looks(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    counts, spending = Counts(), TaskSpending(store, SpendingRules(budgets=(BUDGET,)))
    one, other = BudgetWatch(store, spending, counts, None), BudgetWatch(store, spending, counts, None)
    caplog.set_level(logging.WARNING, "dragoman.budgets")
    for number, tokens in enumerate((4, 2, 1, 5, 3)):
        await spend(store, f"t{number}", tokens)
        await one.look()
        await other.look_at_all()
    assert counts.budget_warnings == {("b", 50): 1, ("b", 100): 1}
    assert caplog.messages == [
        "budget b of team red: 60 % of 10 tokens are used",
        "budget b of team red: 120 % of 10 tokens are used",
    ]


async def test_a_budget_that_is_gone_has_no_limit_and_one_that_nobody_has_used_is_shown(store: Store) -> None:
    await spend(store, "t1", 6)
    kept = Budget(id="kept", unit="tasks", limit=3)
    found = await report_budgets(store, BudgetQuery(), SpendingRules(budgets=(kept,)))
    shown = [(line.budget, line.member, line.limit, line.used, line.reserved) for line in found.budgets]
    assert shown == [("b", "red", None, "0", "6"), ("kept", "", "3", "0", "0")]


async def test_the_webhook_is_called_until_it_arrives_and_by_the_next_server(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "LOOK_S", 0.01)
    monkeypatch.setattr(budgets, "AGAIN_S", (0.0,))
    spending, resolver = TaskSpending(store, SpendingRules(budgets=(BUDGET,))), Resolver()
    async with receiving(Receiver(refuses=2)) as receiver:

        def hook() -> OperatorHook:
            return OperatorHook(receiver.url, SECRET, way_out(operator_named, resolver), SystemClock())

        await spend(store, "t1", 6)
        await BudgetWatch(store, spending, None, hook()).look_at_all()  # it dies before it calls
        watch = hook()
        running = asyncio.create_task(BudgetWatch(store, spending, None, watch).run())
        await until(lambda: len(receiver.calls) >= 3)

        async def told() -> bool:
            return (await store.budgets.accounts([ACCOUNT]))[0].told == 50

        await until(told)
        running.cancel()
        await asyncio.wait([running])
        await watch.close()
        assert len(receiver.calls) == 3
        assert {headers["webhook-id"] for headers, _ in receiver.calls} == {f"{ACCOUNT}|50"}
        headers, body = receiver.calls[-1]
        stamp = int(headers["webhook-timestamp"])
        signing = Signing(delivery_id=f"{ACCOUNT}|50", task_id="", timestamp_s=stamp, body=body)
        assert headers["webhook-signature"] == dict(standard_signature(SECRET, signing))["webhook-signature"]
        assert json.loads(body) == {
            "type": "budget.warning",
            "budget": "b",
            "per": "team",
            "member": "red",
            "mode": "soft",
            "threshold": 50,
            "percent": 60,
            "unit": "tokens",
            "limit": "10",
            "used": "0",
            "reserved": "6",
            "resets_at": None,
        }
    await resolver.close()


async def test_a_server_calls_the_webhook_of_its_operator_and_counts_the_warning() -> None:
    budget = Budget(id="day", unit="tasks", limit=2, period="day", warn_at=(100,))
    async with (
        receiving(Receiver()) as receiver,
        server(echo, budgets=(budget,), budget_webhook=receiver.url) as http,
    ):
        for number in range(2):
            message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "x"}]}
            async with http.post(
                "/agents/echo/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}
            ) as answer:
                assert answer.status == 200
        await until(lambda: receiver.calls)
        assert json.loads(receiver.calls[0][1])["threshold"] == 100
        async with http.get("/metrics") as page:
            assert 'dragoman_budget_warnings_total{budget="day",threshold="100"} 1.0' in await page.text()
