"""An agent is added in a browser: by its URL to its card, the doctor's verdict, its name, key and limits, and live."""

import base64
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, ViewportSize, expect

from dragoman.testing.agents import echo
from tests.console.browser import NARROW, axe, console
from tests.console.site import TwoServers, two_servers

SECRET = "s3cret-of-the-partner"

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture(scope="module")
async def sites(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoServers]:
    key, folder = base64.b64encode(bytes(32)).decode(), tmp_path_factory.mktemp("store")
    added = {"secret_key": key, "agents_api_allow_hosts": ("127.0.0.1",)}
    async with two_servers(folder, SECRET, [echo], **added) as both:
        yield both


async def test_an_agent_is_added_tried_brought_back_and_removed(browser: Browser, sites: TwoServers) -> None:
    async with console(browser, sites.url, sites.token, bypass_csp=True) as (page, _):
        await page.get_by_role("link", name="Agents", exact=True).click()
        await page.get_by_role("button", name="Add an agent").click()
        dialog = page.get_by_role("dialog", name="Add an agent")
        await dialog.get_by_label("URL of the agent or of the API").fill(f"{sites.elsewhere}/agents/echo")
        await dialog.get_by_role("combobox", name="Credential").select_option("key")
        await dialog.get_by_label("The credential").fill("wrong")
        await dialog.get_by_role("button", name="Look at it").click()
        await expect(dialog.get_by_role("button", name="Add it all the same")).to_be_visible()
        await dialog.get_by_label("The credential").fill(SECRET)
        await dialog.get_by_role("button", name="Look at it").click()
        await expect(dialog.get_by_role("list", name="Findings")).to_contain_text("lets this server in")
        await expect(dialog.get_by_text("The doctor's verdict:")).to_be_visible()
        await dialog.get_by_label("Id, the last word").fill("partner")
        await dialog.get_by_label("Name on its card").fill("Our partner")
        await dialog.get_by_label("Time limit of a run").fill("60")
        await dialog.get_by_text("Its card", exact=True).click()
        await expect(dialog.get_by_text("supportedInterfaces")).to_be_visible()
        assert await axe(page) == []
        await page.set_viewport_size(ViewportSize(width=NARROW["width"], height=NARROW["height"]))
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= NARROW["width"]
        await page.set_viewport_size(ViewportSize(width=1280, height=860))
        await dialog.get_by_role("button", name="Add it", exact=True).click()
        await expect(dialog).to_contain_text("partner is live, on all servers of the store")
        await dialog.get_by_role("button", name="Close").click()
        await expect(page.get_by_role("heading", name="Our partner")).to_be_visible()
        await page.get_by_role("button", name="Definition of partner").click()
        definition = page.get_by_role("dialog", name="The definition of partner")
        await expect(definition).to_contain_text("added by operator:local")
        assert SECRET not in await page.content()
        assert await axe(page) == []
        await definition.get_by_role("button", name="Remove it").click()
        await expect(definition).to_contain_text("It is removed: it takes no new task")
        await definition.get_by_role("button", name="Go back to version 1").click()
        await expect(definition).to_contain_text("restored by operator:local")
        await definition.get_by_role("button", name="Close").click()
        await expect(page.get_by_role("heading", name="Our partner")).to_be_visible()


async def test_a_refusal_names_the_field(browser: Browser, sites: TwoServers) -> None:
    async with console(browser, sites.url, sites.token) as (page, _):
        await page.goto(f"{sites.url}/console/agents")
        await page.get_by_role("button", name="Add an agent").click()
        dialog = page.get_by_role("dialog", name="Add an agent")
        await dialog.get_by_role("combobox", name="Kind").select_option("openai")
        await dialog.get_by_label("URL of the agent or of the API").fill("http://10.0.0.1/v1")
        await dialog.get_by_label("Model, as the API names it").fill("small")
        await dialog.get_by_role("button", name="Look at it").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("agent.run: names the host 10.0.0.1")
