"""How often a page asks the server while a task changes all the time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from dragoman import Agent, Context
from tests.console.browser import console
from tests.console.site import Site, open_task, replay, serving_site, timeline

pytestmark = [pytest.mark.slow, pytest.mark.peer]

DEADLINE_S = 60.0
CHANGING_S = 4.0
"""How long a task changes. A list whose tasks change is read five times meanwhile."""

LISTS_EVERY_S = 60
"""How often the tasks of a conversation are read even if none has changed."""


class Ticking:
    """An agent whose task makes progress once for each `tick`."""

    def __init__(self) -> None:
        self.agent = Agent("ticking")
        self.done = 0
        self._ticks: asyncio.Queue[int] = asyncio.Queue()
        self.agent.skill(self._follow)

    async def _follow(self, ctx: Context) -> AsyncIterator[str]:
        """Make progress."""
        if ctx.text == "quick":
            return
        while number := await self._ticks.get():
            await ctx.progress(number, number + 1, f"tick {number}.")
            yield f"word {number}. "

    async def tick(self, page: Page) -> None:
        """Let the task make progress, and wait until the page has heard of it."""
        slider = await replay(page)
        before = int(await slider.get_attribute("max") or 0)
        self.done += 1
        self._ticks.put_nowait(self.done)
        async with asyncio.timeout(DEADLINE_S):
            while int(await slider.get_attribute("max") or 0) == before:
                await slider.wait_for()

    def end(self) -> None:
        """Let the task end."""
        self._ticks.put_nowait(0)


async def context_of(site: Site, task: str) -> str:
    return str((await site.admin("GET", f"/tasks/{task}"))["task"]["context"])


async def test_the_list_of_a_conversation_is_not_read_again_for_what_one_task_does(
    browser: Browser, tmp_path: Path
) -> None:
    ticking, loop = Ticking(), asyncio.get_running_loop()
    async with (
        serving_site(tmp_path, more=[ticking.agent]) as site,
        console(browser, site.url, site.token) as (page, _),
    ):
        task = await site.send("ticking", wait=False)
        lists: list[str] = []
        page.on("request", lambda request: lists.append(request.url) if "/tasks?context=" in request.url else None)
        began_s = loop.time()
        await open_task(page, site, task)
        while loop.time() < began_s + CHANGING_S or not lists:
            await ticking.tick(page)
        assert len(lists) <= 2 + (loop.time() - began_s) // LISTS_EVERY_S, "at first, and as the feed of changes begins"
        other = await site.send("ticking", {"text": "quick"}, context=await context_of(site, task))
        await expect(page.get_by_text("Also of this conversation")).to_be_visible()
        await expect(page.locator(f'a[href$="{other}"]')).to_contain_text("completed")
        ticking.end()
        await expect(timeline(page)).to_contain_text("completed")


async def test_the_wire_of_a_growing_log_is_asked_for_once_at_a_time(browser: Browser, tmp_path: Path) -> None:
    ticking, gate = Ticking(), asyncio.Event()
    asked: list[str] = []
    aborted: list[str] = []

    async def hold(route: Route) -> None:
        asked.append(route.request.url)
        await gate.wait()
        await route.continue_()

    async with (
        serving_site(tmp_path, more=[ticking.agent]) as site,
        console(browser, site.url, site.token) as (page, _),
    ):
        task = await site.send("ticking", wait=False)
        page.on("requestfailed", lambda request: aborted.append(request.url) if "/wire?" in request.url else None)
        await page.route("**/wire?**", hold)
        await open_task(page, site, task, "?tab=wire")
        while ticking.done < 5 or not asked:
            await ticking.tick(page)
        assert (len(asked), aborted) == (1, [])
        gate.set()
        await expect(page.get_by_role("region", name="The wire")).to_contain_text(f"tick {ticking.done}.")
        ticking.end()
