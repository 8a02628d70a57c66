"""How operators find tasks, and what they do about them, in a real browser against a real server."""

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import console
from tests.console.site import Site, moment, open_task

pytestmark = [pytest.mark.slow, pytest.mark.peer]


async def test_tasks_are_sorted_and_the_address_holds_the_order(browser: Browser, site: Site) -> None:
    first, *_ = [await site.send("asks", {"text": text}) for text in ("one", "two", "three")]
    await site.admin("POST", f"/tasks/{first}:cancel")
    async with console(browser, site.url, site.token) as (page, _):
        await page.get_by_role("link", name="Tasks", exact=True).click()
        words = page.get_by_role("row").locator("td:nth-child(5)")
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


async def test_a_task_is_sent_again(browser: Browser, used_site: Site) -> None:
    task = await used_site.send("echo", {"text": "once more"}, {"data": {"a": 1}})
    async with console(browser, used_site.url, used_site.token) as (page, _):
        await open_task(page, used_site, task)
        await page.get_by_role("button", name="Send again").click()
        await page.wait_for_url(lambda url: task not in url)
        await expect(moment(page).get_by_role("article").last).to_contain_text("once more")
        await expect(page.get_by_role("link", name="operator:local")).to_be_visible()
