"""The runner in the test itself, behind a server, and as its page says: with a server that is killed twice."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from dragoman import TaskState
from dragoman.testing import client, run
from examples.runner.tally import tally
from tests.docs.reader import Reader, reader
from tests.docs.test_readme import DEADLINE_S, ROOT

PAGE = Path(__file__).parent / "README.md"
KILL = re.compile(r"\b[Kk]ill the server\b")
START = re.compile(r"```sh\n(dragoman serve .*?)```", re.DOTALL)


async def test_it_adds_up_when_the_caller_agrees() -> None:
    ran = await run(tally, "3", answers=["yes"])
    assert (ran.state, ran.text) == (TaskState.COMPLETED, "3\n")
    assert ran.questions == ["Add up 1 numbers?"]
    assert ran.progress == [(1, 1)]


async def test_it_refuses_words() -> None:
    ran = await run(tally, "three")
    assert (ran.state, ran.reason) == (TaskState.REJECTED, "Send whole numbers, one a line.")


async def test_callers_are_asked_first() -> None:
    async with client(tally) as agent:
        talk = agent.conversation()
        assert (await talk.say("3")).text == "Add up 1 numbers?"
        assert (await talk.say("no")).text == "Nothing was added up."


@pytest.mark.slow
def test_a_reader_sees_what_the_page_says(tmp_path: Path) -> None:
    begin, question, counting = KILL.split(PAGE.read_text(encoding="utf-8"))
    (start,) = START.findall(begin)
    with reader(tmp_path, ROOT) as reading:
        follow(reading, begin)
        asked = json.loads(reading.printed)["task"]
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert asked["status"]["message"]["parts"] == [{"text": "Add up 4 numbers?"}]
        kill(reading)
        follow(reading, f"```sh\n{start}```\n" + question)
        kill(reading)
        follow(reading, f"```sh\n{start}```\n" + counting)
        events = [json.loads(line.removeprefix("data: ")) for line in reading.printed.splitlines() if "data: " in line]
    statuses = [event["statusUpdate"]["status"] for event in events if "statusUpdate" in event]
    chunks = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [status["state"] for status in statuses].count("TASK_STATE_INPUT_REQUIRED") == 1
    assert statuses[-1]["state"] == "TASK_STATE_COMPLETED"
    (whole,) = [at for at, chunk in enumerate(chunks) if chunk.get("lastChunk")]
    begun = max(at for at, chunk in enumerate(chunks) if not chunk.get("append"))
    assert [chunk["artifact"]["parts"][0]["text"] for chunk in chunks[begun : whole + 1]] == [
        "3\n",
        "7\n",
        "12\n",
        "18\n",
    ]


def follow(reading: Reader, text: str) -> None:
    """Do what a part of the page says."""
    part = reading.folder / "part.md"
    part.write_text(text)
    reading.follow(part)


def kill(reading: Reader) -> None:
    """Kill the server without warning, as a reader does by its process id."""
    os.killpg(reading.processes[-1].pid, signal.SIGKILL)
    reading.processes[-1].wait(DEADLINE_S)
