"""The fixtures for pytest, which finds them where Dragoman is installed.

Invariant: only pytest imports this. Tests that do not use the fixtures do not pay for them.
"""

from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dragoman.config import Config
    from dragoman.testing import ClientFixture


@pytest.fixture
def dragoman_config() -> "Config":
    """The configuration of the server behind `dragoman_client`. Override it in a conftest or a test module."""
    from dragoman.testing.loopback import CONFIG

    return CONFIG


@pytest.fixture
def dragoman_client(dragoman_config: "Config") -> "ClientFixture":
    """`dragoman.testing.client` with `dragoman_config`: `async with dragoman_client(agent) as connection`."""
    from dragoman.testing import client

    return partial(client, config=dragoman_config)
