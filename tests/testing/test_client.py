"""`dragoman.testing.client` and its fixture: an agent asked as callers ask it, in the process of the test."""

import asyncio
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman import Agent, Context, TaskState
from dragoman.client import HttpRefusal, NotReached, connect
from dragoman.config import Config
from dragoman.model.errors import A2AError, TaskNotFound
from dragoman.model.task import Task
from dragoman.testing import ClientFixture, agents, client
from dragoman.testing.loopback import CONFIG
from tests.kit.values import text_of


async def test_the_agent_answers_over_the_wire() -> None:
    async with client(agents.echo) as echo:
        assert echo.card is not None
        assert (echo.card.name, echo.interface.dialect, echo.interface.binding) == ("echo", "1.0", "JSONRPC")
        assert text_of(await echo.send("hello")) == "hello"


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "kaos", "evoai", "protoagent"])
async def test_the_agent_is_asked_in_any_dialect(dialect: str) -> None:
    async with client([agents.echo, agents.countdown], agent="countdown", dialect=dialect) as countdown:
        task = await countdown.send("1 every 0.001")
        assert isinstance(task, Task)
        assert task.status.state is TaskState.COMPLETED


async def test_the_first_is_asked_unless_another_is_named() -> None:
    async with client([agents.papers, agents.echo], binding="HTTP+JSON") as files:
        assert files.interface.url.endswith("/agents/papers")
        assert files.interface.binding == "HTTP+JSON"


@pytest.mark.parametrize(("served", "named"), [([agents.echo], "trip"), ([], None)])
async def test_an_agent_that_is_not_served_is_refused(served: list[Agent], named: str | None) -> None:
    with pytest.raises(ValueError, match="is not among"):
        async with client(served, agent=named):
            pass


async def test_nothing_is_left_when_the_block_ends() -> None:
    seen: list[str] = []
    begun = asyncio.Event()
    endless = Agent("endless")

    @endless.skill
    async def work(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    async with client(endless) as connection:
        await connection.send("go", return_immediately=True)
        await begun.wait()
        url = connection.interface.url
    assert seen == ["ended"]
    with pytest.raises(NotReached):
        async with connect(url):
            pass


async def test_what_goes_wrong_in_the_block_is_told_as_it_is() -> None:
    with pytest.raises(TaskNotFound):
        async with client(agents.echo) as echo:
            await echo.get("nobodys")


async def test_it_starts_within_50_ms_of_processor_time() -> None:
    """Measured after the first, which imports the server; the best of several, as machines have hiccups."""
    taken = []
    for _ in range(4):
        start = time.process_time()
        async with client(agents.echo):
            taken.append(time.process_time() - start)
    assert min(taken[1:]) < 0.05, taken


async def test_the_fixture_is_the_same(dragoman_client: ClientFixture) -> None:
    async with dragoman_client(agents.echo) as echo:
        assert text_of(await echo.send("hello")) == "hello"


class TestConfigured:
    @pytest.fixture
    def dragoman_config(self) -> Config:
        return replace(CONFIG, max_body_bytes=2048)

    async def test_the_fixture_takes_the_configuration_of_the_test(self, dragoman_client: ClientFixture) -> None:
        async with dragoman_client(agents.echo) as echo:
            with pytest.raises((A2AError, HttpRefusal)):
                await echo.send("x" * 4096)


def test_pytest_finds_the_fixtures_and_nobody_needs_pytest(tmp_path: Path) -> None:
    (found,) = entry_points(group="pytest11", name="dragoman")
    assert found.value == "dragoman.testing.plugin"
    script = "import sys, dragoman.testing.loopback; print(*{'pytest', '_pytest'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout.split() == []


def test_a_run_without_the_fixtures_loads_no_server(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test_nothing():\n    assert not {'httptools', 'apsw', 'aiohttp'} & set(sys.modules)\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        str(tmp_path),
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
