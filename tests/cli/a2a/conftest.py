"""An agent of another server for the tests of client commands."""

from collections.abc import Iterator

import pytest

from tests.cli.a2a.peer import FarAgent, far_agent


@pytest.fixture
def agent() -> Iterator[FarAgent]:
    with far_agent() as agent:
        yield agent
