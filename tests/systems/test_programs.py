"""Programs behind cards of a server: the examples, streams, cancel, questions over a restart, and a server that is
killed."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from dragoman.cli.entries import make_agent
from dragoman.cli.references import AgentReferenceError
from dragoman.client import Connection, connect
from dragoman.config import Config, load
from dragoman.engine.api import Runner
from dragoman.model.message import Message, Part
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import ArtifactUpdate
from dragoman.server import serving
from tests.agents.program.test_agent import READS
from tests.kit.places import asked
from tests.kit.processes import alive, gone, serving_process
from tests.kit.values import text_of, told_by

ROOT = Path(__file__).parents[2]
DRAGOMAN = Path(sys.executable).parent / "dragoman"
DEADLINE_S = 60.0
CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.1, cancel_grace_s=4.0, keepalive_s=0.5)


def agent(folder: Path, script: str, **keys: Any) -> Runner:
    """The agent `program` of a file in `folder`, whose program is a script in Bash."""
    path = folder / "agent.sh"
    path.write_text(f"#!/usr/bin/env bash\n{script}\n")
    path.chmod(0o755)
    (folder / "dragoman.toml").write_text(table(f"command:{path}", **keys))
    (entry,) = load(folder / "dragoman.toml", {}, {}).agents
    return make_agent(entry)


def table(run: str, **keys: Any) -> str:
    lines = (
        f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for name, value in keys.items()
    )
    return "\n".join(["shutdown_grace_s = 0.2", "[[agents]]", 'id = "program"', f'run = "{run}"', *lines, ""])


@asynccontextmanager
async def fronted(runner: Runner, config: Config = CONFIG) -> AsyncIterator[Connection]:
    async with serving(config, [runner]) as url, connect(f"{url}/agents/{runner.profile.id}") as connection:
        yield connection


async def told(connection: Connection, task_id: str, words: int) -> list[str]:
    """The words of the task's result, once there are so many."""
    async with asyncio.timeout(DEADLINE_S):
        while len(found := text_of(await connection.get(task_id)).split()) < words:
            await asyncio.sleep(0.02)
    return found


async def test_a_program_answers_with_a_message_or_a_task(tmp_path: Path) -> None:
    script = """read -r said; [ "$said" = hello ] || echo '{"status": "working"}'; echo "you said $said" """
    runner = agent(tmp_path, script, input="text", direct="auto", direct_wait_s=60)
    async with fronted(runner) as connection:
        answer = await connection.send("hello")
        assert isinstance(answer, Message)
        assert answer.text == "you said hello\n"
        assert text_of(await asked(connection, "more")) == "you said more\n"


# -- the examples ------------------------------------------------------------------------------------------------------


def example(name: str, folder: Path) -> Runner:
    """The agent that the head of an example declares."""
    lines = (ROOT / "examples" / name).read_text().splitlines()
    marked = [re.sub(r"^(#|//) {3}", "", line) for line in lines if re.match(r"(#|//) {3}\S", line)]
    file = folder / "dragoman.toml"
    file.write_text("\n".join(marked).replace("examples/", f"{ROOT}/examples/"))
    (entry,) = load(file, {}, {}).agents
    return make_agent(entry)


async def test_the_example_in_bash(tmp_path: Path) -> None:
    async with fronted(example("words.sh", tmp_path)) as connection:
        task = await asked(connection, "The cat and the dog and the bird")
        assert (task.status.state, text_of(task)) == (
            TaskState.COMPLETED,
            "8 words, the most frequent:\n      3 the\n      2 and\n      1 bird\n",
        )
        assert (await asked(connection, Part(data={"no": "text"}))).status.state is TaskState.REJECTED


async def test_the_example_in_node(tmp_path: Path) -> None:
    async with fronted(example("trip.mjs", tmp_path)) as connection:
        task = await asked(connection, "Lyon")
        assert (task.status.state, told_by(task)) == (TaskState.INPUT_REQUIRED, "How many days in Lyon?")
        task = await asked(connection, "2", task_id=task.id)
        assert task.status.state is TaskState.COMPLETED, told_by(task)
        assert text_of(task) == "Day 1: a walk in Lyon.\nDay 2: a walk in Lyon.\n"
        data = [part.data for artifact in task.artifacts for part in artifact.parts if part.data is not UNSET]
        assert data == [{"city": "Lyon", "days": 2}]
        task = await asked(connection, "Lyon")
        task = await asked(connection, "never", task_id=task.id)
        assert (task.status.state, told_by(task)) == (TaskState.REJECTED, "A trip takes 1 to 30 days.")


# -- a server and its program ------------------------------------------------------------------------------------------


async def test_what_it_writes_is_streamed_as_it_comes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    runner = agent(tmp_path, f"printf one; cat {tmp_path}/gate; printf three")
    texts = []
    async with fronted(runner) as connection, asyncio.timeout(DEADLINE_S):
        async for update in connection.stream("go"):
            if isinstance(update, ArtifactUpdate):
                texts.extend(part.text for part in update.artifact.parts)
                if texts == ["one"]:
                    await asyncio.to_thread((tmp_path / "gate").write_text, "two")
    assert (texts[0], "".join(text or "" for text in texts)) == ("one", "onetwothree")


async def test_a_cancel_ends_the_program_and_its_children(tmp_path: Path) -> None:
    async with fronted(agent(tmp_path, "sleep 60 & echo $! $$; wait")) as connection:
        task = await asked(connection, "go", return_immediately=True)
        pids = await told(connection, task.id, 2)
        assert (await connection.cancel(task.id)).status.state is TaskState.CANCELED
        await gone(*map(int, pids))


async def test_a_missing_program_is_named_when_its_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(table("command:no-such-program --fast"))
    (entry,) = load(tmp_path / "dragoman.toml", {}, {}).agents
    with pytest.raises(AgentReferenceError, match=r"agent 'program': the program no-such-program was not found"):
        make_agent(entry)


async def test_a_program_that_has_gone_since_fails_its_task_with_a_reference(tmp_path: Path) -> None:
    runner = agent(tmp_path, "true")
    (tmp_path / "agent.sh").unlink()
    async with fronted(runner) as connection:
        task = await asked(connection, "go")
        assert task.status.state is TaskState.FAILED
        assert re.fullmatch(r"The agent failed \(reference \w{12}\)\.", told_by(task))


ASKS = (
    READS
    + """
read -r task; echo start
echo '{"ask": "Which?"}'; read -r one
echo "got $(text <<<"$one")"
echo '{"ask": "Sure?"}'; read -r two
echo "and $(text <<<"$two")"
"""
)


ASKS_LAST = (
    READS
    + """
task=$(cat)
case $(answers <<<"$task") in
  0) echo start; echo '{"ask": "Which?"}' ;;
  1) echo "got $(answer 0 <<<"$task")"; echo '{"ask": "Sure?"}' ;;
  *) echo "and $(answer 1 <<<"$task")" ;;
esac
"""
)


@pytest.mark.parametrize(("reads", "script"), [("lines", ASKS), ("json", ASKS_LAST)])
@pytest.mark.parametrize("restarts", [(), (1,), (2,), (1, 2)])
async def test_its_questions_outlive_a_restart(
    tmp_path: Path, reads: str, script: str, restarts: tuple[int, ...]
) -> None:
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'tasks.db'}")
    runner = agent(tmp_path, script, input=reads)
    task: Task | None = None
    texts = ["go", "red", "yes"]
    for begin, end in zip((0, *restarts), (*restarts, len(texts)), strict=True):
        async with fronted(runner, config) as connection:
            for text in texts[begin:end]:
                task = await asked(connection, text, task_id=None if task is None else task.id)
    assert task is not None
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "start\ngot red\nand yes\n")


async def test_one_that_is_not_kept_for_the_answer_is_started_again_when_it_comes(tmp_path: Path) -> None:
    runner = agent(tmp_path, f"echo $$ >>{tmp_path}/pids; {ASKS}", input="lines", keep_s=0.1, concurrency=1)
    async with fronted(runner) as connection:
        first = await asked(connection, "go")
        await gone(*map(int, (tmp_path / "pids").read_text().split()))
        second = await asked(connection, "go")  # there is room again
        await gone(*map(int, (tmp_path / "pids").read_text().split()))
        for task in (first, second):
            assert (await asked(connection, "red", task_id=task.id)).status.state is TaskState.INPUT_REQUIRED
            task = await asked(connection, "yes", task_id=task.id)
            assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "start\ngot red\nand yes\n")


async def test_one_that_asks_something_else_when_it_is_started_again_fails(tmp_path: Path) -> None:
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'tasks.db'}")
    runner = agent(tmp_path, "read -r task; echo '{\"ask\": \"'$RANDOM$RANDOM'?\"}'; read -r one", input="lines")
    async with fronted(runner, config) as connection:
        task = await asked(connection, "go")
    async with fronted(runner, config) as connection:
        task = await asked(connection, "yes", task_id=task.id)
        assert (task.status.state, task.status.message and task.status.message.metadata) == (
            TaskState.FAILED,
            {"reason": "replay_mismatch"},
        )


async def test_a_cancel_ends_a_program_that_waits_for_an_answer(tmp_path: Path) -> None:
    runner = agent(tmp_path, 'read -r task; echo $$; echo \'{"ask": "?"}\'; read -r one', input="lines")
    async with fronted(runner) as connection:
        task = await asked(connection, "go")
        assert (await connection.cancel(task.id)).status.state is TaskState.CANCELED
        await gone(int(text_of(task)))


async def test_a_waiting_program_is_killed_when_its_server_stops(tmp_path: Path) -> None:
    runner = agent(tmp_path, 'read -r task; echo $$; echo \'{"ask": "?"}\'; read -r one', input="lines")
    async with fronted(runner) as connection:
        task = await asked(connection, "go")
        pid = int(text_of(task))
        assert alive(pid)
    await gone(pid)


# -- a process that is killed ------------------------------------------------------------------------------------------


SERVE = ("--store", "sqlite:///tasks.db", "--port", "0")
BROOD = "trap '' TERM; setsid -f bash -c 'echo $$; exec sleep 60'; sleep 60 & echo $! $$; wait; wait"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("restartable", [False, True])
async def test_nothing_of_a_program_outlives_its_server(
    tmp_path: Path, number: signal.Signals, restartable: bool
) -> None:
    agent(tmp_path, BROOD, restartable=restartable, grace_s=0.5)
    async with serving_process(tmp_path, *SERVE) as server, connect(f"{server.url}/agents/program") as connection:
        task = await asked(connection, "go", return_immediately=True)
        pids = [int(pid) for pid in await told(connection, task.id, 3)]
        assert all(map(alive, pids))
        server.signal(number)
        await gone(*pids)
        await server.ended()
    async with serving_process(tmp_path, *SERVE) as server, connect(f"{server.url}/agents/program") as connection:
        if restartable:
            async with asyncio.timeout(DEADLINE_S):  # until the first chunk of the new start replaces the old ones
                while {int(pid) for pid in await told(connection, task.id, 3)} & set(pids):
                    await asyncio.sleep(0.02)
            task = await connection.cancel(task.id)
            assert task.status.state is TaskState.CANCELED
        else:
            assert (await connection.get(task.id)).status.message.metadata == {"reason": "interrupted"}  # type: ignore[union-attr]
    assert "Traceback" not in server.said()
