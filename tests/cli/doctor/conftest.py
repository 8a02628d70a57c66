"""A demo server for the tests of the doctor alone: they count what it has been sent."""

from collections.abc import Iterator

import pytest

from tests.cli.a2a.command import demo_server


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    with demo_server() as url:
        yield url
