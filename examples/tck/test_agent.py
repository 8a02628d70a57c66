"""The agent does what the scenarios of the kit describe; the kit itself is run by hand."""

import pytest

from dragoman import Message, Part, Role, TaskState
from dragoman.testing import Ran, run
from examples.tck.agent import FILES, TEXTS, agent


async def answer(message_id: str, *answers: str) -> Ran:
    message = Message(message_id=f"{message_id}-7f", role=Role.USER, parts=(Part(text="Hello"),))
    return await run(agent, message, answers=answers)


@pytest.mark.parametrize("begin", TEXTS)
async def test_a_text_is_an_artifact(begin: str) -> None:
    ran = await answer(begin)
    assert (ran.state, ran.text) == (TaskState.COMPLETED, TEXTS[begin])


@pytest.mark.parametrize("begin", FILES)
async def test_a_file_or_data_is_an_artifact(begin: str) -> None:
    (artifact,) = (await answer(begin)).artifacts
    assert artifact.parts == (FILES[begin],)


async def test_an_artifact_comes_in_two_chunks() -> None:
    assert (await answer("tck-stream-artifact-chunked")).text == "chunk-1 chunk-2"


async def test_a_task_is_rejected() -> None:
    assert (await answer("tck-reject-task")).state is TaskState.REJECTED


@pytest.mark.parametrize("begin", ["tck-input-required", "test-history", "msg"])
async def test_a_task_waits(begin: str) -> None:
    ran = await answer(begin)
    assert (ran.state, ran.questions) == (TaskState.INPUT_REQUIRED, ["What else?"])
