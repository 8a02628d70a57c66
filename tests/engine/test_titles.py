"""What a task is called: the words of its agent, its caller's, or how its message begins."""

import asyncio
from pathlib import Path

import pytest

from dragoman.admin.tasks import TaskQuery
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.client import connect
from dragoman.config import Config
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.api import Run
from dragoman.model.events import Noted
from dragoman.model.ids import SystemClock
from dragoman.model.message import Message, Part
from dragoman.model.task import Task
from dragoman.model.title import TITLE, TITLE_NOTE, asked_title, title_line
from dragoman.net.dialer import operator_named
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.store.api import Store
from dragoman.store.open import open_store
from tests.engine.house import DEADLINE_S, Scripted, house, say, sending


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  Book a\n\ttable \u2028for two  ", "Book a table for two"),
        ("x" * 120, "x" * 120),
        ("x" * 118 + " yz", "x" * 118 + "…"),
        ("é" * 130, "é" * 119 + "…"),
        ("pay\u202egnp.exe \x1b[31mred\x07", "paygnp.exe [31mred"),
        ("half \ud800 a pair", "half a pair"),
        ("\u3164\u2800\u115f \u200b\u200d", ""),
        ("z" + "\u0301" * 40, "z" + "\u0301" * 3),
        ("\u0301\u200dvisible", "visible"),
        ("👩\u200d👩\u200d👧 " * 3, "👩\u200d👩\u200d👧 👩\u200d👩\u200d👧 👩\u200d👩\u200d👧"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("", ""),
    ],
)
def test_a_title_is_one_line_of_what_can_be_seen(text: str, line: str) -> None:
    assert title_line(text) == line
    assert title_line(line) == line


def test_a_caller_names_its_task_in_the_metadata() -> None:
    """Ours counts before the plain word, and the request before its message; what is no text is none."""
    assert asked_title({"title": "plain"}, {TITLE: "ours"}) == "ours"
    assert asked_title({"title": "request"}, {"title": "message"}) == "request"
    assert asked_title({TITLE: 7, "title": " "}, {"title": ["no text"]}, None) == ""


async def _title(store: Store, task_id: str) -> str:
    """The title of a task, on which its page, the list and a search agree."""
    inspector = Inspector(store)
    title = (await inspector.show(task_id)).task.title
    for query in (TaskQuery(), TaskQuery(text=title.upper()[:200])):
        assert [line.title for line in (await inspector.list(query)).tasks if line.id == task_id] == [title]
    return title


async def test_the_last_title_of_the_agent_counts_then_the_callers_then_the_message() -> None:
    async def script(run: Run) -> None:
        if run.message.text == "named":
            run.title("first")
            run.title("The second\none")
            with pytest.raises(ValueError, match="title has nothing"):
                run.title("\u200b")

    async with house(Scripted(script)) as h:
        named = await h.send("named", metadata={"title": "by the caller"})
        assert await _title(h.store, named.head.id) == "The second one"
        assert named.status.message is None, "callers see nothing of it"
        assert await _title(h.store, (await h.send(metadata={"title": "by its caller"})).head.id) == "by its caller"
        assert await _title(h.store, (await h.send("hi there")).head.id) == "hi there"


async def test_a_run_that_repeats_what_is_recorded_names_its_task_no_second_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"

    async def script(run: Run) -> None:
        run.title("before")
        await run.ask((Part(text="?"),))
        run.title("after")
        await run.ask((Part(text="??"),))
        run.title("after")

    async with house(Scripted(script), url=url) as h:
        task_id = (await h.send()).head.id
        await h.send("one", task_id=task_id)
    async with house(Scripted(script), url=url) as h:
        await h.send("two", task_id=task_id)
        noted = [logged.event.note for logged in await h.log(task_id) if isinstance(logged.event, Noted)]
        assert [note.get(TITLE_NOTE) for note in noted] == ["before", "after"]
        assert await _title(h.store, task_id) == "after"


async def test_a_title_alone_makes_no_task_of_a_message() -> None:
    async def script(run: Run) -> None:
        run.title("named")
        if run.message.text == "ask":
            await run.ask((Part(text="?"),))

    async with house(Scripted(script, direct="auto")) as h:
        assert isinstance(await h.ask(sending("answer")), Message)
        assert await _title(h.store, (await h.send("ask")).head.id) == "named"


async def test_a_worker_names_its_task_with_its_next_report(tmp_path: Path) -> None:
    url, task_ids = f"sqlite:///{tmp_path}/tasks.db", {}

    async def script(run: Run) -> None:
        run.title(f"by a worker: {run.message.text}")
        if run.message.text == "report":
            await run.status((Part(text="so far"),))
        elif run.message.text == "artifact":
            await say(run, "one")

    agent = Scripted(script)
    there, egress, stop = WorkerAgent(agent.profile, queues=True), Egress(operator_named), asyncio.Event()
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(Config(port=0, store=url, shutdown_grace_s=0.2), [there]) as server,
        connect(f"{server}/agents/agent") as connection,
    ):
        lessee = Lessee(agent, WorkerApi(egress, server, "agent"), name="w", tasks=1)
        working = asyncio.create_task(lessee.work(stop, 0.2))
        for text in ("report", "artifact", "end"):
            task = await connection.send(text)
            assert isinstance(task, Task)
            task_ids[text] = task.id
        stop.set()
        await working
    await egress.close()
    store = open_store(url, SystemClock())
    await store.open("test")
    try:
        for text, task_id in task_ids.items():
            assert await _title(store, task_id) == f"by a worker: {text}"
    finally:
        await store.close()
