"""docs/operations.md: each entry's commands, run against a server that has the trouble, show what the page says."""

import asyncio
import re
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from tests.docs import symptoms
from tests.docs.symptoms import DEADLINE_S, PAGE, Make, Scene

pytestmark = pytest.mark.slow

MAKERS: dict[str, Make] = {
    "A task hangs": symptoms.hanging_task,
    "Tasks queue and nothing runs": symptoms.waiting_queue,
    "Webhooks do not arrive": symptoms.failing_webhook,
    "A worker is silent": symptoms.silent_worker,
    "An upstream fails": symptoms.failing_upstream,
    "The store is slow": symptoms.slow_store,
    "The disk is full": symptoms.full_disk,
    "A task cannot be read": symptoms.damaged_task,
    "PostgreSQL is down": symptoms.lost_postgres,
    "Clients get 401, 403 or 429": symptoms.refused_callers,
    "A key has leaked": symptoms.leaked_key,
    "Streams break behind a proxy": symptoms.broken_stream,
    "Memory grows": symptoms.growing_memory,
    "The server does not start": symptoms.server_that_does_not_start,
    "A job fails": symptoms.failing_job,
    "Old tasks are not deleted": symptoms.late_sweep,
    "Clocks differ": symptoms.clocks,
    "After a restore": symptoms.restored,
}
"""The makers of the symptoms, by the entry of the page. That of replicas needs a PostgreSQL."""

REPLICAS = "A replica is gone"

CHANGES = (
    "dragoman admin tasks cancel",
    "dragoman admin tasks delete",
    "dragoman store restore",
    "dragoman serve",
    "dragoman keys revoke",
)
"""How the commands begin that are run only once: the others are repeated until they show what the page says."""


class Step(Struct, frozen=True):
    """A command of the page with the lines that it shows, or lines of the log (no command)."""

    command: str
    lines: tuple[str, ...]


def entries() -> dict[str, tuple[Step, ...]]:
    """The entries of the page, with their steps."""
    _, *sections = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    return {title: tuple(steps(text)) for title, text in zip(sections[::2], sections[1::2], strict=True)}


def steps(text: str) -> list[Step]:
    found = []
    for kind, block in re.findall(r"^```(console|log)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        if kind == "log":
            found.append(Step("", tuple(block.splitlines())))
            continue
        assert block.startswith("$ "), block
        for piece in block.removeprefix("$ ").split("\n$ "):
            command, *lines = piece.splitlines()
            found.append(Step(command, tuple(lines)))
    return found


def missing(lines: tuple[str, ...], shown: str) -> list[str]:
    """The lines of the page that the output has not. `…` stands for anything, and runs of spaces for one."""
    output = [" ".join(line.split()) for line in shown.splitlines()]
    return [line for line in lines if not any(pattern_of(line).search(each) for each in output)]


def pattern_of(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, " ".join(line.split()).split("…"))))


async def follow(scene: Scene, title: str) -> None:
    """Do what the entry says, and compare what is shown."""
    for step in entries()[title]:
        shown = ""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while lacking := missing(
                    step.lines, shown := await scene.run(step.command) if step.command else scene.log.read_text()
                ):
                    assert not step.command.startswith(CHANGES), (lacking, shown)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"{step.command or 'the log'} does not show {lacking}, but:\n{shown}")


def test_every_entry_has_a_symptom_and_steps() -> None:
    assert set(entries()) == {*MAKERS, REPLICAS}
    for title, found in entries().items():
        assert found, title
        assert all(step.lines for step in found), title


def test_the_index_leads_to_every_entry() -> None:
    index = PAGE.partition("\n## ")[0]
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in entries()}
    assert set(re.findall(r"\]\(#([a-z0-9-]+)\)", index)) == anchors


@pytest.mark.parametrize("title", MAKERS)
async def test_the_commands_of_the_page_find_the_cause(title: str, tmp_path: Path) -> None:
    async with MAKERS[title](tmp_path) as scene:
        await follow(scene, title)


async def test_the_commands_of_the_page_find_a_replica_that_is_gone(tmp_path: Path, postgres_url: str) -> None:
    async with asynccontextmanager(symptoms.replica_that_is_gone)(tmp_path, postgres_url) as scene:
        await follow(scene, REPLICAS)
