"""The console beside very many tasks and events, a server that is killed, and several replicas."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect

from dragoman import Agent, Context
from dragoman.auth.operator_token import read_token
from dragoman.config import Config
from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole
from dragoman.model.task import TaskState
from dragoman.server import serving
from dragoman.store.open import open_store
from tests.bindings.admin.test_admin import make_keys
from tests.console.browser import console
from tests.console.site import Site, make_agents, moment, open_task, replay, serving_site, timeline
from tests.kit.processes import serving_process
from tests.ports import kept_port
from tests.store.cases.bench import START_MS, message, new_task, status

pytestmark = [pytest.mark.slow, pytest.mark.peer]

DEADLINE_S = 60.0
ROOT = Path(__file__).parent.parent.parent

TASKS = 100_000
BATCH = 2_000
OPEN_EVERY = 10
"""One in so many tasks waits for an answer."""

EVENTS = 8_000
LONG = 20_000
REQUESTS_MAX = 12
"""Most requests that open a task with `LONG` events. Pages of 500 would be 40."""

ELEMENTS_MAX = 4_000
"""Most elements of a page, whatever it shows."""

COUNT_RENDERINGS = """() => {
  globalThis.renderings = 0;
  new MutationObserver(() => (globalThis.renderings += 1)).observe(document.body,
    {subtree: true, childList: true, characterData: true});
}"""


async def count_elements(page: Page) -> int:
    return int(await page.evaluate("() => document.querySelectorAll('*').length"))


async def fill(folder: Path) -> None:
    """Write a store with `TASKS` tasks."""
    store = open_store(f"sqlite:///{folder}/dragoman.db", SystemClock())
    await store.open("filling")
    for first in range(0, TASKS, BATCH):
        writes = []
        for number in range(first, first + BATCH):
            state = TaskState.COMPLETED if number % OPEN_EVERY else TaskState.INPUT_REQUIRED
            agent = "asks" if state is TaskState.INPUT_REQUIRED else "echo"
            new = new_task(
                f"t{number}", at=START_MS + number, state=state, holder=None, agent=agent, said=message(f"no {number}")
            )
            writes.append(store.create(replace(new, events=(*new.events, status(state, START_MS + number)))))
        await asyncio.gather(*writes)
    await store.close()


async def test_a_hundred_thousand_tasks_are_filtered_sorted_paged_and_canceled(
    browser: Browser, tmp_path: Path
) -> None:
    await fill(tmp_path)
    async with serving_site(tmp_path) as site, console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Tasks", exact=True).click()
        rows = page.get_by_role("row")
        await expect(page.get_by_text("100,000 tasks")).to_be_visible()
        await expect(rows).to_have_count(51)
        await page.get_by_label("State").select_option("input-required")
        await expect(page.get_by_text("10,000 tasks")).to_be_visible()
        await expect(rows.nth(1)).to_contain_text("no 99990")
        await page.get_by_role("button", name="Next page").click()
        await expect(rows.nth(1)).to_contain_text("no 99490")
        await rows.last.scroll_into_view_if_needed()
        await expect(rows.last).to_be_visible()
        assert await count_elements(page) < ELEMENTS_MAX
        await page.get_by_label("Order").select_option("Oldest change first")
        await expect(rows.nth(1)).to_contain_text("no 0")
        await page.get_by_label("Select all open tasks on this page").check()
        await page.get_by_role("button", name="Cancel them").click()
        await expect(page.get_by_role("status")).to_contain_text("50 tasks canceled")
        await expect(page.get_by_text("9,950 tasks")).to_be_visible()
        await expect(rows.nth(1)).to_contain_text("no 500")


def flooding_agent(gate: asyncio.Event) -> Agent:
    """An agent that says `EVENTS` words as fast as it can, once the gate is open."""
    agent = Agent("flood")

    @agent.skill
    async def flood(ctx: Context) -> AsyncIterator[str]:
        """Say one word after the other."""
        await gate.wait()
        for number in range(EVENTS):
            yield f"word {number} "

    return agent


async def test_a_flood_of_events_takes_few_renderings_and_little_memory(browser: Browser, tmp_path: Path) -> None:
    store, gate = f"sqlite:///{tmp_path}/dragoman.db", asyncio.Event()
    config = Config(port=0, store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with serving(config, [flooding_agent(gate)]) as url, aiohttp.ClientSession() as http:
        site = Site(url, read_token(store, 0) or "", http, gate)
        task = await site.send("flood", wait=False)
        async with console(browser, url, site.token) as (page, _):
            await open_task(page, site, task)
            await expect(timeline(page)).to_contain_text("working")
            await page.evaluate(COUNT_RENDERINGS)
            begun_anew: list[str] = []
            page.on("request", lambda request: begun_anew.append(request.url) if "/moment" in request.url else None)
            gate.set()
            await expect(timeline(page)).to_contain_text("completed")
            await expect(moment(page)).not_to_contain_text(f"word {EVENTS - 1}")  # a long text is folded
            await moment(page).get_by_role("button", name="Show all").click()
            await expect(moment(page)).to_contain_text(f"word {EVENTS - 1}")
            assert await page.evaluate("() => globalThis.renderings") < EVENTS / 10
            assert begun_anew == [], "a log that is followed is read on, however fast it grows"
            assert await count_elements(page) < ELEMENTS_MAX
            slider = await replay(page)
            assert int(await slider.get_attribute("max") or 0) > EVENTS
            await expect(timeline(page).get_by_role("button", name="earlier events")).to_be_visible()
            await slider.fill("4")
            await expect(moment(page)).to_contain_text("word 0 word 1")
            await expect(moment(page)).not_to_contain_text("word 2")
            await slider.fill(str(EVENTS // 2))
            await expect(moment(page)).to_contain_text(f"word {EVENTS // 2 - 3}")
            await expect(moment(page)).not_to_contain_text(f"word {EVENTS // 2 + 3}")
            assert await count_elements(page) < ELEMENTS_MAX


async def test_a_very_long_log_opens_at_its_end_and_replays_from_its_beginning(
    browser: Browser, tmp_path: Path
) -> None:
    agent = Agent("many")

    @agent.skill
    async def count(ctx: Context) -> AsyncIterator[str]:
        """Say many words, and one that is very long."""
        yield "long " * 800_000  # below max_text
        for number in range(LONG):
            yield f"word {number} "

    async with serving_site(tmp_path, more=[agent]) as site, console(browser, site.url, site.token) as (page, _):
        task = await site.send("many")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await open_task(page, site, task)
        await expect(moment(page)).to_contain_text("long long long")
        await expect(moment(page)).to_contain_text("characters of this long text are not shown")
        await expect(timeline(page)).to_contain_text("completed")
        assert len([url for url in asked if f"{task}/" in url]) < REQUESTS_MAX, asked
        await (await replay(page)).press("Home")
        await expect(moment(page)).to_contain_text("submitted")
        over_time = page.get_by_role("group").filter(has_text="Over time")
        await expect(over_time).to_contain_text("later events not shown")
        await expect(over_time).not_to_contain_text("so far")
        await timeline(page).get_by_role("button", name="later events").click()
        await expect(moment(page)).to_contain_text("working")
        await expect(moment(page)).to_contain_text("growing")
        await page.get_by_label("Speed of the replay").select_option("100 ×")
        await page.get_by_label("Moment of the replay").fill(str(LONG - 10))
        await page.get_by_role("button", name="Play the log").click()
        await expect(moment(page)).to_contain_text("completed")


async def test_a_page_goes_on_after_its_server_was_killed(browser: Browser, tmp_path: Path) -> None:
    agents, store, port = tmp_path / "agents.py", f"sqlite:///{tmp_path}/dragoman.db", kept_port()
    agents.write_text(
        "import asyncio\n"
        "from tests.console.site import make_agents\n"
        "globals().update({f'agent{n}': agent for n, agent in enumerate(make_agents(asyncio.Event()))})\n"
    )
    url = f"http://127.0.0.1:{port}"
    served = (tmp_path, str(agents), "--port", str(port), "--store", store)
    async with aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        async with serving_process(*served, PYTHONPATH=str(ROOT)):
            site = Site(url, read_token(store, port) or "", http, asyncio.Event())
            task = await site.send("steps", wait=False)
            page, _ = await stack.enter_async_context(console(browser, url, site.token))
            await open_task(page, site, task)
            await expect(moment(page)).to_contain_text("first step")
            await page.evaluate("() => (globalThis.marked = true)")
        # it is killed at the end of the block, with SIGKILL, while the task is at work
        await expect(page.get_by_role("status")).to_contain_text("The server does not answer")
        async with serving_process(*served, PYTHONPATH=str(ROOT)):
            await expect(page.get_by_text("The server does not answer")).to_have_count(0)
            await expect(timeline(page)).to_contain_text("failed")
            await page.get_by_role("link", name="Tasks", exact=True).first.click()
            await expect(page.get_by_role("row", name="failed")).to_have_count(1)
            await site.send("echo")
            await expect(page.get_by_role("row")).to_have_count(3)
            assert await page.evaluate("() => globalThis.marked") is True, "without a reload"


async def test_two_browsers_at_two_replicas_see_one_task_live(browser: Browser, postgres_url: str) -> None:
    keys = await make_keys(postgres_url, ann=(AccessRole.CALLER, None), ops=(AccessRole.OPERATOR, None))
    gate = asyncio.Event()
    # Cookies bear the port that browsers know, and browsers send them to all ports of a host.
    config = Config(
        port=0, store=postgres_url, public_url="http://127.0.0.1:9", shutdown_grace_s=0.2, cancel_grace_s=0.2
    )
    secret = keys["ops"]["x-api-key"]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(config, make_agents(gate))) for _ in range(2)]
        http = await stack.enter_async_context(aiohttp.ClientSession(headers=keys["ann"]))
        sites = [Site(url, secret, http, gate) for url in urls]
        pages = [(await stack.enter_async_context(console(browser, url, secret)))[0] for url in urls]
        task = await sites[0].send("steps", wait=False)
        for page, site in zip(pages, sites, strict=True):
            await open_task(page, site, task)
            await expect(moment(page)).to_contain_text("1 of 2")
        gate.set()
        for page in pages:
            await expect(moment(page)).to_contain_text("one two")
            await expect(timeline(page)).to_contain_text("completed")
        cookies = await pages[0].context.cookies()
        stranger = await browser.new_context()
        await stranger.add_cookies([{"name": one["name"], "value": one["value"], "url": urls[1]} for one in cookies])
        page = await stranger.new_page()
        await open_task(page, sites[1], task)
        await expect(timeline(page)).to_contain_text("completed")
        await stranger.close()
