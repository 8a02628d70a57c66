"""The live agents, started once for all checks of a process, and a caller for each check."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.a2a.command import Shell, demo_server
from tests.compliance.agents import OFFICIAL, Caller, Live, keyed, official
from tests.compliance.evidence import DEMO, KEYED


@pytest.fixture(scope="session")
def official_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Live]]:
    with official(tmp_path_factory.mktemp("official")) as servers:
        yield servers


@pytest.fixture(scope="session")
def keyed_server() -> Iterator[Live]:
    with keyed() as server:
        yield server


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    with demo_server() as url:
        yield url


@pytest.fixture(
    params=[*(pytest.param(name, marks=pytest.mark.peer) for name in OFFICIAL), DEMO, KEYED],
)
def live(request: pytest.FixtureRequest) -> Live:
    """Each of the live agents."""
    if request.param in OFFICIAL:
        found: Live = request.getfixturevalue("official_servers")[request.param]
        return found
    if request.param == KEYED:
        found = request.getfixturevalue("keyed_server")
        return found
    return Live(DEMO, request.getfixturevalue("demo"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def caller(shell: Shell, live: Live) -> Caller:
    return Caller(shell, live)
