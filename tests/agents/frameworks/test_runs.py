"""Pauses of a run, and what a later run of the task does with them."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, RunQuestion, build_agent
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer
from dragoman.model.task import Task, TaskState
from dragoman.testing import client, run
from dragoman.testing.loopback import CONFIG


class Scripted(FrameworkRun):
    """Asks two things at once, then one more; `done` is what it did in the world."""

    def __init__(self, done: list[str], *, holds: bool, hello: str = "Hello. ") -> None:
        self._done = done
        self._holds = holds
        self._hello = hello

    async def holds(self, state: str) -> bool:
        return self._holds

    async def begin(self) -> str:
        self._done.append("began")
        return ""

    async def resume(self, state: str, answers: Sequence[Answer]) -> str:
        self._done.append(f"resumed {state} with {', '.join(answers)}")
        return state

    async def work(self, given: str) -> AsyncGenerator[object, None]:
        if given == "":
            yield self._hello
            yield RunPause((RunQuestion("Name?"), RunQuestion("Age?", {"kind": "number"})), "1")
        elif given == "1":
            yield RunPause((RunQuestion("Sure?"),), "2")
        else:
            yield "Goodbye."

    async def close(self) -> None:
        self._done.append("closed")


def agent(done: list[str], *, holds: bool = True, hello: str = "Hello. ") -> Agent:
    return build_agent("test", lambda ctx: Scripted(done, holds=holds, hello=hello))


async def test_questions_are_asked_one_after_the_other_and_answered_together() -> None:
    done: list[str] = []
    ran = await run(agent(done), "Hi", answers=["Ada", "36", "yes"])
    assert ran.questions == ["Name?", "Age?", "Sure?"]
    assert done == ["began", "resumed 1 with Ada, 36", "resumed 2 with yes", "closed"]
    assert [artifact.parts[0].text for artifact in ran.artifacts] == ["Hello. ", "Goodbye."]


async def test_a_run_that_is_given_up_is_closed() -> None:
    done: list[str] = []
    ran = await run(agent(done), "Hi", answers=["Ada"])
    assert ran.state is TaskState.INPUT_REQUIRED
    assert done == ["began", "closed"]


async def restarted(folder: Path, done: list[str], *, holds: bool, hello: str = "Hello. ") -> Task:
    """The task, with a new server and agent for each of its answers."""
    config = replace(CONFIG, store=f"sqlite:///{folder / 'store.db'}")
    task: object = None
    for text in ("Hi", "Ada", "36", "yes"):
        async with client(agent(done, holds=holds, hello=hello), config=config) as connection:
            more = {"task_id": task.id, "context_id": task.context_id} if isinstance(task, Task) else {}
            task = await connection.send(text, **more)
    assert isinstance(task, Task)
    return task


@pytest.mark.parametrize("hello", ["Hello. ", "Hello. " * 5000], ids=["short", "with_snapshots"])
async def test_after_a_restart_it_goes_on_from_the_state_that_was_noted(tmp_path: Path, hello: str) -> None:
    done: list[str] = []
    task = await restarted(tmp_path, done, holds=True, hello=hello)
    assert task.status.state is TaskState.COMPLETED
    assert [artifact.parts[0].text for artifact in task.artifacts] == [hello, "Goodbye."]
    assert [word for word in done if word != "closed"] == [
        "began",
        "resumed 1 with Ada, 36",
        "resumed 2 with yes",
    ]


async def test_a_state_that_is_lost_is_made_again_with_the_recorded_answers(tmp_path: Path) -> None:
    done: list[str] = []
    task = await restarted(tmp_path, done, holds=False)
    assert task.status.state is TaskState.COMPLETED
    assert [artifact.parts[0].text for artifact in task.artifacts] == ["Hello. ", "Goodbye."]
    assert done.count("began") == 4
    assert done[-4:] == ["began", "resumed 1 with Ada, 36", "resumed 2 with yes", "closed"]
