"""A real Chromium for the tests of the console, from an npm package: it needs no root, and downloads nothing itself."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, Request, async_playwright

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
UNPACKED = MODULES / ".chromium"
AXE = MODULES / "axe-core" / "axe.min.js"

FLAGS = ("--no-sandbox", "--no-zygote", "--disable-gpu")
"""Tests may run as root and without a graphics card. The pages are our own server's."""

FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir>{package}</dir>
  <cachedir>{cache}</cachedir>
</fontconfig>
"""
"""The browser crashes without any font; the package's own list of them names a fixed folder."""

WIDE = {"width": 1280, "height": 860}
NARROW = {"width": 380, "height": 780}


def _unpack() -> Path:
    """Unpack the browser beside its package, unless a test of this or another process has done so; return where it is.

    The folder goes with the package when another version is installed.
    """
    assert MODULES.exists(), f"{MODULES} is missing: run `make tests/console/node_modules/.ready`"
    UNPACKED.mkdir(exist_ok=True)
    with (UNPACKED / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        found = UNPACKED / "found"
        if not found.exists():
            environ = {**os.environ, "TMPDIR": str(UNPACKED)}
            command = ["node", str(HERE / "chromium.mjs")]
            unpacked = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
            found.write_text(unpacked.stdout.strip())
    return Path(found.read_text())


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Browser]:
    """A browser that keeps its files in `folder`."""
    program = _unpack()
    fonts = folder / "fonts.conf"
    fonts.write_text(FONTS.format(package=UNPACKED / "fonts", cache=folder / "cache"))
    environ = {
        **os.environ,
        "LD_LIBRARY_PATH": str(UNPACKED / "al2023" / "lib"),
        "FONTCONFIG_FILE": str(fonts),
        "HOME": str(folder),
    }
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=[*FLAGS], env={**environ})
        try:
            yield browser
        finally:
            await browser.close()


STREAMS = ("/admin/v1/events", "/log?")
"""Parts of the URLs of streams, which stay open."""

COVERED = """() => [...document.querySelectorAll("main :is(a, button, input, select, textarea, summary)")].filter(
    (each) => {
        const { left, top, width, height } = each.getBoundingClientRect();
        const [x, y] = [left + width / 2, top + height / 2];
        const seen = each.checkVisibility() && width > 1 && y > 0 && y < innerHeight && x > 0 && x < innerWidth;
        const box = seen ? each.closest(".wide, .turns, .log") : null;
        const cut = box === null ? null : box.getBoundingClientRect();
        if (!seen || (cut !== null && (x > cut.right || x < cut.left || y > cut.bottom || y < cut.top))) return false;
        const found = document.elementFromPoint(x, y);
        return found !== null && !each.contains(found) && !found.contains(each);
    },
).map((each) => each.outerHTML.slice(0, 200))"""
"""What can be used, is in the window, and has something lying over it."""

DRAWN = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


class Faults:
    """Everything of a page that must not happen: errors of scripts, refusals of the policy, requests to elsewhere.

    It also knows which requests are under way.
    """

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self._origin = origin
        self.seen: list[str] = []
        self._under_way: set[Request] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        context.on("page", self._watch)
        context.on("request", self._began)
        context.on("requestfinished", self._ended)
        context.on("requestfailed", self._ended)

    async def settle(self, page: Page) -> None:
        """Wait until the view is drawn and has asked for nothing more."""
        await page.get_by_role("heading", level=1).wait_for()
        while True:
            await self._quiet.wait()
            await page.evaluate(DRAWN)
            if self._quiet.is_set():
                return

    def _began(self, request: Request) -> None:
        if not any(part in request.url for part in STREAMS):
            self._under_way.add(request)
            self._quiet.clear()

    def _ended(self, request: Request) -> None:
        self._under_way.discard(request)
        if not self._under_way:
            self._quiet.set()

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.seen.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda message: (
                self.seen.append(f"console: {message.text}")
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((self._origin, "data:", "blob:"))
                else self.seen.append(f"request: {request.url}")
            ),
        )


@asynccontextmanager
async def console(browser: Browser, url: str, token: str = "", **options: Any) -> AsyncIterator[tuple[Page, Faults]]:
    """A page of the console, signed in if there is a token; checks at the end that nothing went wrong in it."""
    context = await browser.new_context(**{"viewport": WIDE, "base_url": url, "locale": "en-US", **options})
    context.set_default_timeout(60_000)
    faults = Faults(context, url)
    try:
        page = await context.new_page()
        if token:
            await page.goto(f"{url}/console#token={token}")
            await page.get_by_role("heading", level=1, name="Overview").wait_for()
        yield page, faults
        assert faults.seen == []
    finally:
        await context.close()


async def axe(page: Page, *rules: str) -> list[str]:
    """The faults that axe-core finds on the page, a line for each rule: by these `rules`, or by all."""
    if not await page.evaluate("() => 'axe' in globalThis"):
        await page.evaluate(AXE.read_text())
    only = {"runOnly": list(rules)} if rules else {}
    found = await page.evaluate("(only) => axe.run(document, {resultTypes: ['violations'], ...only})", only)
    return [
        f"{rule['id']}: {rule['help']}: {json.dumps([node['target'] for node in rule['nodes']][:3])}"
        for rule in found["violations"]
    ]


OVERLAPS = """() => {
  const main = document.querySelector("main");
  const texts = [];
  for (const element of main.querySelectorAll("*")) {
    if (!element.checkVisibility({ contentVisibilityAuto: true }) || element.closest(".hidden, thead")) continue;
    for (const node of element.childNodes) {
      if (node.nodeType !== Node.TEXT_NODE || !node.textContent.trim()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const { left, right, top, bottom } of range.getClientRects()) {
        let box = [left, top, right, bottom];
        for (let up = element; up !== main; up = up.parentElement) {
          if (getComputedStyle(up).overflow === "visible") continue;
          const clip = up.getBoundingClientRect();
          box = [
            Math.max(box[0], clip.left), Math.max(box[1], clip.top),
            Math.min(box[2], clip.right), Math.min(box[3], clip.bottom),
          ];
        }
        texts.push([box, element, node.textContent.trim().slice(0, 40)]);
      }
    }
  }
  const found = [];
  texts.forEach(([one, first, said], place) => {
    for (const [other, second, says] of texts.slice(place + 1)) {
      if (first === second) continue;
      const width = Math.min(one[2], other[2]) - Math.max(one[0], other[0]);
      const height = Math.min(one[3], other[3]) - Math.max(one[1], other[1]);
      if (width > 2 && height > 4) found.push(`${said} / ${says}`);
    }
  });
  return found;
}"""
"""Texts that can be seen and lie over each other. The head of a table that scrolls may lie over its rows."""


async def overlaps(page: Page) -> list[str]:
    """The texts of the view that lie over each other, in pairs."""
    return [str(pair) for pair in await page.evaluate(OVERLAPS)]
