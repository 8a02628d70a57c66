"""Other servers and the console: agents that are tried by their URL, and a provider by which operators sign in."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, ViewportSize, expect

from dragoman.config import Config
from dragoman.server import serving
from tests.auth.provider import CLIENT, providing
from tests.auth.provider import SECRET as CLIENT_SECRET
from tests.console.browser import NARROW, axe, console
from tests.console.site import TwoServers, make_agents, two_servers
from tests.net.peer import DEADLINE_S, hangs, listening, says, status
from tests.ports import kept_port

SECRET = "s3cret-of-the-operator"

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture(scope="module")
async def sites(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoServers]:
    async with two_servers(tmp_path_factory.mktemp("store"), SECRET, make_agents(asyncio.Event())) as both:
        yield both


async def test_an_agent_elsewhere_is_tried_by_the_url_of_its_card(browser: Browser, sites: TwoServers) -> None:
    async with console(browser, sites.url, sites.token, bypass_csp=True) as (page, _):
        await page.get_by_role("link", name="Try it").click()
        await page.get_by_role("combobox", name="Agent").select_option(":elsewhere")
        form = page.get_by_role("form", name="An agent elsewhere")
        await form.get_by_label("URL of the agent or of its card").fill(
            f"{sites.elsewhere}/agents/asks/.well-known/agent-card.json"
        )
        await form.get_by_role("combobox", name="Credential").select_option("key")
        await form.get_by_label("The credential").fill(SECRET)
        await form.get_by_role("button", name="Read the card").click()
        await expect(form.get_by_role("combobox", name="Endpoint")).to_contain_text("JSONRPC 1.0")
        talk = page.get_by_role("region", name="Conversation")
        await talk.get_by_label("Message to asks").fill("hello")
        program = page.get_by_role("region", name="The same from a program")
        await expect(program).to_contain_text("x-api-key: $KEY")
        await page.keyboard.press("Enter")
        await expect(talk).to_contain_text("Which way?")
        await talk.get_by_label("Message to asks").fill("right")
        await page.keyboard.press("Enter")
        await expect(talk).to_contain_text("so right")
        assert SECRET not in await page.content()
        assert await axe(page) == []
        await page.set_viewport_size(ViewportSize(width=NARROW["width"], height=NARROW["height"]))
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= NARROW["width"]
        await page.get_by_role("button", name="New conversation").click()
        await talk.get_by_label("Message to asks").fill("never mind")
        await page.keyboard.press("Enter")
        await expect(talk).to_contain_text("Which way?")
        await talk.get_by_role("button", name="Cancel the task").click()
        await expect(talk.get_by_text("canceled")).to_be_visible()
        await form.get_by_label("The credential").fill("wrong")
        await form.get_by_role("button", name="Read the card").click()
        await talk.get_by_label("Message to asks").fill("let me in")
        await page.keyboard.press("Enter")
        await expect(talk.get_by_role("alert")).to_contain_text("Unauthorized")
        await expect(page.get_by_role("heading", level=1, name="Try it")).to_be_visible()  # still signed in


async def test_a_message_written_as_json_is_checked_while_it_is_typed(browser: Browser, sites: TwoServers) -> None:
    async with console(browser, sites.url, sites.token) as (page, _):
        await page.goto(f"{sites.url}/console/try?agent=echo")
        await page.get_by_role("button", name="Options").click()
        await page.get_by_label("raw JSON").check()
        editor = page.get_by_label("The request as JSON")
        await editor.fill('{"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": 7}]}}')
        await expect(page.get_by_text("message.parts[0].text")).to_be_visible()
        await expect(page.get_by_role("button", name="Send JSON")).to_be_disabled()
        await editor.fill('{"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "by hand"}]}}')
        await page.get_by_role("button", name="Send JSON").click()
        await expect(page.get_by_role("region", name="Conversation").locator("article.artifact")).to_contain_text(
            "by hand"
        )


async def test_the_doctor_shows_its_findings_with_what_to_change(browser: Browser, sites: TwoServers) -> None:
    async with listening() as peer, console(browser, sites.url, sites.token, bypass_csp=True) as (page, _):
        listed = {"url": f"{peer.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        peer.scripts["GET /card.json"] = says({"name": "stranger", "supportedInterfaces": [listed]})
        peer.scripts["POST /rpc"] = status(500)
        await page.get_by_role("link", name="Doctor").click()
        form = page.get_by_role("form", name="The agent to examine")
        await expect(form).to_contain_text("no message is sent")
        await form.get_by_label("URL of the agent or of its card").fill(f"{peer.url}/card.json")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_contain_text("speaks A2A 1.0")
        broken = page.get_by_role("group").filter(has=page.get_by_role("heading", name="Broken, or dangerous"))
        await expect(broken.get_by_text("To change:").first).to_be_visible()
        assert not any("SendMessage" in str(asked.body) for asked in peer.asked)
        assert await axe(page) == []
        await page.set_viewport_size(ViewportSize(width=NARROW["width"], height=NARROW["height"]))
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= NARROW["width"]
        peer.scripts["POST /rpc"] = hangs()
        asked = len(peer.asked)
        await form.get_by_role("button", name="Examine").click()
        await expect(page.get_by_role("status")).to_contain_text("asking its endpoints")
        async with asyncio.timeout(DEADLINE_S):
            while "POST /rpc" not in peer.paths[asked:]:
                peer.came.clear()
                await peer.came.wait()
        await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("link", name="Audit").click()
        await expect(page.get_by_role("row").filter(has_text="remote.examine").first).to_contain_text(peer.url)


async def test_an_operator_signs_in_by_an_openid_provider(browser: Browser, tmp_path: Path) -> None:
    port = kept_port()
    async with providing() as provider:
        config = Config(
            port=port,
            store=f"sqlite:///{tmp_path}/dragoman.db",
            public_url=f"http://127.0.0.1:{port}",
            oidc_issuer=provider.url,
            oidc_client_id=CLIENT,
            oidc_client_secret=CLIENT_SECRET,
            oidc_role_claim="groups",
            oidc_role_value="operators",
            shutdown_grace_s=0.2,
        )
        async with serving(config, make_agents(asyncio.Event())) as url:
            context = await browser.new_context(base_url=url, bypass_csp=True)
            context.set_default_timeout(60_000)
            page = await context.new_page()
            await page.goto("/console/tasks?state=failed")
            button = page.get_by_role("link", name="Sign in with")
            await button.wait_for()
            assert await axe(page) == []
            provider.claims = {"groups": ["staff"]}
            await button.click()
            await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
            await expect(page.get_by_text("no operator here")).to_be_visible()
            await page.get_by_role("link", name="Back to the sign-in").click()
            provider.claims = {"groups": ["operators"]}
            await page.goto("/console/tasks?state=failed")
            await button.click()
            await page.get_by_role("heading", level=1, name="Tasks").wait_for()
            assert page.url == f"{url}/console/tasks?state=failed"
            await expect(page.get_by_text(f"oidc:ann@{provider.url}")).to_be_visible()
            await page.get_by_role("button", name="Sign out").click()
            await button.wait_for()
            await context.close()
