"""A task with a long log is read without holding up the requests of others."""

import asyncio
import time
from pathlib import Path

from dragoman.model.events import ArtifactChunk, Logged, StatusChanged, Submitted
from dragoman.model.ids import SystemClock, timestamp
from dragoman.model.lifecycle import fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.principal import ANONYMOUS
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.api import Append, NewTask
from dragoman.store.open import open_store
from tests.systems.conftest import Site, site
from tests.systems.speakers import NEW, V

PAGES, PAGE_EVENTS = 30, 5_000

TRIES = 5
"""The machine may be busy with other things. A fold on the loop holds it up each time."""

CHUNK = ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text="some words "),)), True, False)


async def make(store: str) -> tuple[str, float]:
    """Make a task that waits for its caller after a long log. Returns its id, and how long folding it takes."""
    opened, now_ms = open_store(store, SystemClock()), SystemClock().now_ms()
    await opened.open("test")
    head = TaskHead(
        id="long", context_id="c", agent="desk", owner=ANONYMOUS.id, dialect="1.0", mount="/agents/desk",
        created_at=timestamp(now_ms),
    )  # fmt: skip
    said = Submitted(Message(message_id="m", role=Role.USER, parts=(Part(text="go"),)), timestamp(now_ms))
    log = [said, *[CHUNK] * (PAGES * PAGE_EVENTS)]
    await opened.create(NewTask(head=head, events=(said,), state=TaskState.WORKING, status_ms=now_ms, holder="test"))
    for number in range(PAGES):
        last = number == PAGES - 1
        asks = (StatusChanged(TaskState.INPUT_REQUIRED, timestamp(now_ms)),) if last else ()
        await opened.append(
            Append(
                task_id="long",
                events=(*[CHUNK] * PAGE_EVENTS, *asks),
                state=TaskState.INPUT_REQUIRED if last else TaskState.WORKING,
                status_ms=now_ms,
                epoch=1,
                release=last,
            )
        )
    await opened.close()
    began = time.perf_counter()
    fold(head, None, [Logged(seq, event) for seq, event in enumerate(log, 1)])
    return head.id, time.perf_counter() - began


async def longest_pause(served: Site, path: str, **headers: str) -> float:
    """How long the loop stood still at most while a request was answered."""
    longest, reading = 0.0, asyncio.ensure_future(served.ask("GET", path, **headers))
    while not reading.done():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - began)
    assert (await reading).status == 200
    return longest


async def test_a_long_log_is_folded_beside_the_loop(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    task_id, takes_s = await make(store)
    async with site(store=store) as served:
        path = f"/agents/desk/tasks/{task_id}?historyLength=0"
        pauses = [await longest_pause(served, path, **V) for _ in range(TRIES)]
        assert min(pauses) < takes_s / 2, (pauses, takes_s)
        task = (await NEW.get(served, task_id)).result
        assert len(task["artifacts"][0]["parts"][0]["text"]) == PAGES * PAGE_EVENTS * len("some words ")
