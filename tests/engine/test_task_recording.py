"""Recordings of tasks: a log as the store has it, without the bytes of files and without secrets."""

import msgspec
import pytest

from dragoman.admin.logs import LogQuery, RecordedTask
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.playback import timeline_entry
from dragoman.engine.admin.task_recording import SECRET, TaskRecorder
from dragoman.model.errors import TaskNotFound, UnsupportedOperation
from dragoman.model.events import Event, Logged, MessageReceived, Placed, StatusChanged, Stepped, Submitted
from dragoman.model.ids import timestamp
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.store.api import Append, Store
from dragoman.store.blobs.api import BlobAddress
from tests.store.cases.bench import START_MS, ending, message, new_task

AT = timestamp(START_MS)
PICTURE = bytes(range(256)) * 20
ROOT = Operator("operator:root")


def stepped(name: str, *result: Part) -> Stepped:
    return Stepped(name, "", AT, timestamp(START_MS + 1500), Placed("1"), 2, "parts", result)


async def fill(store: Store, *events: Event, state: TaskState = TaskState.WORKING) -> None:
    """A task with a file in its first message, and these events."""
    said = message("look", Part(raw=PICTURE, filename="a.bin"))
    await store.replicas.join("h1", address="", agents=("echo",))
    await store.create(new_task("t1", said=said, at=START_MS))
    await store.append(Append(task_id="t1", events=events, state=state, status_ms=START_MS, epoch=1))


async def recorded(store: Store, limit: int = 200) -> RecordedTask:
    """The whole recording, read so many events at a time, and through its JSON."""
    recorder, query = TaskRecorder(store), LogQuery(limit=limit)
    pages = [await recorder.page(Asked(ROOT, query, "t1"))]
    while pages[-1].next_after is not None:
        pages.append(await recorder.page(Asked(ROOT, LogQuery(after=pages[-1].next_after, limit=limit), "t1")))
    whole = msgspec.structs.replace(pages[0], events=tuple(event for page in pages for event in page.events))
    return msgspec.json.decode(msgspec.json.encode(whole), type=RecordedTask)


async def test_a_log_is_rebuilt_from_its_recording(store: Store) -> None:
    await fill(
        store, StatusChanged(TaskState.WORKING, AT), stepped("pay", Part(data={"paid": 5}), Part(raw=b"receipt"))
    )
    found = await recorded(store, limit=1)
    assert (found.format, found.seq, found.next_after) == (1, 3, 1)
    first, _, step = found.events
    assert isinstance(first, Submitted)
    assert isinstance(step, Stepped)
    file = str(BlobAddress.of("t1", PICTURE))
    assert first.message.parts == (Part(text="look"), Part(file=file, filename="a.bin"))
    assert step.result == (Part(data={"paid": 5}), Part(file=str(BlobAddress.of("t1", b"receipt"))))
    assert (step.name, step.attempts) == ("pay", 2)
    fold, known = Fold(found.head), await store.load("t1")
    for seq, event in enumerate(found.events, 1):
        fold.add(seq, event)
    assert known is not None
    assert fold.record().head == known.head
    assert fold.record().steps == 1


@pytest.mark.parametrize("limit", [1, 200])
async def test_an_answer_to_a_question_for_credentials_is_no_secret_told(store: Store, limit: int) -> None:
    """Whatever it is. The question, and messages before and after it, are told."""
    parts = (Part(text="hunter2"), Part(data={"token": "hunter2"}), Part(raw=b"hunter2"), Part(url="http://hunter2"))
    answer = MessageReceived(
        msgspec.structs.replace(message("hunter2", *parts), metadata={"a": "hunter2"}), AT, {"b": "hunter2"}
    )
    await fill(
        store,
        MessageReceived(message("before"), AT),
        StatusChanged(TaskState.AUTH_REQUIRED, AT, message("who are you?")),
        answer,
        StatusChanged(TaskState.WORKING, AT),
        MessageReceived(message("after"), AT),
    )
    found = await recorded(store, limit)
    told = msgspec.json.encode(found.events).decode()
    received = found.events[3]
    assert isinstance(received, MessageReceived)
    texts = [part.text or part.url or part.data for part in received.message.parts]
    assert [str(text).startswith(SECRET) for text in texts] == [True] * 5
    assert received.message.parts[2].data == texts[2]
    assert all(word in told for word in ("before", "who are you?", "after"))
    message_id = received.message.message_id
    assert "hunter2" not in told.replace(message_id, "")


async def test_two_recorders_tell_a_secret_differently(store: Store) -> None:
    """A digest that everybody could make would tell a short secret."""
    await fill(store, StatusChanged(TaskState.AUTH_REQUIRED, AT), MessageReceived(message("1234"), AT))
    first, second = await recorded(store), await recorded(store)
    assert first.events[:2] == second.events[:2]
    assert first.events[2] != second.events[2]


async def test_a_log_that_is_not_whole_is_not_recorded(store: Store) -> None:
    await fill(store, StatusChanged(TaskState.WORKING, AT))
    with pytest.raises(TaskNotFound):
        await TaskRecorder(store).page(Asked(ROOT, LogQuery(), "none"))
    await store.append(ending("t1", 2))
    assert await store.sweep(START_MS + 10, -1, 1, -1)
    with pytest.raises(UnsupportedOperation, match="log_retention"):
        await TaskRecorder(store).page(Asked(ROOT, LogQuery(), "t1"))


def test_a_timeline_says_until_when_a_task_sleeps() -> None:
    wakes_ms = START_MS + 3_600_000
    entry = timeline_entry(Logged(4, StatusChanged(TaskState.WORKING, AT, placed=Placed("2", wakes_ms=wakes_ms))))
    assert (entry.kind, entry.state, entry.wakes) == ("status", "working", timestamp(wakes_ms))
    assert timeline_entry(Logged(5, StatusChanged(TaskState.WORKING, AT))).wakes is None
