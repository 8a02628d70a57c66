"""Takes the pictures of the console for the documentation, from a server of its own with the example agents.

Run by `make pictures`, which brings the browser. The pictures are in docs/pictures: each view in light, some in dark.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import FloatRect, Page

from dragoman.auth.operator_token import read_token
from dragoman.cli.entries import make_added_agent
from dragoman.cli.loader import load_served
from dragoman.config import Config
from dragoman.server import serving
from scripts.console_past import PRICES, fill_past
from tests.console.browser import NARROW, Faults, chromium, console

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
BYTES_MAX = 1_500_000

TALKS = (
    ("echo", "Hello from a caller, with **Markdown** and a list:\n\n* one\n* two"),
    ("echo", "A second message"),
    ("papers", "Give me a file"),
    ("trip", "Book me a trip"),
    ("login", "What is in my mailbox?"),
    ("fail", "Try this"),
    ("countdown", "20 every 0.05"),
)

REPORT = """# Weather

| city | °C |
|---|---|
| Oslo | 4 |
| Rome | 21 |

It will be **sunny** in Rome.
"""


CONVERSATION = ("What is the weather in Oslo?", "And in Rome?", "Which of the two is warmer, and by how much?")
CONTEXT = "weather-talk"

UPPER = FloatRect(x=0, y=0, width=1280, height=520)
"""The part of a table's view that says it all."""


async def send(
    http: aiohttp.ClientSession, agent: str, *parts: dict[str, Any], context: str | None = None, webhook: str = ""
) -> str:
    """Send a message over A2A 1.0; returns the id of its task."""
    sent: dict[str, Any] = {}
    if webhook:
        sent["configuration"] = {"taskPushNotificationConfig": {"url": webhook}}
    message = {"messageId": f"{agent}-{id(parts)}", "role": "ROLE_USER", "parts": parts, "contextId": context}
    async with http.post(
        f"/agents/{agent}/message:send", json={"message": message, **sent}, headers={"A2A-Version": "1.0"}
    ) as answer:
        return str((await answer.json())["task"]["id"])


async def take(page: Page, seen: Faults, path: str, name: str, clip: FloatRect | None = None) -> None:
    """Show a view until nothing more is loaded, and take its picture, or that of its upper part."""
    await page.goto(f"/console{path}")
    await seen.settle(page)
    await page.screenshot(path=PICTURES / f"{name}.png", clip=clip)
    print(PICTURES.relative_to(ROOT) / f"{name}.png")


async def take_keys(page: Page, seen: Faults) -> None:
    """Make the first key of an operator, which ends the session of the server's token, and two keys of callers."""
    await page.goto("/console/keys")
    await make_key(page, "ops", "operator")
    key = await page.get_by_label("The key", exact=True).inner_text()
    await page.context.clear_cookies()
    await page.reload()
    await page.get_by_label("Operator's key").fill(key)
    while not await page.get_by_role("heading", level=1, name="Keys").is_visible():  # a new key counts in a moment
        await page.keyboard.press("Enter")
        await page.wait_for_timeout(500)
    for name in ("billing", "weather-app"):
        await make_key(page, name, "caller")
        await page.get_by_role("button", name="Done").click()
    await take(page, seen, "/keys", "keys", UPPER)


async def make_key(page: Page, name: str, role: str) -> None:
    """Make a key; the page shows it then."""
    await page.get_by_role("button", name="New key").click()
    await page.get_by_label("Name of the caller").fill(name)
    await page.get_by_role("dialog").get_by_label("Role").select_option(role)
    await page.get_by_role("button", name="Make the key").click()
    await page.get_by_label("The key", exact=True).wait_for()


def make_stranger() -> web.Application:
    """An agent of somebody else with some faults, for the doctor."""

    async def card(request: web.Request) -> web.Response:
        endpoint = {"url": str(request.url.with_path("/rpc")), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        described = {"description": "forecasts the weather", "version": "1.0.0", "capabilities": {}, "skills": []}
        modes = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
        return web.json_response({"name": "weather", "supportedInterfaces": [endpoint], **described, **modes})

    async def fail(request: web.Request) -> web.Response:
        return web.Response(status=500)

    app = web.Application()
    app.router.add_get("/card.json", card)
    app.router.add_post("/rpc", fail)
    app.router.add_post("/hook", fail)
    return app


async def take_adding(page: Page, url: str) -> None:
    """An agent that is about to be added."""
    await page.goto("/console/agents")
    await page.get_by_role("button", name="Add an agent").click()
    dialog = page.get_by_role("dialog", name="Add an agent")
    await dialog.get_by_label("URL of the agent or of the API").fill(url)
    await dialog.get_by_role("button", name="Look at it").click()
    await dialog.get_by_text("The doctor's verdict:").wait_for()
    await dialog.screenshot(path=PICTURES / "add-agent.png")


async def main() -> int:
    """Take all pictures. Returns 1 if they are too large together."""
    PICTURES.mkdir(exist_ok=True)
    agents = load_served((), ["examples/agents.py"], None).agents
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/dragoman.db"
        await fill_past(store)
        config = Config(
            port=0,
            store=store,
            prices=PRICES,
            shutdown_grace_s=0.5,
            cancel_grace_s=0.5,
            push_allowed_hosts=("127.0.0.1",),
            agents_api_allow_hosts=("127.0.0.1",),
        )
        async with (
            serving(config, agents, make_added_agent) as url,
            aiohttp.ClientSession(url) as http,
            chromium(Path(folder)) as browser,
            TestServer(make_stranger()) as stranger,
        ):
            token = read_token(store, 0) or ""
            tasks = {agent: await send(http, agent, {"text": text}) for agent, text in TALKS}
            report = await send(http, "echo", {"text": REPORT}, {"data": {"cities": [{"name": "Oslo", "celsius": 4}]}})
            for text in CONVERSATION:
                await send(http, "echo", {"text": text}, context=CONTEXT)
            views = {
                "overview": "",
                "task": f"/tasks/{report}",
                "replay": f"/tasks/{tasks['countdown']}?at=12",
                "wire": f"/tasks/{report}?tab=wire",
                "agents": "/agents",
                "conversation": f"/conversations/{CONTEXT}?agent=echo&principal=anonymous",
                "usage": "/usage",
            }
            hook = str(stranger.make_url("/hook"))
            async with console(browser, url, token, color_scheme="light") as (page, seen):
                for name, path in views.items():
                    await take(page, seen, path, name)
                for name in ("tasks", "inbox", "audit"):
                    await take(page, seen, f"/{name}", name, UPPER)
                await page.goto("/console/try?agent=papers")
                await page.get_by_label("Message to papers").fill("Give me a file")
                await page.keyboard.press("Enter")
                await page.get_by_text("completed").wait_for()
                await page.screenshot(path=PICTURES / "try.png")
                await page.goto("/console/doctor")
                await page.get_by_label("URL of the agent or of its card").fill(str(stranger.make_url("/card.json")))
                await page.keyboard.press("Enter")
                await page.get_by_text("Its card:").wait_for()
                await page.screenshot(path=PICTURES / "doctor.png")
                await take_adding(page, f"{url}/agents/papers")
                await send(http, "echo", {"text": "Tell my webhook"}, webhook=hook)
                await page.goto("/console/webhooks")
                await page.get_by_role("row").filter(has_text="500").first.wait_for()
                await page.get_by_label("Host to pause").fill("hooks.example.org")
                await page.get_by_role("button", name="Pause", exact=True).click()
                await page.get_by_text("0 calls waiting").wait_for()
                await page.screenshot(path=PICTURES / "webhooks.png", clip=UPPER)
            async with console(browser, url, token, color_scheme="dark") as (page, seen):
                await take(page, seen, views["replay"], "replay-dark")
            async with console(browser, url, token, viewport=NARROW) as (page, seen):
                await take(page, seen, "", "overview-narrow")
            async with console(browser, url, token, color_scheme="light") as (page, seen):
                await take_keys(page, seen)
    size = sum(picture.stat().st_size for picture in PICTURES.glob("*.png"))
    print(f"{size} bytes together")
    return 0 if size <= BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
