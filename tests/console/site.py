"""A server with agents whose tasks end, wait, fail and delegate, a caller of them, and the places of a task's view."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from playwright.async_api import Locator, Page

from dragoman import Agent, Context, Part
from dragoman.auth.operator_token import read_token
from dragoman.cli.entries import make_added_agent
from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.server import serving

V1 = {"A2A-Version": "1.0"}
QUICK: Mapping[str, Any] = {"port": 0, "shutdown_grace_s": 0.2, "cancel_grace_s": 0.2}


def make_agents(gate: asyncio.Event) -> list[Agent]:
    """Agents whose tasks end, wait for their caller, fail, or go on when `gate` is open."""
    echo, steps, asks, broken = Agent("echo"), Agent("steps"), Agent("asks"), Agent("broken")
    chief = Agent("chief")

    @echo.skill
    async def give_back(ctx: Context) -> tuple[Part, ...]:
        """Give the parts back."""
        ctx.usage(input=12, output=34)
        return ctx.parts

    @steps.skill
    async def step(ctx: Context) -> AsyncIterator[str]:
        """Take one step, wait for the gate, take another."""
        await ctx.progress(1, 2, "first step")
        yield "one "
        await gate.wait()
        await ctx.progress(2, 2, "second step")
        yield "two"

    @asks.skill(examples=["Ask me"])
    async def ask(ctx: Context) -> str:
        """Ask."""
        return f"so {await ctx.ask('Which way?')}"

    @broken.skill
    async def fail(ctx: Context) -> str:
        """Fail."""
        raise RuntimeError("on purpose")

    @chief.skill
    async def share(ctx: Context) -> str:
        """Give the work to echo."""
        return (await ctx.delegate("echo", ctx.text)).text

    return [echo, steps, asks, broken, chief]


class Site:
    """A server and a caller of its agents."""

    def __init__(self, url: str, token: str, http: aiohttp.ClientSession, gate: asyncio.Event) -> None:
        self.url = url
        self.token = token
        self.gate = gate
        self._http = http

    async def send(
        self,
        agent: str,
        *parts: dict[str, Any],
        wait: bool = True,
        webhook: str = "",
        context: str = "",
        task: str = "",
        message_id: str = "",
    ) -> str:
        """Send a message, which begins a task unless one is named; returns the task's id."""
        message: dict[str, Any] = {
            "messageId": message_id or f"m{id(parts)}",
            "role": "ROLE_USER",
            "parts": parts or ({"text": "hi"},),
        }
        if context:
            message["contextId"] = context
        if task:
            message["taskId"] = task
        configuration: dict[str, Any] = {"returnImmediately": not wait}
        if webhook:
            configuration["taskPushNotificationConfig"] = {"url": webhook}
        sent = {"message": message, "configuration": configuration}
        async with self._http.post(f"{self.url}/agents/{agent}/message:send", json=sent, headers=V1) as answer:
            return str((await answer.json())["task"]["id"])

    async def remove_webhooks(self, agent: str, task: str) -> None:
        """Remove the webhooks of a task, as its caller."""
        at = f"{self.url}/agents/{agent}/tasks/{task}/pushNotificationConfigs"
        async with self._http.get(at, headers=V1) as answer:
            configs = (await answer.json())["configs"]
        for config in configs:
            async with self._http.delete(f"{at}/{config['id']}", headers=V1) as answer:
                assert answer.ok, await answer.text()

    async def lease(self, agent: str, worker: str) -> None:
        """Give a worker the agent's next task."""
        sent = {"worker": worker, "wait_s": 20}
        async with self._http.post(f"{self.url}/workers/{agent}/lease", json=sent) as answer:
            assert answer.status == HTTPStatus.OK, await answer.text()

    async def status_with(self, key: str) -> HTTPStatus:
        """The status of a request with a caller's key."""
        headers = V1 | {"x-api-key": key}
        async with self._http.get(f"{self.url}/agents/echo/tasks", headers=headers) as answer:
            return HTTPStatus(answer.status)

    async def admin(self, method: str, path: str, **sent: Any) -> Any:
        """Call the admin API as the operator; returns the answer, which must be a good one."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self._http.request(method, f"{self.url}/admin/v1{path}", headers=headers, **sent) as answer:
            assert answer.status == HTTPStatus.OK, await answer.text()
            return await answer.json()


@asynccontextmanager
async def serving_site(
    folder: Path, key: str | None = None, more: Sequence[Runner] = (), **settings: Any
) -> AsyncIterator[Site]:
    """A server of these agents, and `more`, whose store is in `folder`.

    Its operator has a `key`, or else the server's token.
    """
    store = f"sqlite:///{folder}/dragoman.db"
    gate = asyncio.Event()
    config = Config(**QUICK, store=store, **settings)
    async with serving(config, [*make_agents(gate), *more]) as url, aiohttp.ClientSession() as http:
        token = key or read_token(store, 0)
        assert token is not None
        yield Site(url, token, http, gate)


class TwoServers(NamedTuple):
    """The server of the console with its token, and another one, whose callers need a key."""

    url: str
    token: str
    elsewhere: str


@asynccontextmanager
async def two_servers(folder: Path, key: str, agents: Sequence[Runner], **settings: Any) -> AsyncIterator[TwoServers]:
    """A server with `settings`, whose store is in `folder`, and another one with the same agents and that `key`."""
    store = f"sqlite:///{folder}/dragoman.db"
    own = Config(**QUICK, store=store, **settings)
    other = Config(**QUICK, store="memory:", api_key=key)
    async with serving(own, agents, make_added_agent) as url, serving(other, agents) as elsewhere:
        yield TwoServers(url, read_token(store, 0) or "", elsewhere)


async def open_task(page: Page, site: Site, task: str, query: str = "") -> None:
    await page.goto(f"{site.url}/console/tasks/{task}{query}")
    await page.get_by_role("heading", level=1).wait_for()


def timeline(page: Page) -> Locator:
    return page.get_by_role("region", name="Timeline")


def moment(page: Page) -> Locator:
    return page.get_by_role("region", name="The task at this moment")


async def replay(page: Page) -> Locator:
    """Open the bar of the replay, unless it is open; returns its slider."""
    button = page.get_by_role("button", name="Replay", exact=True)
    if await button.get_attribute("aria-pressed") != "true":
        await button.click()
    return page.get_by_label("Moment of the replay")
