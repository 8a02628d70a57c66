"""The page in a real browser: a reload and a lost network in the middle of a stream lose nothing."""

import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from dragoman.config import Config
from dragoman.server import serving
from dragoman.testing.agents import countdown
from tests.console.browser import chromium

FOLDER = Path(__file__).parent


class Quiet(SimpleHTTPRequestHandler):
    """Serves the folder, and says nothing."""

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def origin() -> Iterator[str]:
    """Where the page comes from."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(FOLDER))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    async with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
async def page(origin: str, browser: Browser) -> AsyncIterator[Page]:
    config = Config(port=0, store="memory:", cors_origins=(origin,))
    async with serving(config, [countdown]) as url, await browser.new_page() as page:
        await page.goto(f"{origin}/?agent={url}/agents/countdown")
        yield page


@pytest.mark.slow
async def test_a_reload_and_a_lost_network_lose_nothing(page: Page) -> None:
    output, status = page.locator("pre"), page.get_by_role("status")
    await page.get_by_label("Message").fill("60 every 0.05")
    await page.get_by_role("button", name="Send").click()
    await expect(output).to_contain_text("56\n")
    await page.reload()
    await expect(output).to_contain_text("45\n")
    await page.context.set_offline(True)
    await expect(status).to_have_text("working")
    await page.context.set_offline(False)
    await expect(status).to_have_text("completed", timeout=30_000)
    assert await output.text_content() == "".join(f"{left}\n" for left in range(60, 0, -1))


@pytest.mark.slow
async def test_a_task_is_canceled_from_the_page(page: Page) -> None:
    await page.get_by_label("Message").fill("1000 every 0.05")
    await page.get_by_role("button", name="Send").click()
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("status")).to_have_text("canceled")
    await expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
