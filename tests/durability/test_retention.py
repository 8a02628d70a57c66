"""Old tasks go, in short batches, while others write; younger ones stay, and the totals are right."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.model.events import StatusChanged, Submitted
from dragoman.model.ids import new_id, timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.principal import ANONYMOUS
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus
from dragoman.store.api import Append, NewTask
from dragoman.store.open import open_store
from tests.durability.caller import WAITING, Caller, Refusal, message
from tests.durability.conftest import DEADLINE_S, Serve, Server
from tests.store.cases.bench import SetClock

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
OLD = 2_000


async def kept(store: Path, ages: dict[int, int], state: TaskState) -> list[str]:
    """Write so many tasks of each age (in hours) to a store file, as an earlier process would have. Their ids."""
    now_ms = int(time.time() * 1000)
    clock = SetClock(now_ms)
    ids: list[str] = []
    opened = open_store(f"sqlite:///{store}", clock)
    await opened.open("earlier")
    try:
        for hours, number in ages.items():
            clock.ms = now_ms - hours * HOUR_MS
            writes = [written(clock.ms, state) for _ in range(number)]
            ids += [new.head.id for new, _ in writes]
            await asyncio.gather(*(opened.create(new) for new, _ in writes))
            await asyncio.gather(*(opened.append(end) for _, end in writes))
    finally:
        await opened.close()
    return ids


def written(ms: int, state: TaskState) -> tuple[NewTask, Append]:
    """A task made at `ms`, that came to `state` at once."""
    task_id, at = new_id(), timestamp(ms)
    said = Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),), task_id=task_id, context_id="c")
    head = TaskHead(
        id=task_id, context_id="c", agent="echo", owner=ANONYMOUS.id, dialect="1.0", mount="/agents/echo", created_at=at
    )
    new = NewTask(head=head, events=(Submitted(said, at),), state=TaskState.SUBMITTED, status_ms=ms, holder="earlier")
    record = Record(head=head, seq=2, status=TaskStatus(state=state, timestamp=at), history=(said,))
    events = (StatusChanged(state, at),)
    return new, Append(
        task_id=task_id, events=events, state=state, status_ms=ms, epoch=1, release=True, snapshot=record
    )


async def test_the_sweep_deletes_what_is_old_in_batches_between_which_others_write(
    serve: Serve, call: Callable[[Server], Caller], store: Path
) -> None:
    ids = await kept(store, {48: OLD, 2: 50}, TaskState.COMPLETED)
    caller = call(await serve("--task-retention", "24h", "--log-retention", "forever"))
    totals, sent = [await caller.total("echo")], 0
    between = 0
    async with asyncio.timeout(DEADLINE_S):
        while totals[-1] > 50 + sent:
            before = totals[-1]
            assert (await caller.send("echo", message("hello")))["status"]["state"] == "TASK_STATE_COMPLETED"
            sent += 1
            totals.append(await caller.total("echo"))
            between += before > totals[-1] > 50 + sent
    assert between > 2, f"in one go: {totals}"
    assert sent > 5
    tasks, total = await caller.tasks("echo")
    assert len(tasks) == total == 50 + sent
    found = {task["id"] for task in tasks}
    assert found.isdisjoint(ids[:OLD])
    assert found > set(ids[OLD:])
    with pytest.raises(Refusal) as gone:
        await caller.get("echo", ids[0])
    assert gone.value.status == 404


async def test_logs_go_before_their_tasks_and_a_reader_that_was_away_gets_the_task(
    serve: Serve, call: Callable[[Server], Caller], store: Path
) -> None:
    (old,) = await kept(store, {48: 1}, TaskState.COMPLETED)
    (young,) = await kept(store, {2: 1}, TaskState.COMPLETED)
    caller = call(await serve("--task-retention", "30d", "--log-retention", "24h"))
    async with asyncio.timeout(DEADLINE_S):
        while len(frames := await caller.replay("echo", old)) != 1:
            await asyncio.sleep(0.02)
    assert frames[0].payload == {"task": await caller.get("echo", old)}
    assert [frame.id for frame in await caller.replay("echo", young)] == ["1", "2"]
    assert await caller.total("echo") == 2


async def test_what_waited_too_long_for_its_caller_goes_and_what_did_not_stays(
    serve: Serve, call: Callable[[Server], Caller], store: Path
) -> None:
    old, young = await kept(store, {48: 1, 2: 1}, TaskState.INPUT_REQUIRED)
    caller = call(await serve("--waiting-retention", "24h"))
    async with asyncio.timeout(DEADLINE_S):
        while await caller.total("echo") > 1:
            await asyncio.sleep(0.02)
    assert (await caller.get("echo", young))["status"]["state"] == WAITING
    with pytest.raises(Refusal):
        await caller.get("echo", old)
