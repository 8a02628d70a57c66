"""ListTasks (A2A 1.0 §3.1.4), and what others' tasks look like (invariant 9)."""

from pathlib import Path

import pytest

from dragoman.engine import policy
from dragoman.engine.api import Run
from dragoman.model.errors import A2AError, InvalidParams
from dragoman.model.message import Part
from dragoman.model.operations import CancelTask, GetTask, ListTasks, Operation, Subscribe
from dragoman.model.task import TaskState
from tests.engine.house import Scripted, echo, house, sending, streaming

S = TaskState


async def maybe_ask(run: Run) -> None:
    if run.message.text == "ask":
        await run.ask((Part(text="?"),))
    await echo(run)


async def test_filters_and_totals() -> None:
    async with house(Scripted(maybe_ask), Scripted(echo, "other")) as h:
        for text, context in (("a", "c1"), ("ask", "c1"), ("b", "c2")):
            await h.send(text, context_id=context)
            h.clock.ms += 1000
        await h.send("x", around={"owner": "bob"})
        await h.send("x", around={"agent": "other"})
        assert (await h.listed()).total_size == 3
        assert [task.history[0].text for task in (await h.listed()).records] == ["b", "ask", "a"]
        assert (await h.listed(ListTasks(context_id="c1"))).total_size == 2
        assert (await h.listed(ListTasks(state=S.INPUT_REQUIRED))).total_size == 1
        assert (await h.listed(ListTasks(context_id="c2", state=S.INPUT_REQUIRED))).total_size == 0
        page = await h.listed(ListTasks(status_after_ms=h.clock.ms - 2000))
        assert [task.history[0].text for task in page.records] == ["b", "ask"]
        assert (await h.listed(ListTasks(), owner="carl")).total_size == 0


async def test_a_page_of_large_tasks_has_fewer_and_a_token_for_the_rest() -> None:
    async with house(max_page_bytes=10_000) as h:
        ids = []
        for letter in "abcdefg":
            ids.append((await h.send(letter * 2000)).head.id)
            h.clock.ms += 1000
        seen, token, sizes = [], "", []
        while True:
            page = await h.listed(ListTasks(page_size=5, page_token=token, include_artifacts=True))
            seen += [task.head.id for task in page.records]
            sizes.append(len(page.records))
            assert (page.total_size, page.page_size, page.cut) == (7, 5, bool(page.next_page_token))
            token = page.next_page_token
            if not token:
                break
        assert seen == ids[::-1]
        assert len(sizes) > 2
        assert min(sizes) >= 1
        assert not (await h.listed(ListTasks(page_size=1, include_artifacts=True))).cut  # as many as were asked for


async def test_a_large_task_is_read_and_anothers_is_not_found(tmp_path: Path) -> None:
    """A large one is read beside the loop, once nothing keeps it in memory."""
    async with house(url=f"sqlite:///{tmp_path}/d.db") as h:
        text = "x" * 2_000_000
        sent = await h.send(text)
        found = await h.ask(GetTask(id=sent.head.id))
        assert found == sent
        with pytest.raises(A2AError) as refused:
            await h.ask(GetTask(id=sent.head.id), owner="bob")
        assert type(refused.value).__name__ == "TaskNotFound"


async def test_pages_by_token_with_ties() -> None:
    """Newest status first, ties by id; every task once."""
    async with house() as h:
        ids = []
        for number in range(7):
            ids.append((await h.send(str(number))).head.id)
            if number == 3:
                h.clock.ms += 1000
        seen, token = [], ""
        while True:
            page = await h.listed(ListTasks(page_size=2, page_token=token))
            assert page.total_size == 7
            assert page.page_size == 2
            seen += [task.head.id for task in page.records]
            token = page.next_page_token
            if not token:
                break
        assert seen == sorted(ids[4:], reverse=True) + sorted(ids[:4], reverse=True)
        page = await h.listed(ListTasks(page_size=2, offset=3))
        assert [task.head.id for task in page.records] == seen[3:5]


async def test_the_status_time_of_a_list_is_the_one_the_task_shows() -> None:
    """A message to a working task does not change when its status was reached."""
    async with house() as h:
        task = await h.send()
        assert (await h.store.load(task.head.id)).status_ms == h.clock.ms
        assert task.status.timestamp == task.head.created_at


@pytest.mark.parametrize("token", ["x", "ä", "W10", "WzEsMl0", policy.page_token(1 << 70, "a"), "[" * 5000])
async def test_a_token_that_is_not_ours_is_refused(token: str) -> None:
    async with house() as h:
        with pytest.raises(InvalidParams, match="pageToken"):
            await h.listed(ListTasks(page_token=token))


async def test_the_offset_is_capped() -> None:
    async with house() as h:
        with pytest.raises(InvalidParams, match="offset"):
            await h.listed(ListTasks(offset=policy.LIST_OFFSET_MAX + 1))


async def test_foreign_is_not_found_in_any_operation() -> None:
    """Invariant 9: the same error as for an id that does not exist, whatever the task's state."""

    async def refusal(operation: Operation, **around: str) -> tuple[type[A2AError], str]:
        with pytest.raises(A2AError) as caught:
            if isinstance(operation, Subscribe) or type(operation).__name__ == "StreamMessage":
                await h.open(operation, **around)
            else:
                await h.ask(operation, **around)
        return type(caught.value), caught.value.message

    async with house(Scripted(maybe_ask), Scripted(echo, "other")) as h:
        ended, waiting = (await h.send()).head.id, (await h.send("ask")).head.id
        for make in (
            lambda task_id: GetTask(id=task_id),
            lambda task_id: CancelTask(id=task_id),
            lambda task_id: Subscribe(id=task_id),
            lambda task_id: sending("x", task_id=task_id),
            lambda task_id: sending("x", task_id=task_id, context_id="c"),
            lambda task_id: streaming("x", task_id=task_id),
        ):
            unknown = await refusal(make("no-such-task"), owner="bob")
            for task_id in (ended, waiting):
                assert await refusal(make(task_id), owner="bob") == unknown
                assert await refusal(make(task_id), agent="other") == unknown
                assert await refusal(make(task_id), owner="bob", after="1") == unknown
        assert h.in_memory == 1
