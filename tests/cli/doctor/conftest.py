"""A demo server for all tests of the doctor in a process, and a fresh shell for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.a2a.command import Shell, demo_server


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    with demo_server() as url:
        yield url


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
