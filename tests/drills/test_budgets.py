"""A budget for so many tasks of a fixed price, many callers, three replicas, and one of them is killed.

`make test-soak` has 64 callers at a budget of 100 tasks.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import asyncpg
import pytest

from dragoman.config.budgets import MONEY_SCALE
from tests.kit.places import V1, beside
from tests.kit.processes import ServerProcess, serving_process
from tests.kit.waiting import until
from tests.soak import times

pytestmark = [pytest.mark.slow, pytest.mark.drill]

CALLERS = times(12, 64)
TASKS = times(30, 100)
CENT = 10 ** (MONEY_SCALE - 2)

CONFIG = f"""
replica_lease_s = 2
replica_beat_s = 0.5
[prices]
currency = "EUR"
[prices.agents.echo]
per_task = "0.01"
[[budgets]]
id = "all"
money = "{TASKS / 100:.2f}"
period = "forever"
[[budgets]]
id = "each"
per = "key"
tasks = {10 * TASKS}
"""

AGENT = """
import asyncio
from dragoman import Agent, Context
echo = Agent("echo", description="Repeats the message")
@echo.skill("echo", tags=["x"])
async def repeat(ctx: Context):
    await asyncio.sleep(0.05)
    return ctx.text
"""


@asynccontextmanager
async def replicas(folder: Path, url: str) -> AsyncIterator[list[ServerProcess]]:
    """Three servers on one store."""
    (folder / "dragoman.toml").write_text(f'store = "{url}"\nport = 0\n{CONFIG}')
    (folder / "agents.py").write_text(AGENT)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(serving_process(folder, "agents.py:echo", log=f"log{number}"))
            for number in range(3)
        ]


class Caller:
    """Sends until the budget is used up. A call that got no answer is made again, at another replica."""

    def __init__(self, servers: list[ServerProcess], http: aiohttp.ClientSession, number: int) -> None:
        self._servers = servers
        self._http = http
        self._random = Random(number)
        self.tasks: set[str] = set()

    async def run(self) -> None:
        """Make calls, each until it has an answer."""
        while True:
            message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "x"}]}
            while (told := await self._call({"message": message})) is None:
                await asyncio.sleep(0.05)
            status, body = told
            if status == 429:
                assert body["error"]["details"][0]["metadata"] == {"limit": "all"}, body
                return
            assert status == 200, body
            self.tasks.add(body["task"]["id"])

    async def _call(self, message: dict[str, object]) -> tuple[int, dict[str, object]] | None:
        server = self._random.choice(self._servers)
        try:
            async with self._http.post(f"{server.url}/agents/echo/message:send", json=message, headers=V1) as answer:
                body = await answer.json()
                return None if answer.status == 503 else (answer.status, body)
        except (aiohttp.ClientError, OSError):
            return None


async def test_exactly_as_many_tasks_are_accepted_as_the_budget_has(postgres_url: str, tmp_path: Path) -> None:
    connection = await asyncpg.connect(postgres_url)
    async with replicas(tmp_path, postgres_url) as servers, aiohttp.ClientSession() as http:

        async def kill() -> None:
            """Kill a replica while it has tasks, and parts of the budget that it has not used."""
            while await connection.fetchval("SELECT count(*) FROM dragoman.tasks") < TASKS // 3:
                await asyncio.sleep(0.01)
            await servers[0].kill()

        callers = [Caller(servers, http, number) for number in range(CALLERS)]
        await asyncio.gather(kill(), *(caller.run() for caller in callers))
        made = await connection.fetchval("SELECT count(*) FROM dragoman.tasks")
        assert made == TASKS
        assert len(set().union(*(caller.tasks for caller in callers))) <= TASKS
        async with beside(postgres_url) as store:

            async def settled() -> bool:
                (account,) = await store.budgets.accounts(["all|EUR|forever|"])
                return account.reserved == 0

            await until(settled)
            accounts = {one.budget: one for one in await store.budgets.current(0, "", 10)}
            assert (accounts["all"].used, accounts["all"].reserved) == (TASKS * CENT, 0)
            assert (accounts["each"].used, accounts["each"].reserved) == (TASKS, 0)
        assert await connection.fetchval("SELECT count(*) FROM dragoman.tasks WHERE state < 4") == 0
    await connection.close()
