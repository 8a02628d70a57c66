"""The editor writes with what it gets, and says what it did not get."""

from typing import Any

import pytest

from dragoman import Reject, TaskState
from dragoman.client import Task, text_of
from dragoman.testing import client, run
from examples.research.research import almanac, archive, editor


async def test_both_sources_are_asked_and_cited() -> None:
    async with client([editor, almanac, archive]) as researchers:
        reply = await researchers.send("Oslo")
    assert isinstance(reply, Task)
    _, cited = reply.artifacts
    assert text_of(reply).startswith(
        "# Oslo\n\nOslo has 717,710 inhabitants and lies on a fjord. [1]\nOslo burned down"
    )
    sources: Any = cited.parts[0].data
    assert [source["source"] for source in sources] == ["almanac", "archive"]


async def test_a_source_that_knows_nothing_is_named() -> None:
    ran = await run(editor, "Lyon", delegated={"almanac": ["Two rivers."], "archive": [Reject("nothing on Lyon")]})
    assert ran.text == "# Lyon\n\nTwo rivers. [1]\n\nThe archive could not say: nothing on Lyon.\n"


@pytest.mark.parametrize("agent", [almanac, archive])
async def test_a_researcher_does_not_invent(agent: object) -> None:
    ran = await run(agent, "Atlantis")  # type: ignore[arg-type]
    assert ran.state is TaskState.REJECTED


async def test_a_report_of_nothing_fails() -> None:
    ran = await run(editor, "Atlantis", delegated={"almanac": [Reject("no")], "archive": [Reject("no")]})
    assert ran.state is TaskState.FAILED
