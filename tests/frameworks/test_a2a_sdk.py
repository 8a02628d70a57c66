"""Executors of the official SDK, whichever release is installed. Nothing here knows which one it is."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Part
from dragoman.agents.adapters import adapt, adaptable
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.cli.references import AgentReferenceError, load_reference
from dragoman.client import Connection, connect
from dragoman.model.message import Message, Role
from dragoman.model.operations import SendMessage
from dragoman.model.principal import Principal
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import StatusUpdate
from dragoman.server import serving
from dragoman.testing import client, run
from dragoman.testing.loopback import CONFIG
from tests.frameworks.executors import (
    PROTOBUF,
    AgentExecutor,
    Booking,
    Scripted,
    artifact,
    card,
    get_message_text,
    new_task,
    part_kinds,
    state,
    text,
)
from tests.frameworks.meanwhile import meanwhile
from tests.frameworks.restarts import at_work, handed_over, restarted

LIMIT_S = 60.0


def served(executor: Any, **beside: object) -> Any:
    found = adapt(executor, "test", beside)
    assert found is not None
    return found


# -- how it is found ---------------------------------------------------------------------------------------------------


def test_an_executor_and_its_class_can_be_served() -> None:
    assert adaptable(Booking())
    assert adaptable(Booking)
    assert not adaptable(AgentExecutor)
    assert not adaptable(card("Table"))


def test_without_a_card_the_class_says_what_it_does() -> None:
    profile = served(Booking).profile
    assert (profile.id, profile.name, profile.description) == ("test", "test", "Asks for the day, and books.")
    assert [skill.id for skill in profile.skills] == ["answer"]


def test_the_card_beside_it_is_shown() -> None:
    profile = served(Booking(), table=card("Table")).profile
    assert (profile.id, profile.name, profile.description, profile.version) == ("test", "Table", "Books", "2.1.0")
    (skill,) = profile.skills
    assert (skill.id, skill.name, skill.tags, skill.examples) == ("book", "Book", ("booking",), ("A table",))
    assert profile.output_modes == ("application/json",)
    assert profile.streams


def test_among_several_cards_the_name_decides() -> None:
    assert served(Booking(), agent_card=card("Table"), extended=card("More")).profile.name == "Table"
    with pytest.raises(ValueError, match="several cards, one, two: name the right one agent_card"):
        served(Booking(), one=card("Table"), two=card("More"))


class Configured(AgentExecutor):
    def __init__(self, model: str) -> None:
        self.model = model

    async def execute(self, context: Any, event_queue: Any) -> None: ...

    async def cancel(self, context: Any, event_queue: Any) -> None: ...


def test_a_class_that_needs_arguments_says_so() -> None:
    with pytest.raises(ValueError, match="Configured needs model: name an object of it, executor = Configured"):
        served(Configured)


class Unset(Booking):
    fault: BaseException = KeyError("BOOKING_KEY")

    def __init__(self) -> None:
        raise self.fault


class Leaving(Unset):
    fault = SystemExit(3)


@pytest.mark.parametrize(("kind", "why"), [(Unset, "KeyError: 'BOOKING_KEY'"), (Leaving, "SystemExit: 3")])
def test_a_class_that_cannot_be_made_says_why_and_where(kind: type, why: str) -> None:
    with pytest.raises(ValueError, match=rf"^{kind.__name__}\(\) failed with {why} \(.*test_a2a_sdk\.py:\d+\)$"):
        served(kind)


MODULE = """
from tests.frameworks.executors import Booking, card

class Table(Booking):
    "Books tables."

agent_card = card("Table")
"""


@pytest.mark.parametrize(
    ("more", "place", "id"), [("", "", "Table"), ("executor = Table()\n", "", "executor"), ("", ":Table", "Table")]
)
def test_a_module_needs_no_more_than_its_name(tmp_path: Path, more: str, place: str, id: str) -> None:  # noqa: A002
    file = tmp_path / "booking.py"
    file.write_text(MODULE + more)
    (agent,) = load_reference(f"{file}{place}")
    assert (agent.profile.id, agent.profile.name) == (id, "Table")


def test_a_fault_of_the_card_names_the_reference(tmp_path: Path) -> None:
    file = tmp_path / "booking.py"
    file.write_text(MODULE.replace("agent_card", "one") + "two = card('Other')\n")
    with pytest.raises(AgentReferenceError, match=r"booking\.py: its module has several cards"):
        load_reference(str(file))


# -- messages and tasks ------------------------------------------------------------------------------------------------


async def greet(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(updater.new_agent_message(text(f"Hello {context.get_user_input()}")))


async def test_a_message_is_the_whole_answer() -> None:
    async with client(served(Scripted(greet))) as connection:
        answer = await connection.send("Ada")
        assert isinstance(answer, Message)
        assert answer.text == "Hello Ada"


async def count(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(new_task(context))
    await updater.start_work(updater.new_agent_message(text("counting")))
    for number in range(3):
        await updater.add_artifact(text(f"{number} "), artifact_id="count", append=number > 0, last_chunk=number == 2)
    await updater.complete(updater.new_agent_message(text("done")))


async def test_chunks_of_artifacts_stay_chunks() -> None:
    ran = await run(served(Scripted(count)), "Go")
    assert [(each.artifact.artifact_id, each.append, each.last_chunk) for each in ran.chunks] == [
        ("count", False, False),
        ("count", True, False),
        ("count", True, True),
    ]
    assert (ran.state, ran.text, ran.statuses) == (TaskState.COMPLETED, "0 1 2 ", ["counting"])
    assert ran.message is not None
    assert ran.message.text == "done"


async def test_events_of_several_tasks_stay_in_the_order_in_which_they_were_enqueued() -> None:
    async def count_at_once(context: Any, queue: Any, updater: Any) -> None:
        chunks = [
            updater.add_artifact(text(f"{number} "), artifact_id="count", append=number > 0) for number in range(5)
        ]
        await asyncio.gather(queue.enqueue_event(new_task(context)), *chunks, updater.complete())

    ran = await run(served(Scripted(count_at_once)), "Go")
    assert (ran.state, ran.text) == (TaskState.COMPLETED, "0 1 2 3 4 ")

    async def name_at_once(context: Any, queue: Any, updater: Any) -> None:
        await asyncio.gather(*(updater.add_artifact(text(name), artifact_id=name) for name in "abc"))
        await updater.complete()

    async with client(served(Scripted(name_at_once))) as connection:
        task = await connection.send("Go")
    assert isinstance(task, Task)
    assert [each.artifact_id for each in task.artifacts] == ["a", "b", "c"]


async def test_a_task_is_streamed() -> None:
    async with client(served(Scripted(count))) as connection:
        states = [update.status.state async for update in connection.stream("Go") if isinstance(update, StatusUpdate)]
    assert states[-1] is TaskState.COMPLETED


async def close_empty(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(new_task(context))
    await updater.add_artifact(text("all"), artifact_id="log")
    await updater.add_artifact([], artifact_id="log", append=True, last_chunk=True)
    await updater.complete()


async def test_an_empty_last_chunk_closes_the_artifact() -> None:
    ran = await run(served(Scripted(close_empty)), "Go")
    assert ran.text == "all"
    assert [each.last_chunk for each in ran.chunks] == [False, True]


async def whole(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(new_task(context, "completed", [artifact("one", "Whole")]))


async def test_a_task_may_come_as_a_whole() -> None:
    ran = await run(served(Scripted(whole)), "Go")
    assert (ran.state, ran.text) == (TaskState.COMPLETED, "Whole")


async def twice(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(new_task(context))
    await queue.enqueue_event(new_task(context, "completed", [artifact("one", "Whole")]))
    if PROTOBUF:
        await updater.complete()


async def test_a_second_task_counts_as_it_does_on_the_server_of_the_release() -> None:
    ran = await run(served(Scripted(twice)), "Go")
    assert (ran.state, ran.text) == (TaskState.COMPLETED, "" if PROTOBUF else "Whole")


@pytest.mark.parametrize("word", ["failed", "rejected", "canceled"])
async def test_the_executor_decides_how_the_task_ends(word: str) -> None:
    async def end(context: Any, queue: Any, updater: Any) -> None:
        await queue.enqueue_event(new_task(context))
        await updater.update_status(state(word), updater.new_agent_message(text("Sorry")))

    ran = await run(served(Scripted(end)), "Go")
    assert (ran.state.name.lower(), ran.record.status.message.text) == (word, "Sorry")


# -- what it is told ---------------------------------------------------------------------------------------------------


async def finish(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(new_task(context))
    await updater.complete()


async def test_the_executor_sees_the_request() -> None:
    executor = Scripted(finish)
    parts = (Part(text="Look"), Part(raw=b"PNG", media_type="image/png"), Part(data={"n": 1}))
    past = await run(served(Scripted(finish)), "Before")
    message = Message(message_id="m", role=past.record.history[0].role, parts=parts, reference_task_ids=("task-1",))
    await run(
        served(executor),
        message,
        metadata={"city": "Lyon", "n": 2},
        extensions=("urn:x",),
        references=[past.record],
        principal=Principal("ada"),
    )
    (context,) = executor.contexts
    assert (context.task_id, context.context_id) == ("task-1", "context-1")
    assert (context.message.task_id, context.message.context_id) == ("task-1", "context-1")
    assert part_kinds(context.message) == (["text", "raw", "data"] if PROTOBUF else ["text", "file", "data"])
    assert context.get_user_input() == "Look"
    assert context.metadata == {"city": "Lyon", "n": 2}
    assert context.current_task is None
    assert [task.status.state for task in context.related_tasks] == [state("completed")]
    assert context.requested_extensions == {"urn:x"}
    user = context.call_context.user
    assert (user.is_authenticated, user.user_name) == (True, "ada")
    assert context.call_context.state == {"headers": {}}


async def test_the_executor_finds_the_listed_headers_where_the_sdks_own_server_has_them() -> None:
    executor = Scripted(ask, answer, ask, answer)
    agent = served(executor)
    agent.name_headers(("x-tenant",))
    await run(agent, "Weather", answers=["Lyon"], headers={"X-Tenant": "acme", "X-Other": "no"})
    await run(agent, "Weather", answers=["Lyon"], headers=None)
    found = [context.call_context.state for context in executor.contexts]
    assert found == [{"headers": {"x-tenant": "acme"}}] * 2 + [{"headers": {}, "headers_lost": True}] * 2


async def test_a_server_that_asks_nobody_has_no_user() -> None:
    executor = Scripted(finish)
    await run(served(executor), "Go")
    assert not executor.contexts[0].call_context.user.is_authenticated


# -- several turns -----------------------------------------------------------------------------------------------------


async def ask(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(new_task(context))
    await updater.requires_input(updater.new_agent_message(text("Which city?")))


async def ask_for_key(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(new_task(context))
    await updater.requires_auth(updater.new_agent_message(text("Who are you?")))


async def answer(context: Any, queue: Any, updater: Any) -> None:
    await updater.add_artifact(text(f"{context.get_user_input()} it is"))
    await updater.complete()


async def test_an_answer_is_another_call_with_the_stored_task() -> None:
    executor = Scripted(ask, answer)
    ran = await run(served(executor), "Weather", answers=["Lyon"])
    assert (ran.questions, ran.text) == (["Which city?"], "Lyon it is")
    first, second = executor.contexts
    assert (first.current_task, second.current_task.status.state) == (None, state("input_required"))
    task = second.current_task  # as both releases store it: see TaskManager.update_with_message of 0.3
    said = task.status.message if PROTOBUF else task.history[1]
    assert said.message_id
    assert get_message_text(said) == "Which city?"
    assert len(task.history) == (1 if PROTOBUF else 3)


@pytest.mark.parametrize("way", ["the same run", "after a restart", "in a worker", "in another worker"])
async def test_each_call_sees_the_metadata_of_its_own_request(way: str, tmp_path: Path) -> None:
    """Not that of the request that made the task."""
    executor = Scripted(ask, answer)
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    agent = served(executor)
    front = WorkerAgent(agent.profile, queues=True, lease_s=5) if "worker" in way else agent
    task_id: str | None = None

    async def send(connection: Connection, text: str, n: int) -> Task:
        message = Message(message_id=text, role=Role.USER, parts=(Part(text=text),), task_id=task_id)
        task = await connection.ask(SendMessage(message=message, metadata={"n": n}))
        assert isinstance(task, Task)
        return task

    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(config, [front]))
        connection = await stack.enter_async_context(connect(f"{url}/agents/test"))
        worker = await stack.enter_async_context(AsyncExitStack())
        if "worker" in way:
            await worker.enter_async_context(at_work(url, agent))
        task_id = (await send(connection, "Weather", 1)).id
        if way == "after a restart":
            await stack.aclose()
            url = await stack.enter_async_context(serving(config, [served(executor)]))
            connection = await stack.enter_async_context(connect(f"{url}/agents/test"))
        if way == "in another worker":
            await worker.aclose()
            await worker.enter_async_context(at_work(url, served(executor)))
        task = await send(connection, "Lyon", 2)
    assert task.status.state is TaskState.COMPLETED
    assert [context.metadata for context in executor.contexts] == [{"n": 1}, {"n": 2}]


async def test_auth_required_is_answered_like_a_question() -> None:
    executor = Scripted(ask_for_key, answer)
    ran = await run(served(executor), "Weather", answers=["Ada"])
    assert (ran.questions, ran.text) == (["Who are you?"], "Ada it is")
    assert executor.contexts[1].current_task.status.state == state("auth_required")


async def test_a_call_without_an_end_leaves_the_task_open() -> None:
    async def begin(context: Any, queue: Any, updater: Any) -> None:
        await queue.enqueue_event(new_task(context))
        await updater.start_work()

    executor = Scripted(begin, answer)
    async with client(served(executor)) as connection:
        task = await connection.send("Weather")
        assert isinstance(task, Task)
        assert task.status.state is TaskState.INPUT_REQUIRED
        task = await connection.send("Lyon", task_id=task.id, context_id=task.context_id)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    assert executor.contexts[1].current_task.status.state == state("working")


async def test_a_call_without_an_event_fails() -> None:
    async def nothing(context: Any, queue: Any, updater: Any) -> None: ...

    ran = await run(served(Scripted(nothing)), "Weather")
    assert ran.state is TaskState.FAILED
    assert ran.record.status.message.text == "The agent gave no answer."


async def test_a_question_that_is_answered_elsewhere_is_shown_meanwhile() -> None:
    allowed = asyncio.Event()

    async def wait(context: Any, queue: Any, updater: Any) -> None:
        await queue.enqueue_event(new_task(context))
        await updater.requires_auth(updater.new_agent_message(text("Sign in at https://id.example")))
        await allowed.wait()
        await updater.start_work()
        await updater.complete()

    texts: list[str] = []
    async with client(served(Scripted(wait))) as connection, asyncio.timeout(LIMIT_S):
        async for update in connection.stream("Weather"):
            if isinstance(update, StatusUpdate) and update.status.message is not None:
                texts.append(update.status.message.text)
                allowed.set()
            last = update
    assert texts == ["Sign in at https://id.example"]
    assert isinstance(last, StatusUpdate)
    assert last.status.state is TaskState.COMPLETED


async def test_a_restart_calls_the_executor_with_the_answer_alone(tmp_path: Path) -> None:
    executors: list[Booking] = []

    def made() -> Any:
        executors.append(Booking())
        return served(executors[-1])

    task = await restarted(tmp_path, made, "A table", "Friday")
    assert task.status.state is TaskState.COMPLETED
    assert [each.heard for each in executors if each.heard] == [["A table"], ["Friday"]]
    assert [(each.artifact_id, "".join(part.text or "" for part in each.parts)) for each in task.artifacts] == [
        ("log", "A table. Booked for Friday")
    ]


async def test_another_worker_calls_the_executor_with_the_answer_alone() -> None:
    executors: list[Booking] = []

    def made() -> Any:
        executors.append(Booking())
        return served(executors[-1])

    task = await handed_over(made, "A table", "Friday")
    assert task.status.state is TaskState.COMPLETED
    assert [each.heard for each in executors if each.heard] == [["A table"], ["Friday"]]


# -- cancel and failures -----------------------------------------------------------------------------------------------


async def hold(context: Any, queue: Any, updater: Any) -> None:
    await queue.enqueue_event(new_task(context))
    await updater.add_artifact(text("Begun"))
    await asyncio.Event().wait()


async def clean_up(context: Any, queue: Any, updater: Any) -> None:
    await updater.add_artifact(text("Undone"), name="cleanup")
    await updater.cancel(updater.new_agent_message(text("As you wish")))


async def test_cancel_is_the_executors_own() -> None:
    executor = Scripted(hold, on_cancel=clean_up)
    canceled: list[Task] = []
    async with client(served(executor)) as connection:

        async def cancel(task_id: str) -> None:
            canceled.append(await connection.cancel(task_id))

        await meanwhile(connection, "Go", cancel)
    (task,) = canceled
    assert task.status.state is TaskState.CANCELED
    assert task.status.message is not None
    assert task.status.message.text == "As you wish"
    assert [each.name for each in task.artifacts] == [None, "cleanup"]
    assert executor.contexts[1].current_task.status.state == state("working")


async def test_cancel_reaches_the_executor_of_a_worker() -> None:
    executor = Scripted(hold, on_cancel=clean_up)
    agent = served(executor)
    worked = WorkerAgent(agent.profile, queues=True, lease_s=5)
    async with (
        serving(CONFIG, [worked]) as url,
        connect(f"{url}/agents/{agent.profile.id}") as connection,
        at_work(url, agent),
        asyncio.timeout(LIMIT_S),
    ):

        async def cancel(task_id: str) -> None:
            assert (await connection.cancel(task_id)).status.state is TaskState.CANCELED

        await meanwhile(connection, "Go", cancel)
        await executor.canceled.wait()


async def test_a_task_is_canceled_even_if_the_executor_cannot() -> None:
    async def refuse(context: Any, queue: Any, updater: Any) -> None:
        raise NotImplementedError

    canceled: list[Task] = []
    async with client(served(Scripted(hold, on_cancel=refuse))) as connection:

        async def cancel(task_id: str) -> None:
            canceled.append(await connection.cancel(task_id))

        await meanwhile(connection, "Go", cancel)
    assert canceled[0].status.state is TaskState.CANCELED


async def test_cancel_reaches_an_executor_whose_task_waits() -> None:
    executor = Scripted(ask)
    async with client(served(executor)) as connection, asyncio.timeout(LIMIT_S):
        task = await connection.send("Weather")
        assert isinstance(task, Task)
        assert (await connection.cancel(task.id)).status.state is TaskState.CANCELED
        await executor.canceled.wait()


async def test_a_cancel_that_raises_before_it_is_awaited_costs_nothing_else() -> None:
    class Plain(Scripted):
        """Its author has forgotten the word `async`."""

        def cancel(self, context: Any, event_queue: Any) -> Any:
            self.canceled.set()
            raise NotImplementedError("cancel is not supported")

    executor = Plain(ask)
    async with client(served(executor)) as connection, asyncio.timeout(LIMIT_S):
        task = await connection.send("Weather")
        assert isinstance(task, Task)
        assert (await connection.cancel(task.id)).status.state is TaskState.CANCELED
        await executor.canceled.wait()
        other = await connection.send("Weather")
        assert isinstance(other, Task)
        assert other.status.state is TaskState.INPUT_REQUIRED


async def test_an_exception_is_not_shown_to_the_caller() -> None:
    async def fail(context: Any, queue: Any, updater: Any) -> None:
        await queue.enqueue_event(new_task(context))
        raise RuntimeError("the password is 1234")

    async with client(served(Scripted(fail))) as connection:
        task = await connection.send("Go")
    assert isinstance(task, Task)
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert task.status.message.text.startswith("The agent failed (reference ")


async def test_an_executor_that_would_end_the_process_ends_its_task() -> None:
    async def leave(context: Any, queue: Any, updater: Any) -> None:
        await queue.enqueue_event(new_task(context))
        raise SystemExit(3)

    async def wait_then_leave(context: Any, queue: Any, updater: Any) -> None:
        await queue.enqueue_event(new_task(context))
        await updater.requires_input()

    async with client(served(Scripted(leave))) as connection:
        failed = await connection.send("Go")
    executor = Scripted(wait_then_leave, on_cancel=leave)
    async with client(served(executor)) as connection, asyncio.timeout(LIMIT_S):
        waiting = await connection.send("Go")
        assert isinstance(waiting, Task)
        canceled = await connection.cancel(waiting.id)
        await executor.canceled.wait()
    assert isinstance(failed, Task)
    assert (failed.status.state, canceled.status.state) == (TaskState.FAILED, TaskState.CANCELED)


async def test_nothing_follows_the_end() -> None:
    async def go_on(context: Any, queue: Any, updater: Any) -> None:
        await queue.enqueue_event(new_task(context))
        await updater.complete(updater.new_agent_message(text("done")))
        await updater.add_artifact(text("too late"))
        raise RuntimeError("after the end")

    ran = await run(served(Scripted(go_on)), "Go")
    assert (ran.state, ran.text) == (TaskState.COMPLETED, "")


async def test_an_event_of_another_task_fails_the_run() -> None:
    async def confuse(context: Any, queue: Any, updater: Any) -> None:
        other = new_task(context)
        other.id = "other"
        await queue.enqueue_event(other)

    with pytest.raises(ValueError, match=r"belongs to task 'other': use context\.task_id, 'task-1'"):
        await run(served(Scripted(confuse)), "Go")


async def test_what_is_no_event_fails_the_run() -> None:
    async def confuse(context: Any, queue: Any, updater: Any) -> None:
        await queue.enqueue_event(card("Table"))

    with pytest.raises(TypeError, match="AgentCard is no event"):
        await run(served(Scripted(confuse)), "Go")
