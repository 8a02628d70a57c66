"""Graphs of LangGraph: a model of LangChain's own for tests, and plain nodes."""

import asyncio
import base64
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from dragoman import Part
from dragoman.agents.frameworks.langgraph import adapt
from dragoman.cli.entries import make_agent
from dragoman.cli.references import AgentReferenceError, load_reference
from dragoman.config import AgentEntry, Config
from dragoman.model.events import ArtifactChunk, StatusChanged
from dragoman.model.principal import Principal
from dragoman.model.task import Task, TaskState
from dragoman.testing import ClientFixture, client, run
from tests.frameworks.kit import served
from tests.frameworks.restarts import handed_over, restarted
from tests.frameworks.weather import forecast


class Model(BaseChatModel):
    """Says what it was told to, word by word, and keeps what it was given."""

    answers: list[AIMessage]
    seen: list[Sequence[Any]] = []  # noqa: RUF012  a field of Pydantic's

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        self.seen.append(tuple(messages))
        return ChatResult(generations=[ChatGeneration(message=self.answers.pop(0))])

    def _stream(self, messages: Any, *_: Any, run_manager: Any = None, **__: Any) -> Iterator[ChatGenerationChunk]:
        self.seen.append(tuple(messages))
        answer = self.answers.pop(0)
        for word in re.findall(r"\S+\s*", str(answer.content)):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        for call in answer.tool_calls:
            made = {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[made]))
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=USED))

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


USED = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}


def model_of(*answers: AIMessage | str) -> Model:
    return Model(answers=[AIMessage(answer) if isinstance(answer, str) else answer for answer in answers], seen=[])


def chat(model: Any, checkpointer: Any = None, tools: Sequence[Any] = (), *, tells: bool = False) -> Any:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("talk", talk)
    graph.add_edge(START, "talk")
    if tools:
        graph.add_node("tools", ToolNode(tools, handle_tool_errors=True) if tells else ToolNode(tools))
        graph.add_conditional_edges("talk", tools_condition)
        graph.add_edge("tools", "talk")
    return graph.compile(checkpointer=checkpointer, name="Talker")


async def test_text_streams_and_usage_is_counted() -> None:
    ran = await run(served(chat(model_of("Good morning to you"))), "Hello")
    assert ran.text == "Good morning to you"
    assert len(ran.chunks) > 1
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (7, 2)


async def test_a_message_that_comes_whole_is_given_and_counted() -> None:
    answer = AIMessage("Hi", usage_metadata=USED)

    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [answer]}

    graph = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk").compile()
    ran = await run(served(graph), "Hello")
    assert (ran.text, ran.usage.input_tokens, ran.usage.output_tokens) == ("Hi", 7, 2)


def calling(city: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "forecast", "args": {"city": city}, "id": "call-1"}])


async def test_what_a_tool_raised_is_for_the_model_not_for_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    graph = chat(model_of(calling("Atlantis"), "No."), tools=[tool(forecast)], tells=True)
    ran = await run(served(graph), "Weather?")
    assert ran.statuses == ["Calling forecast", "forecast failed: the log says why"]
    assert "no such city" in caplog.text


async def test_a_tool_that_breaks_is_told_and_fails_the_task(dragoman_client: ClientFixture) -> None:
    graph = chat(model_of(calling("Atlantis")), tools=[tool(forecast)])
    async with dragoman_client(served(graph)) as connection:
        task = await connection.send("Weather?")
    assert isinstance(task, Task)
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert "reference" in task.status.message.text
    assert "no such city" not in task.status.message.text


async def test_with_a_checkpointer_the_thread_is_the_conversation(dragoman_client: ClientFixture) -> None:
    model = model_of("Hello Ada", "You are Ada", "Who knows")
    async with dragoman_client(served(chat(model, InMemorySaver()))) as connection:
        first = await connection.send("I am Ada")
        assert isinstance(first, Task)
        await connection.send("Who am I?", context_id=first.context_id)
        await connection.send("And now?")
    assert [[each.content for each in seen] for seen in model.seen] == [
        ["I am Ada"],
        ["I am Ada", "Hello Ada", "Who am I?"],
        ["And now?"],
    ]


@pytest.mark.parametrize("before", [[], ["I am Ada"]])
async def test_what_a_task_that_broke_off_left_is_not_in_the_next_one(
    dragoman_client: ClientFixture, before: list[str]
) -> None:
    model = model_of(*("Hello Ada" for _ in before), calling("Atlantis"), "Who knows")
    async with dragoman_client(served(chat(model, InMemorySaver(), tools=[tool(forecast)]))) as connection:
        context = None
        for text in (*before, "Weather?", "Who am I?"):
            task = await connection.send(text, context_id=context)
            assert isinstance(task, Task)
            context = task.context_id
    assert task.status.state is TaskState.COMPLETED
    assert not any(getattr(each, "tool_calls", ()) for each in model.seen[-1])
    said = [each.content for each in model.seen[-1]]
    assert said == (["I am Ada", "Hello Ada", "Who am I?"] if before else ["Weather?", "Who am I?"])


async def test_callers_with_the_same_context_id_have_threads_of_their_own() -> None:
    model = model_of("One", "Two")
    agent = served(chat(model, InMemorySaver()))
    await run(agent, "I am Ada", principal=Principal("ada"))
    await run(agent, "Who am I?", principal=Principal("eve"))
    assert [each.content for each in model.seen[1]] == ["Who am I?"]


async def test_a_caller_whose_name_has_a_slash_is_in_no_other_s_thread() -> None:
    saver = InMemorySaver()
    agent = served(chat(model_of("One", "Two"), saver))
    for name in ("ada", "ada/context-1"):
        await run(agent, "I am Ada", principal=Principal(name))
    threads = {each.config["configurable"]["thread_id"] for each in saver.list(None)}
    assert threads == {"test/ada/context-1", "test/ada%2Fcontext-1/context-1"}


class Trip(TypedDict, total=False):
    order: str
    log: list[str]
    booked: str


def trip(done: list[str], checkpointer: Any = None) -> Any:
    """A graph that pays, asks twice, and books."""

    def pay(state: Trip) -> Trip:
        done.append("paid")
        return {"log": ["paid"]}

    def ask(state: Trip) -> Trip:
        start = interrupt("From where?")
        goal = interrupt({"question": "To where?", "choices": ["Rome", "Oslo"]})
        done.append("booked")
        return {"booked": f"From {start} to {goal}"}

    graph = StateGraph(Trip, input_schema=Order, output_schema=Booked)
    graph.add_node("pay", pay).add_node("ask", ask)
    graph.add_edge(START, "pay").add_edge("pay", "ask").add_edge("ask", END)
    return graph.compile(checkpointer=checkpointer)


class Order(TypedDict):
    order: str


class Booked(TypedDict):
    booked: str


@pytest.mark.parametrize("saver", [None, InMemorySaver])
async def test_interrupts_ask_and_the_answers_resume(saver: Callable[[], Any] | None) -> None:
    done: list[str] = []
    agent = served(trip(done, saver and saver()))
    ran = await run(agent, "A trip", answers=["Paris", (Part(data="Rome"),)])
    assert ran.questions == ["From where?", "To where?"]
    assert ran.text == "From Paris to Rome"
    assert done == ["paid", "booked"]


async def test_a_durable_checkpointer_goes_on_after_a_restart_and_pays_once(tmp_path: Path) -> None:
    done: list[str] = []
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        task = await restarted(tmp_path, lambda: served(trip(done, saver)), "A trip", "Paris", "Rome")
    assert task.artifacts[-1].parts[0].text == "From Paris to Rome"
    assert done == ["paid", "booked"]


async def test_without_one_its_state_is_in_our_store_and_it_pays_once(tmp_path: Path) -> None:
    done: list[str] = []
    task = await restarted(tmp_path, lambda: served(trip(done)), "A trip", "Paris", "Rome")
    assert task.artifacts[-1].parts[0].text == "From Paris to Rome"
    assert done == ["paid", "booked"]


async def test_with_none_at_all_the_run_is_made_again_with_the_answers(tmp_path: Path) -> None:
    done: list[str] = []
    brief = lambda: adapt(trip(done), "test", checkpointer="none")  # noqa: E731
    task = await restarted(tmp_path, brief, "A trip", "Paris", "Rome")
    assert task.artifacts[-1].parts[0].text == "From Paris to Rome"
    assert done == ["paid", "paid", "paid", "booked"]


async def test_a_graph_with_a_durable_checkpointer_goes_on_with_another_worker(tmp_path: Path) -> None:
    done: list[str] = []
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        task = await handed_over(lambda: served(trip(done, saver)), "A trip", "Paris", "Rome")
    assert task.artifacts[-1].parts[0].text == "From Paris to Rome"
    assert done == ["paid", "booked"]


async def test_the_example_asks_and_books() -> None:
    (agent,) = load_reference("booking=examples/frameworks/langgraph_agent.py")
    assert (agent.profile.id, agent.profile.name) == ("booking", "Booking")
    ran = await run(agent, "A table for two", answers=["Friday"])
    assert (ran.questions, ran.text) == (["For which day?"], "Booked for Friday: A table for two")


def test_who_names_the_wrong_object_is_told_the_right_one(tmp_path: Path) -> None:
    module = tmp_path / "graphs.py"
    module.write_text(
        "from langgraph.graph import START, MessagesState, StateGraph\n"
        'builder = StateGraph(MessagesState).add_node("go", lambda state: {}).add_edge(START, "go")\n'
        "graph = builder.compile()\n"
    )
    with pytest.raises(AgentReferenceError, match="is of type StateGraph, not an Agent; it is not compiled"):
        load_reference(f"{module}:builder")


async def test_a_second_task_of_the_conversation_leaves_the_thread_that_waits_alone(
    dragoman_client: ClientFixture,
) -> None:
    done: list[str] = []
    async with dragoman_client(served(trip(done, InMemorySaver()))) as connection:
        first = await connection.send("One")
        assert isinstance(first, Task)
        second = await connection.send("Two", context_id=first.context_id)
        assert isinstance(second, Task)
        assert second.id != first.id
        for task, place in ((first, "Rome"), (second, "Oslo")):
            await connection.send("Paris", task_id=task.id, context_id=task.context_id)
            ended = await connection.send(place, task_id=task.id, context_id=task.context_id)
            assert isinstance(ended, Task)
            assert ended.artifacts[-1].parts[0].text == f"From Paris to {place}"


async def test_tasks_of_a_conversation_that_work_at_once_do_not_share_a_thread(dragoman_client: ClientFixture) -> None:
    both = asyncio.Barrier(2)

    async def meet(state: MessagesState) -> dict[str, Any]:
        await both.wait()
        return {"messages": [AIMessage(f"{len(state['messages'])}: {state['messages'][-1].text}")]}

    graph = StateGraph(MessagesState).add_node("meet", meet).add_edge(START, "meet").compile(InMemorySaver())
    async with dragoman_client(served(graph)) as connection, asyncio.timeout(60):
        tasks = await asyncio.gather(*(connection.send(text, context_id="here") for text in ("One", "Two")))
    assert all(isinstance(task, Task) for task in tasks)
    assert sorted(task.artifacts[0].parts[0].text[-3:] for task in tasks) == ["One", "Two"]  # type: ignore[union-attr]


async def test_a_state_without_messages_takes_data_or_its_only_text() -> None:
    class Sum(TypedDict):
        left: int
        right: int
        sum: int

    def add(state: Sum) -> dict[str, int]:
        return {"sum": state["left"] + state["right"]}

    agent = served(StateGraph(Sum).add_node("add", add).add_edge(START, "add").compile())
    ran = await run(agent, Part(data={"left": 1, "right": 2}))
    assert ran.data == [{"left": 1, "right": 2, "sum": 3}]
    refused = await run(agent, "one and two")
    assert refused.state is TaskState.REJECTED
    assert refused.reason == "Send a data part, an object with left, right, sum."
    first, *_ = [finding async for finding in agent.check() if "callers" in finding.what]
    assert (first.ok, first.what.partition(":")[0]) == (True, "callers send a data part with left, right, sum")


PICTURE = b"\x89PNG"
PICTURE_TEXT = base64.b64encode(PICTURE).decode()
IN_URL = f"data:image/png;base64,{PICTURE_TEXT}"


@pytest.mark.parametrize(
    ("block", "given"),
    [
        (
            {"type": "image", "base64": PICTURE_TEXT, "mime_type": "image/png"},
            Part(raw=PICTURE, media_type="image/png"),
        ),
        (
            {"type": "file", "base64": PICTURE_TEXT, "mime_type": "application/pdf", "filename": "a.pdf"},
            Part(raw=PICTURE, media_type="application/pdf", filename="a.pdf"),
        ),
        (
            {"type": "file", "source_type": "base64", "data": PICTURE_TEXT, "mime_type": "application/pdf"},
            Part(raw=PICTURE, media_type="application/pdf"),
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PICTURE_TEXT}"}},
            Part(raw=PICTURE, media_type="application/pdf", filename="a.pdf"),
        ),
        ({"type": "image_url", "image_url": {"url": IN_URL}}, Part(raw=PICTURE, media_type="image/png")),
        ({"type": "image_url", "image_url": "https://here.test/a.png"}, Part(url="https://here.test/a.png")),
        (
            {"type": "audio", "url": "https://here.test/a.wav", "mime_type": "audio/wav"},
            Part(url="https://here.test/a.wav", media_type="audio/wav"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": PICTURE_TEXT, "format": "wav"}},
            Part(raw=PICTURE, media_type="audio/wav"),
        ),
        ({"type": "video", "base64": PICTURE_TEXT}, Part(raw=PICTURE, media_type="application/octet-stream")),
        ({"type": "file", "file_id": "file-7"}, Part(text="[file file-7, application/octet-stream]")),
        ({"type": "image", "base64": "not base64!"}, Part(text="[file without a name, application/octet-stream]")),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_file_in_a_message_is_a_file_part(block: dict[str, Any], given: Part, streamed: bool) -> None:
    content = ["See:", block]
    chunks = [AIMessageChunk("See:", id="1"), AIMessageChunk([block], id="1")]
    model = Chunked(chunks=chunks) if streamed else None

    async def draw(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"]) if model else AIMessage(content)]}

    ran = await run(served(StateGraph(MessagesState).add_node("draw", draw).add_edge(START, "draw").compile()), "Draw")
    (artifact,) = ran.artifacts
    text = Part(text=f"See:{given.text or ''}")
    assert artifact.parts == ((text,) if given.text else (text, given))


class Chunked(BaseChatModel):
    """Says these chunks."""

    chunks: list[AIMessageChunk]

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(self, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        for chunk in self.chunks:
            yield ChatGenerationChunk(message=chunk)


async def test_the_files_of_a_tool_and_of_the_caller_are_not_the_answer() -> None:
    seen = [{"type": "image", "base64": PICTURE_TEXT, "mime_type": "image/png"}]

    def look(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage(seen, tool_call_id="call-1", name="look"), HumanMessage(seen)]}

    ran = await run(served(StateGraph(MessagesState).add_node("look", look).add_edge(START, "look").compile()), "Look")
    assert ran.artifacts == ()


@pytest.mark.parametrize(
    "output",
    [PICTURE, {"type": "file", "base64": PICTURE_TEXT}],
)
async def test_an_output_that_is_a_file_is_a_file_part(output: Any) -> None:
    class Drawn(TypedDict):
        picture: Any

    graph = StateGraph(Trip, input_schema=Order, output_schema=Drawn)
    graph.add_node("draw", lambda state: {"picture": output}).add_edge(START, "draw")
    ran = await run(served(graph.compile()), "A tree")
    ((part,),) = [artifact.parts for artifact in ran.artifacts]
    assert part.raw == PICTURE


async def test_what_nodes_write_is_a_status() -> None:
    def work(state: MessagesState) -> dict[str, Any]:
        get_stream_writer()("Half way")
        return {"messages": [AIMessage("Done")]}

    ran = await run(served(StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()), "Go")
    assert (ran.statuses, ran.text) == (["Half way"], "Done")


async def test_what_a_node_writes_comes_after_what_the_model_has_said() -> None:
    model = Model(answers=[AIMessage("One two three")])

    async def work(state: MessagesState) -> dict[str, Any]:
        said = await model.ainvoke(state["messages"])
        get_stream_writer()("Counted")
        return {"messages": [said]}

    ran = await run(served(StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()), "Go")
    told = next(at for at, event in enumerate(ran.events) if isinstance(event, StatusChanged) and event.message)
    before = [event for event in ran.events[:told] if isinstance(event, ArtifactChunk)]
    assert "".join(event.artifact.parts[0].text or "" for event in before) == "One two three"
    assert (ran.statuses, ran.text) == (["Counted"], "One two three")


async def test_cancel_stops_the_node(dragoman_client: ClientFixture) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def wait(state: MessagesState) -> dict[str, Any]:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    graph = StateGraph(MessagesState).add_node("wait", wait).add_edge(START, "wait").compile()
    async with dragoman_client(served(graph)) as connection:
        task = await connection.send("Go", return_immediately=True)
        assert isinstance(task, Task)
        async with asyncio.timeout(60):
            await began.wait()
            await connection.cancel(task.id)
            await stopped.wait()


@pytest.mark.parametrize(
    ("saver", "ok", "what"),
    [
        (None, True, "its checkpoints are in the store: a task continues after a restart or a crash"),
        (
            InMemorySaver,
            True,
            "its checkpointer is in memory: a task that waits is run again from its start after a restart; compile it "
            "without one, and its checkpoints are in the store",
        ),
        (lambda: SqliteSaver(sqlite3.connect(":memory:")), False, "its checkpointer SqliteSaver is not asynchronous"),
    ],
)
async def test_a_check_says_where_its_state_is(saver: Callable[[], Any] | None, ok: bool, what: str) -> None:
    checkpointer = saver and saver()
    *_, finding = [finding async for finding in served(trip([], checkpointer)).check()]
    assert (finding.ok, finding.what[: len(what)]) == (ok, what)
    if isinstance(checkpointer, SqliteSaver):
        checkpointer.conn.close()


async def test_a_check_reads_a_durable_checkpointer() -> None:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        *_, finding = [finding async for finding in served(trip([], saver)).check()]
    assert finding.ok
    assert "continues after a restart" in finding.what


async def test_a_check_says_that_a_graph_has_no_checkpointer_at_all() -> None:
    *_, finding = [finding async for finding in adapt(trip([]), "test", checkpointer="none").check()]
    assert finding.what.startswith("the graph has no checkpointer: a task that waits is run again from its start")


NAMED = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

builder = StateGraph(MessagesState)
builder.add_node("talk", lambda state: {{"messages": [AIMessage("Hi")]}}).add_edge(START, "talk")
graph = builder.compile(name={name!r})
"""


@pytest.mark.parametrize(
    ("name", "agent_id"), [("Talker", "Talker"), ("two words", "graph"), ("tasks", "graph"), (None, "graph")]
)
@pytest.mark.parametrize("place", ["", ":graph"])
def test_a_graph_is_served_under_its_own_name_if_that_can_be_an_id(
    tmp_path: Path, name: str | None, agent_id: str, place: str
) -> None:
    file = tmp_path / "named.py"
    file.write_text(NAMED.format(name=name))
    assert load_reference(f"{file}{place}")[0].profile.id == agent_id
    assert load_reference(f"mine={file}{place}")[0].profile.id == "mine"
    assert make_agent(AgentEntry(id="table", run=f"{file}:graph")).profile.id == "table"


SAVED = """
from contextlib import asynccontextmanager

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


def book(state):
    return {"messages": [AIMessage(f"Booked for {interrupt('For which day?')}")]}


builder = StateGraph(MessagesState).add_node("book", book).add_edge(START, "book")


@asynccontextmanager
async def booking():
    async with AsyncSqliteSaver.from_conn_string("FILE") as saver:
        yield builder.compile(checkpointer=saver)
"""

OPENED_TOO_EARLY = {
    "entered by nobody": 'AsyncSqliteSaver.from_conn_string("x.db")',
    "without a loop": 'AsyncSqliteSaver(aiosqlite.connect("x.db"))',
    "not asynchronous, entered by nobody": 'SqliteSaver.from_conn_string("x.db")',
}


async def test_a_factory_opens_a_checkpointer_and_a_task_that_waits_goes_on_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "booking.py"
    file.write_text(SAVED.replace("FILE", str(tmp_path / "threads.db")))
    config = Config(port=0, store=f"sqlite:///{tmp_path}/tasks.db", shutdown_grace_s=1)
    entry = AgentEntry(id="booking", run=f"{file}:booking")
    async with client(make_agent(entry), config=config) as connection:
        asked = await connection.send("A table")
        assert isinstance(asked, Task)
        assert asked.status.state is TaskState.INPUT_REQUIRED
    async with client(make_agent(entry), config=config) as connection:
        booked = await connection.send("Sunday", task_id=asked.id)
        assert isinstance(booked, Task)
        assert booked.artifacts[0].parts[0].text == "Booked for Sunday"
    with sqlite3.connect(tmp_path / "threads.db") as threads:
        assert threads.execute("SELECT count(*) FROM checkpoints").fetchone()[0] > 1


@pytest.mark.parametrize("saver", OPENED_TOO_EARLY.values(), ids=OPENED_TOO_EARLY.keys())
def test_a_checkpointer_that_is_opened_too_early_leads_to_a_factory(tmp_path: Path, saver: str) -> None:
    file = tmp_path / "early.py"
    imports = "import aiosqlite\nfrom langgraph.checkpoint.sqlite import SqliteSaver\n"
    file.write_text(f"{imports}{SAVED}\ngraph = builder.compile(checkpointer={saver})\n")
    with pytest.raises(AgentReferenceError) as raised:
        load_reference(f"{file}:graph")
    assert f"({file}:{imports.count(chr(10)) + SAVED.count(chr(10)) + 2})" in str(raised.value)
    assert raised.value.fix.startswith("open it in a function that the server calls: write @asynccontextmanager above")
