"""The code in docs/agents.md works as the text around it says."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Part, TaskState
from dragoman.testing import ClientFixture, Ran, run

DOCS = Path(__file__).parents[3] / "docs" / "agents.md"


def code() -> str:
    """All Python blocks, one after the other; line numbers are those of the text."""
    lines, inside = [], False
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        inside = (line == "```python") if fence else inside
    return "\n".join(lines)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The names that the blocks define. Running them runs the tests that the last one shows."""
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(code(), str(DOCS), "exec"), names)
    return names


def test_there_is_code() -> None:
    assert len(re.findall(r"^async def |^def ", code(), re.MULTILINE)) > 10


def ran(names: dict[str, Any], agent: str, text: str = "", **more: Any) -> Ran:
    found = names[agent]
    assert isinstance(found, Agent)
    return asyncio.run(run(found, text, **more))


@pytest.mark.parametrize(
    ("agent", "skill", "text", "answer"),
    [
        ("hello", None, "Ada", "Hello, Ada!"),
        ("speller", None, "abc", "abc"),
        ("blocking", "words", "one two", "onetwo"),
        ("baker", None, "", "Three trays of bread"),
        ("weather", None, "Lyon", "It will be sunny in Lyon"),
        ("careful", None, "Move the chairs", "I will do it"),
        ("card", None, "Good morning", "Bonjour"),
        ("card", "german", "Good morning", "Guten Morgen"),
    ],
)
def test_the_agents_answer(names: dict[str, Any], agent: str, skill: str | None, text: str, answer: str) -> None:
    assert ran(names, agent, text, skill=skill).text == answer


def test_the_agency_has_the_last_word(names: dict[str, Any]) -> None:
    booked = ran(names, "agency", "Oslo")
    assert (booked.state, booked.data) == (TaskState.COMPLETED, [{"to": "Oslo", "seat": "12A"}])
    assert booked.message is not None
    assert booked.message.text == "You fly to Oslo. Check in from tomorrow."
    assert ran(names, "agency").state is TaskState.FAILED


def test_a_plain_function_counts(names: dict[str, Any]) -> None:
    counted = ran(names, "blocking", "one two")
    assert (counted.data, counted.statuses) == ([2], ["Counting"])


def test_shapes_are_text_data_and_file_in_one_artifact(names: dict[str, Any]) -> None:
    (artifact,) = ran(names, "shapes").artifacts
    text, data, file = artifact.parts
    assert (text.text, data.data["radius"], file.media_type) == ("Here is your circle. ", 5, "image/svg+xml")


def test_the_report_is_three_artifacts(names: dict[str, Any]) -> None:
    log, amounts, pdf = ran(names, "report").artifacts
    assert (log.name, log.parts) == ("log", (Part(text="Reading\nDone\n"),))
    assert (amounts.name, amounts.parts[0].media_type) == ("amounts.csv", "text/csv")
    assert (pdf.parts[0].filename, pdf.parts[0].media_type) == ("report.pdf", "application/pdf")


def test_the_baker_reports(names: dict[str, Any]) -> None:
    baked = ran(names, "baker")
    assert baked.statuses == ["Heating the oven", "Tray 1", "Tray 2", "Tray 3"]
    assert baked.progress == [(1, 3), (2, 3), (3, 3)]
    assert baked.usage.total_tokens == 150


def test_the_search_for_primes_ends_when_it_is_canceled(names: dict[str, Any]) -> None:
    async def some() -> None:
        searching = asyncio.ensure_future(run(names["primes"]))
        await asyncio.sleep(0)
        searching.cancel()
        await asyncio.wait([searching])
        async with asyncio.timeout(60):
            while names["primes"].threads.taken:
                await asyncio.sleep(0)
        assert searching.cancelled()

    asyncio.run(some())


def test_thumbnails_describe_files(names: dict[str, Any]) -> None:
    image = Part(raw=b"png", media_type="image/png", filename="a.png")
    described = asyncio.run(run(names["thumbnails"], image))
    assert (described.files, described.data) == ([image], [{"type": "image/png", "bytes": 3}])
    assert described.state is TaskState.COMPLETED


async def test_the_test_with_the_fixture_passes(names: dict[str, Any], dragoman_client: ClientFixture) -> None:
    await names["test_forecasts"](dragoman_client)
