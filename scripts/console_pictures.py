"""Takes a picture of every page of the console, light and dark, at three widths, on an empty and on a full server.

Run by `make console-pictures`, which brings the browser. The pictures, and a page with all of them, are in
build/pictures. ARGS="--only tasks --width 380 --scheme dark" takes fewer. Status 1: a page is wider than its window.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path

import aiohttp
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser

from dragoman.auth.operator_token import read_token
from dragoman.cli.entries import make_added_agent
from dragoman.cli.loader import load_served
from dragoman.config import Config
from dragoman.config.prices import Prices
from dragoman.server import serving
from scripts.console_past import PRICES, fill_past
from scripts.pictures import CONTEXT, CONVERSATION, REPORT, TALKS, make_stranger, send
from tests.console.browser import chromium, console

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "build" / "pictures"

WIDTHS = (1440, 1280, 380)
SCHEMES = ("light", "dark")
HEIGHT = 900

PAGES: Mapping[str, str] = {
    "overview": "",
    "overview-month": "?span=month",
    "inbox": "/inbox",
    "tasks": "/tasks",
    "conversations": "/conversations",
    "agents": "/agents",
    "try": "/try?agent=echo",
    "webhooks": "/webhooks",
    "servers": "/servers",
    "usage": "/usage",
    "usage-by-agent": "/usage?by=agent",
    "keys": "/keys",
    "audit": "/audit",
    "doctor": "/doctor",
    "not-found": "/nowhere",
}
"""The pages that an empty server has, too."""


@asynccontextmanager
async def served(folder: Path, *, full: bool) -> AsyncIterator[tuple[str, str, dict[str, str]]]:
    """A server with its token, and the pages that it has beside `PAGES`."""
    store = f"sqlite:///{folder}/dragoman.db"
    if full:
        await fill_past(store)
    config = Config(
        port=0,
        store=store,
        shutdown_grace_s=0.5,
        cancel_grace_s=0.5,
        push_allowed_hosts=("127.0.0.1",),
        prices=PRICES if full else Prices(),
    )
    agents = load_served((), ["examples/agents.py"], None).agents
    async with serving(config, agents, make_added_agent) as url:
        yield url, read_token(store, 0) or "", await make_tasks(url) if full else {}


async def make_tasks(url: str) -> dict[str, str]:
    """Have tasks of all kinds; returns their pages."""
    async with aiohttp.ClientSession(url) as http, TestServer(make_stranger()) as stranger:
        tasks = {agent: await send(http, agent, {"text": text}) for agent, text in TALKS}
        report = await send(http, "echo", {"text": REPORT}, {"data": {"cities": [{"name": "Oslo", "celsius": 4}]}})
        for text in CONVERSATION:
            await send(http, "echo", {"text": text}, context=CONTEXT)
        await send(http, "echo", {"text": "Tell my webhook"}, webhook=str(stranger.make_url("/hook")))
    return {
        "task": f"/tasks/{report}",
        "task-question": f"/tasks/{tasks['trip']}",
        "task-chunks": f"/tasks/{tasks['countdown']}",
        "task-wire": f"/tasks/{report}?tab=wire",
        "conversation": f"/conversations/{CONTEXT}?agent=echo&principal=anonymous",
    }


async def take(
    browser: Browser, folder: Path, wanted: argparse.Namespace, *, full: bool
) -> tuple[list[str], list[str]]:
    """Take the pictures of a server. Returns their names, and those that are wider than their window."""
    taken, wide, state = [], [], "full" if full else "empty"
    async with served(folder, full=full) as (url, token, more):
        for scheme in wanted.scheme:
            for width in wanted.width:
                size = {"width": width, "height": HEIGHT}
                async with console(browser, url, token, color_scheme=scheme, viewport=size) as (page, seen):
                    for name, path in {**PAGES, **more}.items():
                        if wanted.only and not any(name.startswith(each) for each in wanted.only):
                            continue
                        await page.goto(f"/console{path}")
                        await seen.settle(page)
                        picture = f"{name}-{state}-{scheme}-{width}.png"
                        await page.screenshot(path=PICTURES / picture, full_page=True)
                        if await page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
                            wide.append(picture)
                        taken.append(picture)
    return taken, wide


def write_sheet(pictures: Sequence[str]) -> Path:
    """A page with all pictures."""
    figures = "".join(
        f'<figure><a href="{escape(name)}"><img src="{escape(name)}" loading="lazy" width="420"></a>'
        f"<figcaption>{escape(name)}</figcaption></figure>"
        for name in sorted(pictures)
    )
    style = "body{display:flex;flex-wrap:wrap;gap:1rem;font:14px sans-serif}figure{margin:0}"
    sheet = PICTURES / "index.html"
    sheet.write_text(f"<!doctype html><meta charset=utf-8><title>Console</title><style>{style}</style>{figures}")
    return sheet


async def main() -> int:
    """Take the pictures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="pages whose names begin so")
    parser.add_argument("--width", nargs="*", type=int, default=WIDTHS)
    parser.add_argument("--scheme", nargs="*", choices=SCHEMES, default=SCHEMES)
    parser.add_argument("--state", nargs="*", choices=("empty", "full"), default=("empty", "full"))
    wanted = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    taken: list[str] = []
    wide: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        async with chromium(Path(folder)) as browser:
            for state in wanted.state:
                home = Path(folder) / state
                home.mkdir()
                some, too_wide = await take(browser, home, wanted, full=state == "full")
                taken += some
                wide += too_wide
    print(f"{len(taken)} pictures: {write_sheet(taken).relative_to(ROOT)}")
    for name in wide:
        print(f"wider than its window: {name}", file=sys.stderr)
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
