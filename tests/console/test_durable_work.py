"""Steps and sleep in a real browser: the timeline of a task, and tasks that sleep wherever tasks are shown."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, ViewportSize, expect

from dragoman import Agent, Context, StepFailed
from tests.console.browser import NARROW, WIDE, axe, console, overlaps
from tests.console.site import Site, moment, open_task, replay, serving_site, timeline

pytestmark = [pytest.mark.slow, pytest.mark.peer]

REPORT = "The first flush is bright, and the second one round. " * 20
LARGE = {"width": 1440, "height": 900}


def make_tea_agent(gate: asyncio.Event) -> Agent:
    """An agent that takes steps of every outcome and sleeps, or that waits for `gate` within a step."""
    tea = Agent("tea")
    weighed: list[str] = []

    async def weigh() -> str:
        weighed.append("once")
        if len(weighed) == 1:
            raise ConnectionError("the scales are busy")
        return "100 g"

    def taste() -> str:
        return REPORT

    def ship() -> str:
        raise ValueError("no courier comes on Sundays")

    async def charge() -> dict[str, int]:
        await gate.wait()
        return {"receipt": 12}

    @tea.skill
    async def order(ctx: Context) -> AsyncIterator[str]:
        """Sell tea."""
        if ctx.text == "charge":
            await ctx.step("charge", charge, at_most_once=True)
            yield "paid"
            return
        await ctx.now()
        await ctx.uuid()
        await ctx.uuid()
        await ctx.step("weigh", weigh, key="tin 7", retries=1, backoff_s=0)
        await ctx.step("taste", taste)
        with suppress(StepFailed):
            await ctx.step("ship", ship)
        await ctx.sleep("2h", wake_on_message=True)
        yield "sold"

    return tea


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Site]:
    gate = asyncio.Event()
    async with serving_site(tmp_path, more=[make_tea_agent(gate)]) as site:
        site.gate = gate
        yield site


def row(page: Page, text: str) -> Locator:
    """The row of the timeline that says that."""
    return timeline(page).get_by_role("listitem").filter(has_text=text)


async def test_the_timeline_shows_steps_with_what_they_took_and_came_to(browser: Browser, shop: Site) -> None:
    task = await shop.send("tea", wait=False)
    async with console(browser, shop.url, shop.token, bypass_csp=True) as (page, _):
        await open_task(page, shop, task)
        await expect(row(page, "weigh")).to_contain_text(re.compile(r"tin 7\s*2 attempts, .* m?s\s*100 g"))
        await expect(row(page, "$now")).to_contain_text("$now, $uuid × 2")
        tasted = row(page, "taste")
        await expect(tasted.get_by_role("paragraph")).to_be_hidden()
        await tasted.get_by_text("Its result:").click()
        await expect(tasted.get_by_role("paragraph")).to_contain_text(REPORT.strip())
        failed = row(page, "ship")
        await expect(failed).to_contain_text(re.compile(r"failed.*ValueError: no courier comes on Sundays", re.DOTALL))
        assert await axe(page) == []


async def test_steps_and_sleep_are_spans_over_time(browser: Browser, shop: Site) -> None:
    task = await shop.send("tea", wait=False)
    async with console(browser, shop.url, shop.token) as (page, _):
        await open_task(page, shop, task)
        spans = page.get_by_role("region", name="Spans over time")
        await expect(spans.get_by_role("button", name=re.compile("^sleeps, .* so far"))).to_be_visible()
        steps = spans.get_by_role("list", name="Steps").get_by_role("button")
        await page.get_by_role("button", name="Zoom in").click()
        await expect(page.get_by_role("button", name="Zoom out")).to_be_enabled()
        await steps.first.press("Enter")  # or several that are too short to be told apart beside the sleep
        await expect(page.get_by_role("status").filter(has_text=re.compile(r"from \+|tell them apart"))).to_be_visible()


async def test_a_task_that_sleeps_is_shown_as_such_until_a_message_wakes_it(browser: Browser, shop: Site) -> None:
    task = await shop.send("tea", wait=False)
    async with console(browser, shop.url, shop.token) as (page, _):
        await open_task(page, shop, task)
        said = re.compile(r"until \d+ \w+ \d{4}, [\d:]+ UTC, in 1 h 59 min; a message wakes it earlier")
        await expect(row(page, "working, sleeping")).to_contain_text(said)
        await expect(moment(page)).to_contain_text(said)
        await expect(page.get_by_text("working, sleeping")).to_have_count(3)
        await (await replay(page)).fill("2")
        await expect(moment(page)).not_to_contain_text("sleeping")
        await page.get_by_role("button", name="Now", exact=True).click()
        await shop.send("tea", {"text": "wake up"}, task=task, wait=False)
        await expect(moment(page)).to_contain_text("sold")
        await expect(page.get_by_text("working, sleeping")).to_have_count(1)
        await expect(page.get_by_text("Sleeps", exact=True)).to_have_count(0)


async def test_sleeping_tasks_have_a_name_of_their_own_in_lists_and_numbers(browser: Browser, shop: Site) -> None:
    await shop.send("tea", wait=False)
    async with console(browser, shop.url, shop.token) as (page, _):
        await expect(page.get_by_role("region", name="Latest tasks")).to_contain_text("working, sleeping")
        await expect(page.get_by_role("link", name="Open tasks")).to_contain_text("of 1 in the store; 1 sleeping")
        await expect(page.get_by_role("region", name="Tasks by state")).to_contain_text("working, sleeping 1")
        await expect(page.get_by_role("region", name=re.compile("^Agents in"))).to_contain_text("1 sleeping")
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(page.get_by_role("row").filter(has_text="tea")).to_contain_text("working, sleeping")
        await page.get_by_role("link", name="Agents", exact=True).click()
        await expect(page.get_by_role("listitem").filter(has_text="tea").first).to_contain_text(
            re.compile(r"Sleeping\s*1")
        )


async def test_a_step_without_an_outcome_is_told_to_have_none(browser: Browser, shop: Site) -> None:
    task = await shop.send("tea", {"text": "charge"}, wait=False)
    async with console(browser, shop.url, shop.token) as (page, _):
        await open_task(page, shop, task)
        await expect(row(page, "charge begins")).to_contain_text("its outcome is not known yet")
        shop.gate.set()
        await expect(row(page, '{"receipt":12}')).to_contain_text("charge")
        await expect(row(page, "charge begins")).not_to_contain_text("not known")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_steps_and_sleep_are_accessible_and_fit(browser: Browser, shop: Site, scheme: str) -> None:
    """In the dark, only colours are different."""
    task = await shop.send("tea", wait=False)
    rules, sizes = (("color-contrast",), (WIDE,)) if scheme == "dark" else ((), (LARGE, WIDE, NARROW))
    async with console(browser, shop.url, shop.token, color_scheme=scheme, bypass_csp=True) as (page, seen):
        for path in (f"/tasks/{task}", f"/tasks/{task}?tab=wire", "/tasks", "/agents", ""):
            await page.goto(f"{shop.url}/console{path}")
            await page.get_by_text("sleeping").filter(visible=True).first.wait_for()
            for size in sizes:
                await page.set_viewport_size(ViewportSize(width=size["width"], height=size["height"]))
                await seen.settle(page)
                assert await axe(page, *rules) == [], path
                assert "/tasks/" not in path or await overlaps(page) == [], path
                assert await page.evaluate("() => document.documentElement.scrollWidth") <= size["width"], path
