"""The views of the console in a real browser, against a real server with real tasks."""

import asyncio
import json
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Route, ViewportSize, expect

from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.auth.operator_token import read_token
from dragoman.config import Config, Upstream
from dragoman.config.budgets import Budget
from dragoman.model.card import Profile
from dragoman.server import serving
from tests.console.browser import COVERED, NARROW, WIDE, axe, console, overlaps
from tests.console.site import Site, make_agents, moment, open_task, replay, serving_site, timeline
from tests.drills.proxy import before
from tests.spoil import spoil_file
from tests.store.cases.spoiling import cut

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="  # a dot

pytestmark = [pytest.mark.slow, pytest.mark.peer]


async def test_the_link_of_the_server_signs_in_and_leaves_no_token_in_the_address(browser: Browser, site: Site) -> None:
    async with console(browser, site.url, site.token) as (page, _):
        assert page.url == f"{site.url}/console"
        await page.reload()
        await page.get_by_role("heading", level=1, name="Overview").wait_for()
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("button", name="Sign in").wait_for()
        await page.reload()
        await page.get_by_label("Operator's key").fill("dgo_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("has a new token")
        await page.get_by_label("Operator's key").fill(site.token)
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", level=1, name="Overview").wait_for()


async def test_an_open_tab_follows_links_and_other_tabs_and_says_why_it_is_out(browser: Browser, site: Site) -> None:
    async with console(browser, site.url) as (page, _):
        await page.goto("/console/tasks")
        await expect(page).to_have_title("Sign in · Dragoman")
        other = await page.context.new_page()
        await other.goto("/console#token=dgo_of_yesterday")
        await expect(other.get_by_role("status")).to_contain_text("has a new token")
        await other.evaluate(f"location.hash = 'token={site.token}'")
        await other.get_by_role("heading", level=1, name="Overview").wait_for()
        assert other.url == f"{site.url}/console"
        await page.get_by_role("heading", level=1, name="Tasks").wait_for()
        await other.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("status")).to_contain_text("signed out in another tab")
        await page.evaluate(f"location.hash = 'token={site.token}'")
        await page.get_by_role("heading", level=1, name="Tasks").wait_for()
        await page.context.clear_cookies()
        await page.get_by_role("link", name="Keys").click()
        await expect(page.get_by_role("status")).to_contain_text("Your session has ended")


async def test_any_context_has_a_link_that_leads_to_it(browser: Browser, site: Site) -> None:
    contexts = ("..", "a/../b", "~")
    for context in contexts:
        await site.send("echo", {"text": f"said in {context}"}, context=context)
    async with console(browser, site.url, site.token) as (page, _):
        for context in contexts:
            await page.goto("/console/conversations")
            await page.get_by_role("link", name=f"said in {context}", exact=True).click()
            await expect(page.get_by_role("heading", level=1)).to_have_text(context)
            await expect(page.get_by_text("1 task", exact=True)).to_be_visible()
            await expect(page).to_have_title(f"Conversation {context} · Dragoman")
            await page.reload()
            await expect(page.get_by_role("heading", level=1)).to_have_text(context)


async def test_a_newcomer_reads_the_timeline_of_a_streamed_answer_after_one_click(browser: Browser, site: Site) -> None:
    cards, read = asyncio.Event(), re.compile(r"/agents/\w+/\.well-known/")

    async def serve_later(route: Route) -> None:
        await cards.wait()
        await route.continue_()

    async with console(browser, site.url, bypass_csp=True) as (page, seen):
        await page.route(read, serve_later)
        await page.goto(f"{site.url}/console#token={site.token}")
        await page.get_by_text("All 5 agents").wait_for()
        await expect(page.get_by_role("button", name=re.compile("Hello!|Send an example"))).to_have_count(1)
        await expect(page.get_by_role("button", name="Send an example")).to_be_disabled()
        cards.set()
        await expect(page.get_by_text("Three things to begin with")).to_be_visible()
        await seen.settle(page)
        assert await axe(page) == []
        await expect(page.get_by_role("tabpanel")).to_contain_text(f"{site.url}/agents/echo/message:stream")
        await page.get_by_role("button", name="Send an example, and read its task").click()
        await expect(timeline(page)).to_contain_text("completed")
        await page.go_back()
        await page.get_by_role("region", name="Latest tasks").get_by_role("link").wait_for()


async def test_an_example_of_an_agent_is_said_with_one_click(browser: Browser, site: Site) -> None:
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("listitem").filter(has_text="asks").get_by_role("button", name="Ask me").click()
        talk = page.get_by_role("region", name="Conversation")
        await expect(talk.get_by_role("article")).to_have_text(["Ask me", "Which way?"])
        await expect(page).to_have_title(re.compile(r"Try asks · Dragoman$"))
        await page.reload()
        await expect(talk.get_by_role("article")).to_have_text(["Ask me", "Which way?"])
        await page.get_by_role("link", name="Agents").first.click()
        await page.get_by_role("button", name="Ask me").click()
        await expect(talk.get_by_role("article")).to_have_text(["Ask me", "Which way?"])  # and is no answer
    listed = await site.admin("GET", "/tasks")
    assert [task["state"] for task in listed["tasks"]] == ["input-required"] * 2


async def test_the_overview_counts_and_follows(browser: Browser, site: Site) -> None:
    await site.send("asks")
    async with console(browser, site.url, site.token) as (page, _):
        await expect(page.get_by_role("link", name="Need an answer")).to_contain_text("1")
        loaded: list[str] = []
        page.on("request", lambda request: loaded.append(request.url))
        await page.reload()
        await expect(page.get_by_role("link", name="Need an answer")).to_contain_text("1")
        assert not any("FirstSteps" in url for url in loaded), "the first steps flash up on a server with tasks"
        await site.send("broken")
        await expect(page.get_by_role("link", name="Failed", exact=False).first).to_contain_text("1")
        await expect(page.get_by_role("region", name="Latest tasks")).to_contain_text("broken")
        await page.get_by_role("link", name="Need an answer").click()
        await page.get_by_role("heading", level=1, name="Inbox").wait_for()


async def test_tasks_are_filtered_and_the_address_and_the_browser_hold_the_view(browser: Browser, site: Site) -> None:
    for agent in ("echo", "echo", "asks"):
        await site.send(agent)
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(page.get_by_role("row")).to_have_count(4)
        await page.get_by_label("Agent", exact=True).select_option("echo")
        await expect(page.get_by_role("row")).to_have_count(3)
        await page.get_by_label("State", exact=True).select_option("failed")
        await expect(page.get_by_text("No task fits")).to_be_visible()
        await page.reload()
        await expect(page.get_by_text("No task fits")).to_be_visible()
        await page.get_by_role("link", name="Clear").click()
        await expect(page.get_by_role("row")).to_have_count(4)
        await site.send("echo")
        await expect(page.get_by_role("row")).to_have_count(5)
        await page.get_by_text("Columns", exact=True).click()
        await page.get_by_label("Column Dialect").check()
        await page.get_by_label("Column Principal").uncheck()
        await page.reload()
        await expect(page.get_by_role("columnheader", name="Dialect")).to_be_visible()
        await expect(page.get_by_role("columnheader", name="Principal")).to_have_count(0)
        await page.get_by_label("Duration", exact=True).select_option("Over 1 h")
        await expect(page.get_by_text("No task fits")).to_be_visible()


async def test_pages_of_tasks_go_forward_and_back(browser: Browser, site: Site) -> None:
    for _ in range(60):
        await site.send("echo")
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(page.get_by_role("row")).to_have_count(51)
        await page.get_by_role("button", name="Next page").click()
        await expect(page.get_by_role("row")).to_have_count(11)
        await expect(page.get_by_role("button", name="Next page")).to_be_disabled()
        await page.get_by_role("button", name="Previous page").click()
        await expect(page.get_by_role("row")).to_have_count(51)


async def test_chosen_tasks_are_canceled_and_all_that_fit(browser: Browser, site: Site) -> None:
    for agent in ("asks", "asks", "echo"):
        await site.send(agent)
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await page.get_by_label("Select all open tasks on this page").check()
        await page.get_by_role("button", name="Cancel them").click()
        await expect(page.get_by_role("status")).to_contain_text("2 tasks canceled")
        await expect(page.get_by_role("row", name="canceled")).to_have_count(2)
        more = [await site.send("asks") for _ in range(3)]
        await page.goto("/console/tasks?agent=asks&state=input-required")
        await page.get_by_role("button", name="Act on all that fit").click()
        dialog = page.get_by_role("dialog", name="All tasks that fit")
        await dialog.get_by_label("Why").fill("a test")
        await dialog.get_by_role("button", name="Count them").click()
        await dialog.get_by_role("button", name="Cancel 3 tasks").click()
        await expect(page.get_by_role("region", name="Bulk act")).to_contain_text("3 of 3 done")
        await expect(page.get_by_text("No task fits")).to_be_visible()
    states = {(await site.admin("GET", f"/tasks/{task}"))["task"]["state"] for task in more}
    assert states == {"canceled"}


async def test_a_task_grows_while_it_is_looked_at(browser: Browser, site: Site) -> None:
    task = await site.send("steps", wait=False)
    async with console(browser, site.url, site.token) as (page, _):
        await open_task(page, site, task)
        await expect(moment(page)).to_contain_text("one")
        await expect(moment(page)).to_contain_text("1 of 2")
        await expect(moment(page)).to_contain_text("growing")
        site.gate.set()
        await expect(moment(page)).to_contain_text("one two")
        await expect(moment(page)).not_to_contain_text("growing")
        await expect(timeline(page)).to_contain_text("completed")


async def test_the_replay_shows_the_task_as_it_stood(browser: Browser, site: Site) -> None:
    site.gate.set()
    task = await site.send("steps")
    async with console(browser, site.url, site.token) as (page, _):
        await open_task(page, site, task)
        await expect(moment(page)).to_contain_text("one two")
        await (await replay(page)).fill("2")
        await expect(moment(page)).not_to_contain_text("one")
        await expect(moment(page)).to_contain_text("working")
        await timeline(page).get_by_role("button").filter(has_text="2 of 2").click()
        await expect(moment(page)).to_contain_text("second step")
        await page.wait_for_url(re.compile(r"\?at=(?!2$)"))  # the address can be sent to somebody else
        await page.reload()
        await expect(moment(page)).to_contain_text("second step")
        await expect(moment(page)).not_to_contain_text("two")
        await page.get_by_label("Speed of the replay").select_option("100 ×")
        await page.get_by_role("button", name="Play the log").click()
        await expect(moment(page)).to_contain_text("one two")
        await expect(moment(page)).to_contain_text("completed")


async def test_a_task_is_canceled_where_it_is_looked_at(browser: Browser, site: Site) -> None:
    task = await site.send("asks")
    async with console(browser, site.url, site.token) as (page, _):
        await open_task(page, site, task)
        await page.get_by_role("button", name="Cancel", exact=True).click()
        await expect(timeline(page)).to_contain_text("canceled")
        await expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)


async def test_a_task_that_is_gone_is_told_to_be_and_no_empty_one_is_shown(browser: Browser, site: Site) -> None:
    async with console(browser, site.url, site.token) as (page, _):
        await page.goto("/console/tasks/gone")
        await expect(page.get_by_text("No such task is in the store")).to_be_visible()
        await expect(page.get_by_role("tab")).to_have_count(0)
        await expect(page.get_by_role("slider")).to_have_count(0)


async def test_a_damaged_task_is_told_to_be_and_offers_nothing_that_is_refused(
    browser: Browser, tmp_path: Path
) -> None:
    async with serving_site(tmp_path) as site:
        asking = await site.send("asks")
    of_task = f"task = (SELECT task FROM tasks WHERE id = '{asking}')"
    await spoil_file(tmp_path / "dragoman.db")("pages", "events", of_task, cut)
    async with serving_site(tmp_path) as site, console(browser, site.url, site.token) as (page, _):
        await open_task(page, site, asking)
        await expect(page.get_by_text(f"dragoman admin tasks delete {asking} --force")).to_be_visible()
        await expect(page.get_by_role("button", name="Send again")).to_be_disabled()
        await expect(page.get_by_role("button", name="Cancel")).to_be_enabled()
        await expect(page.get_by_role("button", name="Answer")).to_have_count(0)
        await expect(page.get_by_text("have been deleted")).to_have_count(0)


async def test_content_is_shown_as_what_it_is_and_saved(browser: Browser, site: Site) -> None:
    task = await site.send(
        "echo",
        {"text": "# Report\n\nA **bold** word.\n\n| city | °C |\n|---|---|\n| Oslo | 4 |\n\n```\ncode\n```"},
        {"data": {"rows": [{"city": "Oslo"}], "ok": True}},
        {"raw": PNG, "mediaType": "image/png", "filename": "dot.png"},
        {"raw": "aGVsbG8=", "mediaType": "text/html", "filename": "page.html"},
    )
    async with console(browser, site.url, site.token) as (page, _):
        await open_task(page, site, task)
        artifact = moment(page).get_by_role("article").last
        await expect(artifact.get_by_role("heading", name="Report")).to_be_visible()
        await expect(artifact.get_by_role("cell", name="Oslo")).to_be_visible()
        await expect(artifact.locator("strong")).to_have_text("bold")
        await expect(artifact.get_by_role("button", name="rows")).to_be_visible()
        await expect(artifact.get_by_role("img", name="dot.png")).to_be_visible()
        async with page.expect_download() as download:
            await artifact.get_by_role("button", name="Download").last.click()
        saved = await (await download.value).path()
        assert Path(saved).read_bytes() == b"hello"
        assert (await download.value).suggested_filename == "page.html"
        async with page.expect_download() as saving:
            await page.get_by_role("button", name="Export").click()
        export = await saving.value
        assert export.suggested_filename == f"task-{task}.json"
        record = json.loads(Path(await export.path()).read_text())
    assert (record["head"]["id"], len(record["events"])) == (task, record["seq"])


async def test_the_wire_tells_by_concept_what_each_client_learns(browser: Browser, site: Site) -> None:
    task = await site.send("echo", {"text": "over the wire"})
    async with console(browser, site.url, site.token) as (page, _):
        await open_task(page, site, task)
        await page.get_by_role("tab", name="The wire").click()
        for name in ("BeeOS", "Evo AI", "protoAgent"):
            await page.get_by_label(name).check()
        await page.reload()  # the address keeps the choice
        frames = page.get_by_role("region", name="Frames by dialect")
        for name in ("A2A 1.0", "A2A 0.3", "BeeOS", "KAOS", "Evo AI", "protoAgent"):
            await expect(frames.get_by_role("columnheader", name=name)).to_be_visible()
        sentences = page.get_by_label("What a client can learn")
        await expect(sentences).to_contain_text(
            re.compile("KAOS\\s*No stream, a client asks for the task again; no tokens")
        )
        texts = frames.get_by_role("row", name=re.compile("^text "))
        await expect(texts.first.get_by_role("cell").first).to_contain_text("over the wire")
        ended = frames.get_by_role("rowgroup").last
        await expect(ended.get_by_role("row", name=re.compile("^state "))).to_contain_text("TASK_STATE_COMPLETED")
        await expect(ended.get_by_role("row", name=re.compile("^state "))).not_to_contain_text("≠")
        await expect(ended.get_by_role("row", name=re.compile("^tokens ")).get_by_text("✕ not told")).to_have_count(3)
        await ended.get_by_role("button", name="frame").first.click()
        await expect(ended).to_contain_text("POST /agents/echo HTTP/1.1")
        await expect(ended).to_contain_text("content-type: text/event-stream")
        await expect(ended).to_contain_text(re.compile(r'id: 4\s*data: \{"jsonrpc":"2.0",.*"statusUpdate"'))


async def test_agents_and_servers_are_listed(browser: Browser, site: Site) -> None:
    async with console(browser, site.url, site.token, bypass_csp=True) as (page, _):
        await page.get_by_role("link", name="Agents").first.click()
        for agent in ("echo", "steps", "asks", "broken", "chief"):
            await expect(page.get_by_role("heading", name=agent)).to_be_visible()
        await expect(page.get_by_role("list", name="Skills of chief")).to_contain_text("Give the work to echo.")
        await expect(page.get_by_text("everybody who reaches this server")).to_have_count(5)
        await page.get_by_role("button", name="Card of echo").press("Enter")
        card = page.get_by_role("region", name="The card of echo")
        await expect(card).to_contain_text("Give the parts back.")
        await expect(card).to_contain_text(f"{site.url}/agents/echo")
        await expect(card).to_contain_text("streams, webhooks")
        assert await axe(page) == []
        await page.get_by_role("link", name="Try it").last.click()
        await expect(page.get_by_role("combobox", name="Agent")).to_have_value("chief")
        await page.get_by_role("link", name="Servers and workers").click()
        await expect(page.get_by_role("cell", name="asks, broken, chief, echo, steps", exact=False)).to_be_visible()


VIEWS = (
    *("", "/tasks", "/agents", "/servers", "/usage", "/try", "/webhooks", "/audit", "/nowhere"),
    *("/keys", "/conversations", "/conversations/a-context"),
    *("TASK", "TASK?tab=wire", "TASK?tab=tree", "TASK?tab=webhooks"),
)


@pytest.fixture(scope="module")
async def full_site(used_site: Site) -> tuple[Site, str]:
    """A server with tasks in several states, and one of them that has a lot to show."""
    task = await used_site.send(
        "echo",
        {"text": f"Some **text**, `code` and [a link](https://example.com). {'x' * 400}"},
        {"data": {"a": "y" * 400}},
        context="a-context",
        webhook=f"http://127.0.0.1:9/{'z' * 400}",
    )
    for agent in ("asks", "broken"):
        await used_site.send(agent)
    return used_site, task


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_wrong(browser: Browser, full_site: tuple[Site, str], scheme: str) -> None:
    """In the dark, only colours are different."""
    site, task = full_site
    rules = ("color-contrast",) if scheme == "dark" else ()
    async with console(browser, site.url, site.token, color_scheme=scheme, bypass_csp=True) as (page, seen):
        for view in VIEWS:
            await page.goto(f"{site.url}/console{view.replace('TASK', f'/tasks/{task}')}")
            await seen.settle(page)
            assert await axe(page, *rules) == [], view


async def test_axe_finds_nothing_wrong_with_the_sign_in(browser: Browser, site: Site) -> None:
    async with console(browser, site.url, bypass_csp=True) as (page, _):
        await page.goto(f"{site.url}/console")
        await page.get_by_role("button", name="Sign in").wait_for()
        assert await axe(page) == []


async def test_nothing_is_wider_than_its_window_or_lies_over_something(
    browser: Browser, full_site: tuple[Site, str]
) -> None:
    site, task = full_site
    async with console(browser, site.url, site.token) as (page, seen):
        for view in VIEWS:
            await page.goto(f"{site.url}/console{view.replace('TASK', f'/tasks/{task}')}")
            for size in (WIDE, NARROW):
                await page.set_viewport_size(ViewportSize(width=size["width"], height=size["height"]))
                await seen.settle(page)
                width = await page.evaluate("() => document.documentElement.scrollWidth")
                assert width <= size["width"], view
                assert await page.evaluate(COVERED) == [], (view, size)
        await page.goto(f"{site.url}/console/audit?reads=true")
        await expect(page.get_by_role("region", name="Entries, as a table")).to_have_attribute("tabindex", "0")
        await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("navigation", name="Views").get_by_text("Servers and workers").click()
        await page.get_by_role("heading", level=1, name="Servers and workers").wait_for()
        await expect(page.get_by_role("button", name="Menu")).to_have_attribute("aria-expanded", "false")


async def test_everything_can_be_reached_by_keyboard(browser: Browser, site: Site) -> None:
    task = await site.send("asks")
    async with console(browser, site.url, site.token) as (page, _):
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="To the content")).to_be_focused()
        await page.get_by_role("link", name="Tasks", exact=True).focus()
        await page.keyboard.press("Enter")
        row = page.get_by_role("row").filter(has_text="asks")
        await row.get_by_role("link").first.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/tasks/{task}")
        await expect(moment(page)).to_contain_text("Which way?")
        await (await replay(page)).focus()
        await page.keyboard.press("Home")
        await expect(moment(page)).to_contain_text("submitted")


async def test_an_operator_answers_and_refuses_for_the_caller(browser: Browser, site: Site) -> None:
    answered, refused = await site.send("asks"), await site.send("asks")
    async with console(browser, site.url, site.token) as (page, _):
        await open_task(page, site, answered)
        await page.get_by_label("Answer", exact=True).get_by_label("Answer", exact=True).fill("left")
        await page.keyboard.press("Enter")
        await expect(moment(page)).to_contain_text("so left")
        await expect(timeline(page)).to_contain_text("operator:local answered")
        await open_task(page, site, refused)
        await page.get_by_label("Reason, for the log").fill("too late")
        await page.get_by_role("button", name="Refuse").click()
        await expect(moment(page)).to_contain_text("so no")
        await expect(timeline(page)).to_contain_text("too late")


async def test_an_agent_is_tried_and_the_same_can_be_copied(browser: Browser, site: Site) -> None:
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Try it").click()
        talk = page.get_by_role("region", name="Conversation")
        await page.get_by_role("combobox", name="Agent").select_option("asks")
        await talk.get_by_role("button", name="Options").click()
        await talk.get_by_role("combobox", name="Skill").select_option("ask")
        await talk.get_by_label("Context").fill("tried-here")
        await talk.get_by_label("Message to asks").fill("hello")
        program = page.get_by_role("region", name="The same from a program")
        await expect(program).to_contain_text('"text":"hello"')
        await expect(program).to_contain_text('"contextId":"tried-here"')
        await expect(program).to_contain_text('"metadata":{"skill":"ask"}')
        await page.keyboard.press("Enter")
        await expect(talk).to_contain_text("Which way?")
        await expect(program).to_contain_text('"text":"hello"')
        await expect(program).not_to_contain_text("taskId")  # a program is another caller, without that task
        await talk.get_by_label("Message to asks").fill("right")
        await page.keyboard.press("Enter")
        await expect(talk).to_contain_text("so right")
        await expect(talk.get_by_text("completed")).to_be_visible()
        await page.get_by_label("raw JSON").check()
        await expect(talk.get_by_role("button", name="event 1").first).to_be_visible()
        await program.get_by_role("tab", name="curl").press("ArrowRight")
        await program.get_by_role("tab", name="Command").press("ArrowRight")
        await expect(program.get_by_role("tab", name="Python")).to_be_focused()
        await expect(program).to_contain_text(f'connect("{site.url}/agents/asks")')
        await talk.get_by_role("link", name="its timeline").last.click()
        await expect(moment(page)).to_contain_text("so right")
        await expect(page.get_by_role("link", name="tried-here")).to_be_visible()


async def test_a_conversation_is_stopped_and_kept(browser: Browser, site: Site) -> None:
    async with console(browser, site.url, site.token) as (page, _):
        await page.goto("/console/try?agent=steps")
        talk = page.get_by_role("region", name="Conversation")
        await talk.get_by_role("button", name="Hello!").click()
        await expect(talk.get_by_role("progressbar", name="Progress")).to_have_attribute("value", "0.5")
        await expect(talk.get_by_role("article").filter(has_text="first step")).to_have_count(0)
        await page.reload()
        await talk.get_by_role("button", name="Stop").click()
        await expect(talk.get_by_text("canceled", exact=True)).to_be_visible()
        await expect(talk.get_by_role("progressbar")).to_have_count(0)
        await page.get_by_role("link", name="Keys").click()
        site.gate.set()
        await page.get_by_role("link", name="Try it").click()
        await page.get_by_role("combobox", name="Agent").select_option("steps")
        await talk.get_by_label("Message to steps").fill("again")
        await page.keyboard.press("Enter")
        await expect(talk.get_by_text("completed", exact=True)).to_be_visible()
        await expect(talk.get_by_text("canceled", exact=True)).to_be_visible()
        await expect(talk.get_by_role("article").filter(has_text="one two")).to_be_visible()
        await page.reload()
        await expect(talk.get_by_text("completed", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("button", name="Sign in").wait_for()
        assert await page.evaluate("() => sessionStorage.length") == 0


async def test_usage_is_added_up_and_silence_is_no_zero(browser: Browser, site: Site) -> None:
    await site.send("echo")
    await site.send("broken")
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Usage").click()
        echo = page.get_by_role("row").filter(has_text="echo")
        await expect(echo).to_contain_text("12")
        await expect(echo).to_contain_text("34")
        await expect(page.get_by_role("row").filter(has_text="broken")).to_contain_text("not reported")
        await expect(page.get_by_role("status")).to_contain_text("1 agent says nothing of tokens: broken")
        await expect(page.get_by_role("img", name="Tokens by day and agent: 46")).to_be_visible()
        await page.get_by_label("principal").uncheck()
        await expect(page.get_by_role("columnheader", name="principal")).to_have_count(0)


async def test_budgets_show_what_is_used_of_them_and_when_they_reset(browser: Browser, tmp_path: Path) -> None:
    daily = Budget(id="daily", unit="tasks", limit=4, per="agent", period="day")
    ever = Budget(id="ever", unit="tokens", limit=1000, agent="echo", period="forever", hard=False)
    async with serving_site(tmp_path, budgets=(daily, ever)) as site:
        await site.send("echo")
        await site.send("asks")
        async with console(browser, site.url, site.token) as (page, _):
            await page.get_by_role("link", name="Usage").click()
            table = page.get_by_role("region", name="Budgets")
            of_echo, of_asks = (
                table.get_by_role("row").filter(has_text=f"agent {agent}") for agent in ("echo", "asks")
            )
            await expect(of_echo.first).to_contain_text("1 tasks")
            await expect(of_asks).to_contain_text("refuses tasks")
            await expect(of_asks.get_by_role("cell").nth(3)).to_have_text("1")
            await expect(table.get_by_role("row").filter(has_text="ever")).to_contain_text("46 tokens")
            await expect(table.get_by_role("row").filter(has_text="ever")).to_contain_text("never")


async def test_delegations_are_shown_in_the_order_of_time(browser: Browser, site: Site) -> None:
    task = await site.send("chief", {"text": "share this"})
    async with console(browser, site.url, site.token) as (page, _):
        await open_task(page, site, task)
        await expect(timeline(page)).to_contain_text("Delegated to echo")
        for width in (1280, 380):
            await page.set_viewport_size({"width": width, "height": 860})
            assert await overlaps(page) == [], width
        await page.get_by_role("tab", name="Delegations").click()
        tree = page.get_by_role("region", name="Delegations")
        await expect(tree.get_by_role("listitem")).to_have_count(2)
        await tree.get_by_role("link", name="echo").click()
        await expect(page.get_by_text("Delegated by")).to_be_visible()
        await expect(moment(page)).to_contain_text("share this")


async def test_what_agents_elsewhere_made_of_a_task_is_among_its_delegations(browser: Browser, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"port": 0, "shutdown_grace_s": 0.2, "cancel_grace_s": 60.0}
    gate, store = asyncio.Event(), f"sqlite:///{tmp_path}/dragoman.db"
    async with (
        serving(Config(store="memory:", **settings), make_agents(gate)) as elsewhere,
        before("127.0.0.1", int(elsewhere.rpartition(":")[2])) as wire,
        aiohttp.ClientSession() as http,
    ):
        address = Upstream(url=f"http://127.0.0.1:{wire.port}/agents/steps", retry_wait_s=0.1)
        far = UpstreamAgent(Profile(id="far", name="far", description="far", version="1", skills=()), address)
        async with serving(Config(store=store, **settings), [far]) as url:
            site = Site(url, read_token(store, 0) or "", http, gate)
            task = await site.send("far", {"text": "share this"}, wait=False)
            async with console(browser, url, site.token) as (page, _):
                await open_task(page, site, task, "?tab=tree")
                rows = page.get_by_role("region", name="Delegations").get_by_role("listitem")
                await expect(rows).to_have_count(2)
                await expect(rows.last).to_contain_text(f"at 127.0.0.1:{wire.port}")
                await expect(rows.last).to_contain_text("It is a Dragoman, too")
                await expect(rows.last).not_to_contain_text("Ours is")
                wire.refuse()
                await expect(rows.last).to_contain_text("The connection was lost at")
                await page.get_by_role("button", name="Cancel", exact=True).click()
                await expect(rows.last).to_contain_text("Ours is canceled; the other server last said working.")
                await expect(rows.last).to_contain_text("did not answer our cancel")
                wire.heal()
                await page.get_by_role("button", name="Ask it now").click()
                await expect(rows.last.get_by_role("status")).to_contain_text("working")
                wire.refuse()
                await page.get_by_role("button", name="Ask it now").click()
                await expect(rows.last.get_by_role("status")).to_contain_text(
                    f"No answer: http://127.0.0.1:{wire.port}"
                )
                assert await axe(page) == []


async def test_calls_that_failed_are_shown_with_the_reason(browser: Browser, tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)

    receiver = web.Application()
    receiver.router.add_post("/hook", refuse)
    store = f"sqlite:///{tmp_path}/dragoman.db"
    config = Config(port=0, store=store, push_allowed_hosts=("127.0.0.1",), shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with (
        TestServer(receiver) as hook,
        serving(config, make_agents(asyncio.Event())) as url,
        aiohttp.ClientSession() as http,
    ):
        site = Site(url, read_token(store, 0) or "", http, asyncio.Event())
        await site.send("echo", webhook=str(hook.make_url("/hook")))
        async with console(browser, url, site.token) as (page, _):
            await page.get_by_role("link", name="Webhooks").click()
            failed = page.get_by_role("region", name="Calls", exact=True).get_by_role("row").filter(has_text="HTTP 503")
            await expect(failed).to_have_count(1)
            await expect(failed).to_contain_text("echo")
            group = page.get_by_role("region", name="By host and cause").get_by_role("row").filter(has_text="HTTP 503")
            await expect(group).to_contain_text("is tried again")
            await group.get_by_role("button", name="Its calls").click()
            await expect(page.get_by_text(f"to {hook.make_url('')}".rstrip("/"), exact=True)).to_be_visible()
            await expect(failed).to_have_count(1)
            await group.get_by_role("button", name="Pause").click()
            await group.get_by_role("button", name="Resume").click()
            await page.get_by_role("button", name="All hosts").click()
            await page.get_by_role("combobox", name="Calls").select_option("Given up")
            await expect(page.get_by_text("No call was given up")).to_be_visible()


async def test_the_audit_trail_is_searched(browser: Browser, site: Site) -> None:
    task = await site.send("asks")
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Audit").click()
        await site.admin("POST", f"/tasks/{task}:cancel")
        await expect(page.get_by_role("row").filter(has_text="tasks.cancel").first).to_contain_text("operator:local")
        rows = page.get_by_role("region", name="Entries").get_by_role("row")
        await expect(rows.filter(has_text=re.compile("stats.show|events.follow"))).to_have_count(0)
        await page.get_by_label("reads, too").check()
        await expect(rows.filter(has_text="stats.show").first).to_be_visible()
        await page.get_by_role("searchbox", name="action").fill("tasks.cancel")
        await page.keyboard.press("Enter")
        await expect(rows).to_have_count(2)
        await expect(rows.last).to_contain_text(task[-10:])
        await page.get_by_role("searchbox", name="any word").fill("no such thing")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("No entry fits")).to_be_visible()


async def test_the_overview_draws_an_hour_and_a_month_and_tells_what_happened_meanwhile(
    browser: Browser, site: Site
) -> None:
    for _ in range(3):
        await site.send("echo")
    await site.send("broken", {"text": "pay the bill"})
    async with console(browser, site.url) as (page, _):
        await page.add_init_script("Object.defineProperty(navigator, 'language', {get: () => 'en-US@posix'})")
        await page.goto(f"{site.url}/console#token={site.token}")
        figures = page.get_by_role("region", name="Figures")
        for span in ("hour", "month"):
            await figures.get_by_text(span, exact=True).click()
            await expect(figures.get_by_role("img", name=f"Tasks that ended: 4 in the last {span}")).to_be_visible()
            await expect(figures.get_by_role("img", name="Errors: 1, 25 % of all")).to_be_visible()
            await expect(figures.get_by_role("img", name="Tokens: 36 in, 102 out")).to_be_visible()
            echo = page.get_by_role("region", name="Agents").get_by_role("row").filter(has_text="echo")
            await expect(echo).to_contain_text("3")
        await figures.get_by_label("Agent of the charts").select_option("broken")
        await expect(figures.get_by_role("img", name="Tasks that ended: 1 in the last month")).to_be_visible()
        assert await axe(page) == []
        news = page.get_by_role("region", name="Since you last looked")
        await expect(news).to_have_count(0)
        ago = "(() => { const at = Date.now() - 3600e3; return JSON.stringify({since: at - 1, seen: at}); })()"
        await page.goto("/console/audit")
        await page.evaluate(f"localStorage.setItem('dragoman.looked', {ago})")
        await page.goto("/console")
        await expect(news).to_contain_text("1 failed")
        await news.get_by_role("link", name="pay the bill").click()
        await expect(timeline(page)).to_contain_text("failed")
