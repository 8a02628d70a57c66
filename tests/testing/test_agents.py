"""The example agents do what they are documented to do, also as installed in dragoman.testing."""

import hashlib
from pathlib import Path

import pytest

import dragoman.testing.agents as installed
import examples.agents as examples
from dragoman import Agent, Message, Part, Role, TaskState, Usage
from dragoman.testing import run

FILE = Part(raw=b"%PDF", filename="report.pdf", media_type="application/pdf")


def agents(module: object) -> list[str]:
    return [value.profile.id for value in vars(module).values() if isinstance(value, Agent)]


def test_there_is_one_definition() -> None:
    assert Path(str(installed.__file__)).read_bytes() == Path(str(examples.__file__)).read_bytes()
    assert agents(installed) == agents(examples)


def test_the_agents_are_those_of_the_documentation_and_echo_comes_first() -> None:
    assert agents(examples) == ["echo", "countdown", "trip", "papers", "login", "fail", "reject"]


def test_every_agent_has_an_example_to_paste() -> None:
    for name in agents(examples):
        (skill,) = getattr(examples, name).profile.skills
        assert skill.description
        assert skill.examples
        assert skill.tags


async def test_echo_answers_with_the_parts_and_counts_words() -> None:
    parts = (Part(text="two words"), FILE, Part(data={"a": None}))
    ran = await run(examples.echo, parts)
    (artifact,) = ran.artifacts
    assert artifact.parts == parts
    assert ran.usage == Usage(2, 2, 4)


async def test_countdown_counts_with_progress_and_chunks() -> None:
    ran = await run(examples.countdown, "Count down from 3 every 0.001 s, or from 9")
    assert ran.text.split() == ["3", "2", "1"]
    assert ran.progress == [(1, 3), (2, 3), (3, 3)]
    assert [chunk.append for chunk in ran.chunks] == [False, True, True]


@pytest.mark.parametrize(("text", "steps"), [("", 5), ("go", 5), ("every 0.001 s, 3", 3), ("2 of 7", 2), ("0", 0)])
async def test_countdown_takes_the_first_number(text: str, steps: int) -> None:
    fast = text if "every" in text else f"{text} every 0"
    assert len((await run(examples.countdown, fast)).chunks) == steps


async def test_trip_asks_twice_then_books() -> None:
    ran = await run(examples.trip, "Book me a trip", answers=["Lyon", "Oslo"])
    assert ran.questions == ["From where?", "To where?"]
    assert ran.text == "Booked: from Lyon to Oslo"
    assert (await run(examples.trip, "Book me a trip", answers=["Lyon"])).state is TaskState.INPUT_REQUIRED


async def test_files_gives_each_file_back_with_its_facts() -> None:
    second = Part(url="https://example.org/b", filename="b")
    ran = await run(examples.papers, Message(message_id="m", role=Role.USER, parts=(Part(text="keep"), FILE, second)))
    one, two = ran.artifacts
    facts = {"name": "report.pdf", "size": 4, "sha256": hashlib.sha256(b"%PDF").hexdigest()}
    assert (one.name, one.parts) == ("report.pdf", (FILE, Part(data=facts)))
    assert two.parts == (second, Part(data={"name": "b", "url": "https://example.org/b"}))


async def test_files_without_a_file_gives_a_small_text_file() -> None:
    (file,) = (await run(examples.papers, "any file")).files
    assert (file.media_type, file.filename, file.raw) == ("text/plain", "hello.txt", b"Hello from Dragoman.\n")


async def test_login_completes_on_the_next_message() -> None:
    assert (await run(examples.login, "hello")).state is TaskState.AUTH_REQUIRED
    assert (await run(examples.login, "hello", answers=["here I am"])).state is TaskState.COMPLETED


async def test_fail_raises() -> None:
    with pytest.raises(RuntimeError, match="always fails"):
        await run(examples.fail, "try")


async def test_reject_rejects() -> None:
    ran = await run(examples.reject, "try")
    assert (ran.state, ran.reason) == (TaskState.REJECTED, "This agent takes no tasks")
