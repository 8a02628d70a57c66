"""Nine workers on one server, as examples/frameworks shows it: every framework in its own environment."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman.client import connect
from dragoman.model.task import Task, TaskState
from tests.frameworks.completions import Answer, Call, Completions, completions
from tests.kit.values import text_of
from tests.kit.waiting import no_hang

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
DRAGOMAN = Path(sys.executable).parent / "dragoman"

pytestmark = [pytest.mark.slow, pytest.mark.peer]

IDS = re.findall(r'id = "([\w-]+)"', (EXAMPLES / "dragoman.toml").read_text())


def there(agent: str) -> bool:
    """Whether the agent's environment is, and its example."""
    example = EXAMPLES / f"{agent.replace('-', '_')}_agent.py"
    return agent == "plain" or ((ROOT / f".venv-fw-{agent}" / ".ready").exists() and example.exists())


@pytest.fixture
def model() -> Iterator[Completions]:
    with completions(Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Sunny in Lyon.") as server:
        yield server


@asynccontextmanager
async def process(*command: str | Path, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program with its output as a pipe, until the block ends."""
    started = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=ROOT, stdout=subprocess.PIPE, env=os.environ | env
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGTERM)
        await started.communicate()


async def told(started: asyncio.subprocess.Process, pattern: str) -> str:
    """The first line that has the pattern: what its group is."""
    assert started.stdout is not None
    while line := (await started.stdout.readline()).decode():
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"it ended without {pattern}")


@asynccontextmanager
async def nine(folder: Path, model: Completions) -> AsyncIterator[str]:
    """The server of the example and its workers; the URL, once all of those are at work that can be."""
    expected = {agent for agent in IDS if there(agent)}
    async with (
        no_hang(),
        process(
            DRAGOMAN,
            "serve",
            "--config",
            EXAMPLES / "dragoman.toml",
            "--port",
            "0",
            "--store",
            f"sqlite:///{folder / 'tasks.db'}",
        ) as server,
    ):
        url = await told(server, r"listens on (\S+?)/? ")
        environ = {"MODEL_URL": model.url, "OPENAI_API_KEY": "test"}
        async with process(EXAMPLES / "workers.sh", url, **environ) as workers:
            while expected:
                expected.discard(await told(workers, r"Working for \S+ as \S+: ([\w-]+)"))
            yield url


async def asked(url: str, agent: str, *texts: str) -> Task:
    """The task in the end, after the texts were sent one after the other."""
    async with connect(f"{url}/agents/{agent}") as connection:
        task: object = None
        for text in texts:
            if isinstance(task, Task):
                assert task.status.state is TaskState.INPUT_REQUIRED, (agent, task.status)
                task = await connection.send(text, task_id=task.id, context_id=task.context_id)
            else:
                task = await connection.send(text)
        assert isinstance(task, Task)
        return task


DIALOGUES: dict[str, tuple[tuple[str, ...], str]] = {
    "plain": (("Hello",), "Hello"),
    "pydantic-ai": (("Write to Ada", "yes"), "Sent to ada@example.org"),
    "langgraph": (("A table for two", "Friday"), "Booked for Friday: A table for two"),
    "openai-agents": (("How is the weather in Lyon?",), "Sunny in Lyon."),
    "crewai": (("Dragoman",), "Dragoman is great."),
    "google-adk": (("A room, please", "yes"), "Booked at the Ritz."),
    "strands": (("Clean up", "yes"), "a.txt is deleted."),
    "agno": (("Pay the bill", "yes"), "Paid 12 euros."),
    "a2a-sdk": (("A table", "Friday"), "Booked for Friday"),
}


def test_the_example_has_nine() -> None:
    assert len(IDS) == 9
    assert DIALOGUES.keys() == set(IDS)


async def test_every_worker_of_the_example_does_its_tasks(tmp_path: Path, model: Completions) -> None:
    async with nine(tmp_path, model) as url:
        for agent, (texts, answer) in DIALOGUES.items():
            if there(agent):
                task = await asked(url, agent, *texts)
                assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, answer), agent
