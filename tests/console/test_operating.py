"""Operators find tasks and act on them, in a real browser against a real server."""

from http import HTTPStatus
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, expect

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.principal import AccessRole
from tests.console.browser import axe, console
from tests.console.site import Site, moment, open_task, serving_site
from tests.kit.places import add_keys, sqlite_url

pytestmark = [pytest.mark.slow, pytest.mark.peer]


async def test_tasks_are_sorted_and_the_address_holds_the_order(browser: Browser, site: Site) -> None:
    first, *_ = [await site.send("asks", {"text": text}) for text in ("one", "two", "three")]
    await site.admin("POST", f"/tasks/{first}:cancel")
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Tasks", exact=True).click()
        words = page.get_by_role("row").locator("td.task a")
        await expect(words).to_have_text(["one", "three", "two"])
        await page.get_by_role("columnheader", name="Changed").get_by_role("button").click()
        await expect(words).to_have_text(["two", "three", "one"])
        await page.get_by_label("Order").select_option("Newest made first")
        await expect(words).to_have_text(["three", "two", "one"])
        await page.reload()
        await expect(words).to_have_text(["three", "two", "one"])
        await page.get_by_role("columnheader", name="Made").get_by_role("button").press("Enter")
        await expect(words).to_have_text(["one", "two", "three"])
        await page.get_by_role("searchbox", name="text", exact=True).fill("o")
        await page.get_by_role("searchbox", name="text", exact=True).press("Enter")
        await expect(words).to_have_text(["one", "two"])
        await page.get_by_label("Order").select_option("Newest made first")
        await expect(words).to_have_text(["two", "one"])


async def test_of_two_operators_the_first_answer_counts_and_the_second_is_told_whose(
    browser: Browser, site: Site
) -> None:
    await site.send("asks", {"text": "to be answered"})
    async with console(browser, site.url, site.token) as (one, _), console(browser, site.url, site.token) as (two, _):
        for page in (one, two):
            await expect(page).to_have_title("(1) Overview · Dragoman")
            await page.get_by_role("link", name="Inbox 1 waiting").click()
            await expect(page.get_by_role("listitem").filter(has_text="to be answered")).to_contain_text("Which way?")
        await two.get_by_role("textbox", name="Answer").fill("right")
        await one.get_by_role("textbox", name="Answer").fill("left")
        await one.get_by_role("textbox", name="Answer").press("Enter")
        await expect(one.get_by_text("Nothing waits for a person")).to_be_visible()
        await expect(one).to_have_title("Inbox · Dragoman")
        await expect(two.get_by_text("This question needs no answer any more")).to_be_visible()
        await two.get_by_role("button", name="Answer", exact=True).click()
        await expect(two.get_by_role("alert")).to_contain_text("operator:local has answered this question already")
        await expect(two.get_by_role("textbox", name="Answer")).to_have_value("right")
        assert await axe(two) == []
        for words in ("next", "last"):
            await site.send("asks", {"text": words})
        await expect(one.get_by_role("textbox", name="Answer")).to_have_count(2)
        assert await axe(one) == []
        await one.get_by_role("textbox", name="Answer").first.fill("left")
        await one.get_by_role("textbox", name="Answer").first.press("Enter")
        await expect(one.get_by_role("link", name="last")).to_be_focused()


async def test_one_search_finds_what_one_remembers_and_opens_it_by_keys(browser: Browser, site: Site) -> None:
    task = await site.send("echo", {"text": "a needle in the hay"})
    async with console(browser, site.url, site.token) as (page, _):
        await page.keyboard.press("Control+k")
        field = page.get_by_role("combobox", name="Search")
        for words, kind in (
            ("NEEDLE", "a needle in the hay"),
            (task[-8:], "a needle in the hay"),
            ("echo", "tasks of echo"),
        ):
            await field.fill(words)
            await expect(page.get_by_role("option").first).to_contain_text(kind)
        assert await axe(page) == []
        await field.fill("needle")
        await expect(page.get_by_role("option").first).to_contain_text(task)
        await field.press("Enter")
        await page.wait_for_url(f"**/tasks/{task}")
        await expect(page).to_have_title("a needle in the hay · Dragoman")
        await page.keyboard.press("?")
        await page.get_by_label("Single keys are shortcuts").uncheck()
        await page.keyboard.press("Escape")
        await page.keyboard.press("/")
        await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_a_task_is_sent_again(browser: Browser, used_site: Site) -> None:
    task = await used_site.send("echo", {"text": "once more"}, {"data": {"a": 1}})
    async with console(browser, used_site.url, used_site.token) as (page, _):
        await open_task(page, used_site, task)
        await page.get_by_role("button", name="Send again").click()
        await page.wait_for_url(lambda url: task not in url)
        await expect(moment(page).get_by_role("article").last).to_contain_text("once more")
        await expect(page.get_by_role("link", name="operator:local")).to_be_visible()


async def test_a_conversation_is_read_as_one_thread(browser: Browser, used_site: Site) -> None:
    first = await used_site.send("echo", {"text": "a first word"}, context="talk-1")
    await used_site.send("echo", {"text": "an aside"}, context="talk-2")
    await used_site.send("asks", {"text": "a question"}, context="talk-1")
    async with console(browser, used_site.url, used_site.token) as (page, _):
        await page.get_by_role("link", name="Conversations").click()
        listed = page.get_by_role("region", name="Conversations").get_by_role("listitem")
        await expect(listed.filter(has_text="talk-1").filter(has_text="echo")).to_contain_text("1 task")
        second = await used_site.send("echo", {"text": "a second word"}, context="talk-1")
        await expect(listed.first).to_contain_text("2 tasks")
        await listed.first.get_by_role("link", name="a first word").press("Enter")
        turns = page.get_by_role("region", name="Task ")
        await expect(turns).to_have_count(2)
        await expect(turns.first).to_contain_text("a first word")
        await expect(turns.last).to_contain_text("a second word")
        third = await used_site.send("echo", {"text": "a third word"}, context="talk-1")
        await expect(turns.last).to_contain_text("a third word")
        await turns.last.get_by_role("link").first.click()
        await page.wait_for_url(f"**/tasks/{third}")
        others = page.get_by_text("Also of this conversation").locator("..")
        for other, words in ((first, "a first word"), (second, "a second word")):
            await expect(others.get_by_role("link", name=words)).to_have_attribute("title", other)
        await expect(others.get_by_role("link")).to_have_count(2)


async def test_a_waiting_task_is_answered_within_its_conversation(browser: Browser, used_site: Site) -> None:
    await used_site.send("asks", {"text": "where to"}, context="talk-3")
    async with console(browser, used_site.url, used_site.token) as (page, _):
        await page.goto(f"{used_site.url}/console/conversations/talk-3?agent=asks&principal=anonymous")
        await expect(page.get_by_text("Which way?")).to_be_visible()
        await page.get_by_label("Answer", exact=True).get_by_label("Answer", exact=True).fill("left")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("so left")).to_be_visible()


async def test_an_agent_is_taken_out_of_service_and_back(browser: Browser, site: Site) -> None:
    working = await site.send("steps", {"text": "go"}, wait=False)
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Agents", exact=True).click()
        agent = page.get_by_role("listitem").filter(has=page.get_by_text("steps", exact=True))
        await agent.get_by_role("button", name="Disable steps").click()
        await page.get_by_label("Why").fill("counts wrong")
        await page.get_by_role("button", name="Disable it").click()
        await expect(agent.get_by_role("status")).to_contain_text("Disabled by operator:local")
        await expect(agent.get_by_role("status")).to_contain_text("counts wrong")
        assert (await site.admin("GET", f"/tasks/{working}"))["task"]["state"] == "canceled"
        await agent.get_by_role("button", name="Enable steps").click()
        await page.get_by_role("button", name="Enable it").click()
        await expect(agent.get_by_role("status")).to_have_count(0)
        await expect(agent.get_by_role("button", name="Drain steps")).to_be_visible()


async def test_keys_are_made_limited_replaced_and_revoked(browser: Browser, tmp_path: Path) -> None:
    key = (await add_keys(sqlite_url(tmp_path), ops={"role": AccessRole.OPERATOR}))["ops"]
    async with serving_site(tmp_path, key) as site, console(browser, site.url, key) as (page, _):
        await page.get_by_role("link", name="Keys").click()
        await expect(page.get_by_role("row").filter(has_text="ops")).to_contain_text("yours")
        await page.get_by_role("button", name="New key").click()
        await page.get_by_label("Name of the caller").fill("ann")
        role_field = page.get_by_role("combobox", name="Role").last
        await role_field.select_option("monitor")
        await expect(page.get_by_label("Tasks a day")).to_have_count(0)
        await role_field.select_option("caller")
        await page.get_by_label("Tasks a day").fill("7")
        await page.get_by_role("checkbox", name="echo").check()
        await page.get_by_role("button", name="Make the key").click()
        secret = await page.get_by_label("The key", exact=True).inner_text()
        assert await site.status_with(secret) == HTTPStatus.OK
        await page.get_by_role("button", name="Done").click()
        row = page.get_by_role("row").filter(has_text="ann").filter(has_text="echo")
        await expect(row).to_contain_text("7 tasks/day")
        await expect(page.get_by_text(secret)).to_have_count(0)
        await row.get_by_role("button", name="Limits").click()
        await page.get_by_label("Open tasks").fill("3")
        await page.get_by_role("button", name="Set the limits").press("Enter")
        await expect(row).to_contain_text("3 open tasks, 7 tasks/day")
        await row.get_by_role("button", name="Replace").click()
        await page.get_by_role("dialog").get_by_role("button", name="Replace").click()
        fresh = await page.get_by_label("The key", exact=True).inner_text()
        assert fresh != secret
        assert await site.status_with(fresh) == HTTPStatus.OK
        await page.keyboard.press("Escape")
        await expect(row).to_have_count(2)
        await row.get_by_role("button", name="Revoke").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("It began 0 open streams, 0 webhooks and 0 open tasks")
        await expect(dialog.get_by_role("checkbox", name="Cancel its open tasks")).to_be_disabled()
        await dialog.get_by_role("checkbox", name="End its streams").check()
        await dialog.get_by_role("checkbox", name="Cancel its open tasks").check()
        await dialog.get_by_role("button", name="Revoke").click()
        await expect(row.filter(has_text="revoked")).to_have_count(2)
        await page.get_by_role("link", name="Audit").click()
        await expect(page.get_by_role("row").filter(has_text="keys.stop")).to_contain_text(key.split("_")[1])


async def test_the_first_key_tells_what_changes(browser: Browser, site: Site) -> None:
    async with console(browser, site.url, site.token) as (page, _):
        await page.goto(f"{site.url}/console/keys")
        await page.get_by_role("button", name="New key").click()
        await page.get_by_label("Name of the caller").fill("me")
        await page.get_by_role("button", name="Make the key").click()
        await expect(page.get_by_role("alert")).to_contain_text("operator for the first key")
        await expect(page.get_by_role("button", name="Make it all the same")).to_be_visible()
        await page.get_by_role("combobox", name="Role").last.select_option("operator")
        await page.get_by_role("button", name="Make the key").click()
        await expect(page.get_by_role("dialog")).to_contain_text("every caller must send a key")


async def test_a_paused_host_gets_its_calls_when_it_is_resumed(browser: Browser, tmp_path: Path) -> None:
    """And a call that fails is sent again at once from its task, and so is one that arrived, with the same id."""
    works = False
    taken: list[str] = []

    async def take(request: web.Request) -> web.Response:
        if not works:  # no attempt follows by itself
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "3600"})
        taken.append(request.headers["webhook-id"])
        return web.Response()

    receiver = web.Application()
    receiver.router.add_post("/hook", take)
    async with (
        TestServer(receiver) as hook,
        serving_site(tmp_path, push_allowed_hosts=("127.0.0.1",)) as site,
        console(browser, site.url, site.token) as (page, _),
    ):
        await page.get_by_role("link", name="Webhooks").click()
        hosts = page.get_by_role("region", name="Paused hosts")
        await hosts.get_by_label("Host to pause").fill(f"127.0.0.1:{hook.port}")
        await hosts.get_by_role("button", name="Pause").press("Enter")
        await expect(hosts.get_by_role("listitem")).to_contain_text("operator:local")
        task = await site.send("echo", webhook=str(hook.make_url("/hook")))
        calls = page.get_by_role("region", name="Calls").get_by_role("row")
        await expect(calls.filter(has_text="when its host is resumed").first).to_be_visible()
        await calls.get_by_role("button", name="Call").first.click()
        await expect(page.get_by_role("dialog")).to_contain_text("its host is paused")
        await page.keyboard.press("Escape")
        await hosts.get_by_role("button", name="Resume").click()
        await expect(hosts.get_by_role("listitem")).to_have_count(0)
        await expect(calls.filter(has_text="503").first).to_be_visible()
        works = True
        await open_task(page, site, task, "?tab=webhooks")
        own = page.get_by_role("region", name="Webhook calls")
        await own.get_by_label("Select all calls on this page").check()
        await own.get_by_role("button", name="Send now").click()
        rows = own.get_by_role("row").filter(has_text="arrived")
        await expect(own.get_by_role("row").filter(has_not_text="arrived")).to_have_count(1)  # the head
        arrived = await rows.count()
        assert len(taken) == arrived
        await rows.first.get_by_role("checkbox").check()
        await own.get_by_role("button", name="Send again").click()
        await expect(own.get_by_text("1 call will be sent now")).to_be_visible()
        await expect(rows).to_have_count(arrived + 1)
        assert taken == [*taken[:arrived], taken[0]]
        await site.remove_webhooks("echo", task)
        await page.get_by_role("link", name="Webhooks").click()
        await page.get_by_role("combobox", name="Calls").select_option("Arrived")
        await expect(calls.filter(has_text="HTTP 200 in").first).to_be_visible()
        await calls.get_by_role("button", name="Call").first.click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("It cannot be sent again: its webhook has been removed.")
        await expect(dialog.get_by_role("button", name="Send again")).to_be_disabled()


async def test_workers_are_shown_with_their_leases(browser: Browser, tmp_path: Path) -> None:
    skill = AgentSkill(id="add", name="Add", description="Adds", tags=("t",))
    profile = Profile(id="sum", name="Sum", description="Adds", version="1", skills=(skill,))
    async with (
        serving_site(tmp_path, more=[WorkerAgent(profile, queues=True)]) as site,
        console(browser, site.url, site.token) as (page, _),
    ):
        task = await site.send("sum", wait=False)
        await site.lease("sum", "w1")
        await page.get_by_role("link", name="Servers and workers").click()
        worker = page.get_by_role("region", name="Workers one by one").get_by_role("row").filter(has_text="w1")
        await expect(worker).to_contain_text("poll")
        await expect(worker.get_by_role("link", name=task[-10:])).to_be_visible()
