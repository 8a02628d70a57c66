"""The browser and the servers of the console's tests. A browser serves all tests of a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import chromium
from tests.console.hostile import hostile_artifacts_agent, hostile_card_agent
from tests.console.site import Site, serving_site

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    async with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A server of a test's own, whose store is empty."""
    async with serving_site(tmp_path) as served:
        yield served


@pytest.fixture(scope="module")
async def used_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server that all tests of a file share, with whatever the others have left there, and with hostile agents."""
    agents = [hostile_card_agent(), hostile_artifacts_agent()]
    async with serving_site(tmp_path_factory.mktemp("site"), more=agents, push_allowed_hosts=("127.0.0.1",)) as served:
        yield served
