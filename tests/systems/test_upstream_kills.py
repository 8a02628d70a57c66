"""Either server is killed in the middle of a stream, or both are: whoever reads the text reads each word once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman.client import Connection, connect
from dragoman.model.task import TaskState
from dragoman.model.updates import ArtifactUpdate
from tests.kit.places import asked
from tests.kit.processes import ServerProcess
from tests.kit.values import text_of, told_by
from tests.ports import kept_port
from tests.soak import times
from tests.systems.test_upstream import DEADLINE_S

AGENT = '''
import asyncio
from pathlib import Path
from dragoman import Agent, Context

slow = Agent("slow", restartable=True)


@slow.skill
async def tell(ctx: Context):
    """Tells some words, and the rest when it may."""
    for word in ("one ", "two ", "three "):
        yield word
        await asyncio.sleep(0.01)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    for word in ("four ", "five"):
        yield word
'''

FRONT = """
[[agents]]
id = "partner"
run = "a2a:{url}"
dialect = "{dialect}"
pause_s = 0.5
"""

AT = {
    "1.0": "/agents/slow",
    "0.3": "/agents/slow",
    "beeos": "/slow",
    "evoai": "/api/v1/a2a/slow",
    "protoagent": "/a2a",
}


def behind_in(folder: Path) -> tuple[ServerProcess, int]:
    """The server behind, and the port that it has again after each start."""
    port = kept_port()
    return ServerProcess(folder, "slow.py:slow", "--store", "sqlite:///tasks.db", "--port", str(port)), port


@asynccontextmanager
async def served(*servers: ServerProcess) -> AsyncIterator[None]:
    try:
        for server in servers:
            await server.start()
        yield
    finally:
        for server in servers:
            await server.kill()


async def read(connection: Connection, task_id: str) -> list[tuple[bool, str]]:
    """Each chunk since the task was made, and whether it goes on with what came before."""
    chunks = []
    async for update in connection.subscribe(task_id, after="1"):
        if isinstance(update, ArtifactUpdate):
            chunks.append((update.append, "".join(part.text or "" for part in update.artifact.parts)))
    return chunks


async def told(connection: Connection, task_id: str) -> None:
    """Return when the first words of the task, or of the newest one, are there."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            tasks = (
                [await connection.get(task_id)] if task_id else (await connection.list(include_artifacts=True)).tasks
            )
            if tasks and text_of(tasks[0]) == "one two three ":
                return
            await asyncio.sleep(0.01)


BOTH = [(dialect, "both") for dialect in AT]
EITHER = [(dialect, killed) for dialect in AT for killed in ("ours", "theirs")]


@pytest.mark.parametrize(("dialect", "killed"), BOTH + EITHER[: times(2, len(EITHER))])
async def test_after_a_kill_each_word_is_told_once(tmp_path: Path, dialect: str, killed: str) -> None:
    (tmp_path / "front").mkdir()
    (tmp_path / "behind").mkdir()
    (tmp_path / "behind" / "slow.py").write_text(AGENT)
    behind, port = behind_in(tmp_path / "behind")
    front = ServerProcess(tmp_path / "front", "--store", "sqlite:///tasks.db", "--port", "0")
    (front.folder / "dragoman.toml").write_text(
        FRONT.format(url=f"http://127.0.0.1:{port}{AT[dialect]}", dialect=dialect)
    )
    async with served(behind, front):
        async with connect(f"{front.url}/agents/partner") as connection:
            task = await asked(connection, "go", return_immediately=True)
            if dialect == "evoai":  # tells of artifacts when they are whole
                async with connect(f"{behind.url}/agents/slow") as there:
                    await told(there, "")
            else:
                await told(connection, task.id)
        for server, word in ((front, "ours"), (behind, "theirs")):
            if killed in (word, "both"):
                await server.kill()
        for server, word in ((behind, "theirs"), (front, "ours")):
            if killed in (word, "both"):
                await server.start()
        async with connect(f"{front.url}/agents/partner") as connection:
            (behind.folder / "go").touch()
            async with asyncio.timeout(2 * DEADLINE_S):
                chunks = await read(connection, task.id)
            task = await connection.get(task.id)
            assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "one two three four five"), told_by(task)
        assert "".join(text for _, text in chunks) == "one two three four five", chunks
        assert all(append for append, _ in chunks[1:])
        assert "Traceback" not in front.said()


async def test_a_client_of_beeos_can_tell_what_is_told_again_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(AGENT)
    behind, port = behind_in(tmp_path)
    async with served(behind), connect(f"http://127.0.0.1:{port}{AT['beeos']}", dialect="beeos") as connection:
        text, heard = "", []
        async with asyncio.timeout(2 * DEADLINE_S):
            async for update in connection.stream("go"):
                if isinstance(update, ArtifactUpdate):
                    chunk = "".join(part.text or "" for part in update.artifact.parts)
                    text = text + chunk if update.append else chunk
                    heard.append(text)
                if text == "one two three " and not (tmp_path / "go").exists():
                    await behind.kill()
                    (tmp_path / "go").touch()
                    await behind.start()
    assert text == "one two three four five"
    assert all(text.startswith(each) for each in heard), heard
    assert heard.count("one ") == 2
