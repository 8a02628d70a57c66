"""Graphs whose threads are in our store: what a conversation remembers, who has a thread, and what a crash costs."""

import asyncio
import operator
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send, interrupt
from msgspec.structs import replace

from dragoman.agents.frameworks.langgraph import adapt
from dragoman.cli.entries import make_agent
from dragoman.cli.references import AgentReferenceError
from dragoman.client import connect
from dragoman.config import AgentEntry
from dragoman.model.task import Task, TaskState
from dragoman.server import serving
from dragoman.testing import ClientFixture, client
from dragoman.testing.loopback import CONFIG
from tests.frameworks.conversations import send
from tests.frameworks.errands import WORDS
from tests.frameworks.kills import Ledger, killed_often
from tests.frameworks.kit import served
from tests.frameworks.restarts import handed_over, restarted, worked
from tests.kit.processes import ServerProcess
from tests.soak import times

HERE = Path(__file__).parent


def recorder(seen: list[list[str]], *, fails: bool = False) -> StateGraph[Any]:
    """Notes the messages it has, and answers with how many there are."""

    def answer(state: MessagesState) -> dict[str, Any]:
        seen.append([str(each.content) for each in state["messages"]])
        if state["messages"][-1].content == "break":
            raise RuntimeError("broken")
        return {"messages": [AIMessage(f"Answer {len(seen)}")]}

    return StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")


async def test_a_graph_is_given_the_new_message_alone(dragoman_client: ClientFixture) -> None:
    given: list[Any] = []
    graph = recorder([]).compile()

    class Spy(type(graph)):  # type: ignore[misc]
        def astream(self, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            given.append([each.content for each in input["messages"]])
            return super().astream(input, *args, **kwargs)

    graph.__class__ = Spy
    async with dragoman_client(served(graph)) as connection:
        first = await send(connection, "I am Ada")
        await send(connection, "Who am I?", first)
        await send(connection, "Hello")
    assert given == [["I am Ada"], ["Who am I?"], ["Hello"]]
    assert graph.checkpointer is None


async def test_the_conversation_is_a_thread(dragoman_client: ClientFixture) -> None:
    seen: list[list[str]] = []
    async with dragoman_client(served(recorder(seen).compile())) as connection:
        first = await send(connection, "I am Ada")
        await send(connection, "Who am I?", first)
        await send(connection, "And now?")
    assert seen == [["I am Ada"], ["I am Ada", "Answer 1", "Who am I?"], ["And now?"]]


async def test_workers_share_the_thread_of_a_conversation() -> None:
    seen: list[list[str]] = []
    task = await worked(lambda: served(recorder(seen).compile()), "I am Ada", "Who am I?")
    assert task.artifacts[0].parts[0].text == "Answer 2"
    assert seen == [["I am Ada"], ["I am Ada", "Answer 1", "Who am I?"]]
    done: list[str] = []
    asked = await handed_over(lambda: served(asking(done)), "Hello", "Ada")
    assert (asked.artifacts[0].parts[0].text, done) == ("Ada it is, after 1", ["asked", "asked"])


async def test_a_conversation_that_began_before_is_given_once(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    graph = recorder(seen).compile()
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    async with client(adapt(graph, "test", checkpointer="none"), config=config) as connection:
        first = await send(connection, "One")
    for text in ("Two", "Three"):
        async with client(adapt(graph, "test"), config=config) as connection:
            await send(connection, text, first)
    assert seen == [["One"], ["One", "Answer 1", "Two"], ["One", "Answer 1", "Two", "Answer 2", "Three"]]


async def test_a_table_says_that_a_graph_keeps_no_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "graphs.py").write_text(
        "from langchain_core.messages import AIMessage\n"
        "from langgraph.graph import START, MessagesState, StateGraph\n"
        "def count(state):\n"
        "    return {'messages': [AIMessage(str([each.type for each in state['messages']]))]}\n"
        "builder = StateGraph(MessagesState).add_node('count', count).add_edge(START, 'count')\n"
        "graph = builder.compile()\n"
        "other = builder.compile(True)\n"
    )
    run_of_it = f"{tmp_path}/graphs.py:graph"
    kept = make_agent(AgentEntry(id="kept", run=run_of_it))
    brief = make_agent(AgentEntry(id="brief", run=run_of_it, checkpointer="none"))
    assert (kept.traits.checkpoints, kept.traits.restartable) == (True, True)
    assert (brief.traits.checkpoints, brief.traits.restartable) == (False, False)
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    async with serving(config, [kept, brief]) as url:
        for agent in ("kept", "brief"):
            async with connect(f"{url}/agents/{agent}") as connection:
                await send(connection, "Two", await send(connection, "One"))
    store = sqlite3.connect(tmp_path / "store.db")
    agents = {agent for (agent,) in store.execute("SELECT agent FROM state_spaces WHERE kind = 'checkpoint'")}
    store.close()
    assert agents == {"kept"}


async def test_an_agent_without_checkpoints_refuses_the_key() -> None:
    with pytest.raises(AgentReferenceError, match="checkpointer is for graphs of LangGraph that were compiled without"):
        make_agent(AgentEntry(id="echo", run="examples/agents.py:echo", checkpointer="none"))


async def test_two_agents_of_one_graph_have_states_of_their_own() -> None:
    seen: list[list[str]] = []
    graph = recorder(seen).compile()
    async with serving(CONFIG, [adapt(graph, "one"), adapt(graph, "two")]) as url:
        for agent in ("one", "two", "one"):
            async with connect(f"{url}/agents/{agent}") as connection:
                await connection.send(f"To {agent}", context_id="here")
    assert seen == [["To one"], ["To two"], ["To one", "Answer 1", "To one"]]
    assert graph.checkpointer is None


async def test_a_graph_with_a_checkpointer_of_its_own_keeps_it(dragoman_client: ClientFixture) -> None:
    saver = InMemorySaver()
    agent = served(recorder([]).compile(saver))
    assert not agent.traits.restartable
    async with dragoman_client(agent) as connection:
        await send(connection, "One")
    assert len(list(saver.list(None))) == 3


@pytest.mark.parametrize("before", [[], ["I am Ada"]])
async def test_what_a_task_that_broke_off_left_is_not_in_the_next_one(
    dragoman_client: ClientFixture, before: list[str]
) -> None:
    seen: list[list[str]] = []
    async with dragoman_client(served(recorder(seen).compile())) as connection:
        task = None
        for text in (*before, "break", "Who am I?"):
            task = await send(connection, text, task)
    assert task is not None
    assert task.status.state is TaskState.COMPLETED
    assert seen[-1] == (["I am Ada", "Answer 1", "Who am I?"] if before else ["break", "Who am I?"])


def asking(done: list[str]) -> Any:
    def ask(state: MessagesState) -> dict[str, Any]:
        done.append("asked")
        return {"messages": [AIMessage(f"{interrupt('Who?')} it is, after {len(state['messages'])}")]}

    return StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()


class Booked(TypedDict, total=False):
    day: str


def book(state: Booked) -> Booked:
    return {"day": interrupt("Which day?")}


def look(state: Booked) -> Booked:
    return {}


def booking(
    node: str = "book",
    *,
    inner: str = "",
    sends: bool = False,
    joins: Sequence[str] = (),
    defers: bool = False,
    checkpointer: Any = None,
) -> Any:
    """A graph that asks in a node of that name, also within a subgraph, when it is sent there, or after others."""
    graph = StateGraph(Booked)
    for each in joins:
        graph.add_node(each, look).add_edge(START, each)
    if inner:
        graph.add_node(node, StateGraph(Booked).add_node(inner, book).add_edge(START, inner).compile())
    else:
        graph.add_node(node, book, defer=defers)
    if joins:
        graph.add_edge(list(joins), node)
    elif sends:
        graph.add_conditional_edges(START, lambda state: [Send(node, state)])
    else:
        graph.add_edge(START, node)
    return graph.compile(checkpointer)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "missing"),
    [
        ({"node": "book"}, {"node": "reserve"}, "book"),
        ({"node": "book", "sends": True}, {"node": "reserve", "sends": True}, "book"),
        ({"node": "trip", "inner": "book"}, {"node": "trip", "inner": "reserve"}, "book"),
        ({"joins": ("a+", "b")}, {"joins": ("a+", "b"), "node": "reserve"}, "book after a++b"),
        ({"joins": "ab", "defers": True}, {"joins": "ac", "defers": True}, "book after a+b"),
        ({"node": "trip", "inner": "book"}, {"node": "trip", "inner": "book", "sends": True}, ""),
    ],
)
async def test_a_task_whose_node_is_gone_fails_and_says_which(
    before: dict[str, Any], after: dict[str, Any], missing: str, own: bool, tmp_path: Path
) -> None:
    saver, made = InMemorySaver() if own else None, iter((before, after))
    task = await restarted(tmp_path, lambda: served(booking(**next(made), checkpointer=saver)), "A table", "Friday")
    if not missing:
        assert task.status.state is TaskState.COMPLETED
        return
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert f"the node {missing} as the next one is recorded, but a graph without it came" in task.status.message.text


async def test_a_thread_that_waits_is_left_alone_until_its_task_has_ended(dragoman_client: ClientFixture) -> None:
    async with dragoman_client(served(asking([]))) as connection:
        first = await send(connection, "One")
        second = await send(connection, "Two", first)
        assert second.id != first.id
        ended = await connection.send("Ada", task_id=second.id, context_id=second.context_id)
        assert isinstance(ended, Task)
        assert ended.artifacts[0].parts[0].text == "Ada it is, after 2"
        await connection.cancel(first.id)
        told = []
        for text in ("Three", "Four"):
            task = await send(connection, text, first)
            ended = await connection.send("Eve", task_id=task.id, context_id=task.context_id)
            assert isinstance(ended, Task)
            told.append(ended.artifacts[0].parts[0].text)
    assert told == ["Eve it is, after 6", "Eve it is, after 8"]  # a thread with the history, which goes on


async def test_tasks_that_work_at_once_do_not_share_a_thread(dragoman_client: ClientFixture) -> None:
    both = asyncio.Barrier(2)

    async def meet(state: MessagesState) -> dict[str, Any]:
        await both.wait()
        return {"messages": [AIMessage(f"{len(state['messages'])}: {state['messages'][-1].text}")]}

    graph = StateGraph(MessagesState).add_node("meet", meet).add_edge(START, "meet").compile()
    async with dragoman_client(served(graph)) as connection, asyncio.timeout(60):
        tasks = await asyncio.gather(*(connection.send(text, context_id="here") for text in ("One", "Two")))
    assert sorted(task.artifacts[0].parts[0].text[-3:] for task in tasks) == ["One", "Two"]  # type: ignore[union-attr]


async def test_subgraphs_keep_what_they_were_compiled_with(dragoman_client: ClientFixture) -> None:
    class Counted(TypedDict):
        inner: Annotated[list[int], operator.add]

    runs: list[int] = []

    def count(state: Counted) -> dict[str, Any]:
        runs.append(len(state["inner"]))
        return {"inner": [1]}

    def compiled(checkpointer: Any) -> Any:
        inner = StateGraph(Counted).add_node("count", count).add_edge(START, "count").compile(checkpointer)

        async def call(state: MessagesState) -> dict[str, Any]:
            await inner.ainvoke({"inner": [0]})
            return {"messages": [AIMessage("done")]}

        return StateGraph(MessagesState).add_node("call", call).add_edge(START, "call").compile()

    for checkpointer, expected in ((True, [1, 3]), (None, [1, 1]), (False, [1, 1])):
        runs.clear()
        async with dragoman_client(served(compiled(checkpointer))) as connection:
            await send(connection, "Again", await send(connection, "Once"))
        assert runs == expected


ROUNDS = times(4, 150)
TASKS = times(6, 20)


@pytest.mark.slow
async def test_after_kill_9_no_finished_node_works_again_and_nothing_is_missing(tmp_path: Path) -> None:
    chance = random.Random(1)
    ledger = tmp_path / "ledger"
    server = ServerProcess(
        tmp_path, str(HERE / "errands.py:graph"), "--store", f"sqlite:///{tmp_path / 'store.db'}", "--port", "0"
    )
    async with killed_often(server, "graph", ledger, chance, rounds=ROUNDS, tasks=TASKS, lines=len(WORDS) + 1) as after:
        pass
    assert {task.status.state for task in after.tasks.values()} == {TaskState.COMPLETED}, server.said()[-4000:]
    again = 0
    for name, task in after.tasks.items():
        began = Ledger(ledger).of(name)
        steps = [step_of(each) for each in began]
        assert steps == sorted(steps), began
        assert set(steps) == {0, 1, 2, 3}
        again += len(began) - 5
        said = ["".join(part.text or "" for part in artifact.parts) for artifact in task.artifacts]
        assert len(said) == 2
        first, _, both = said[0].partition("\n\n")
        assert first == "".join(WORDS["first"])
        assert sorted(both.split()) == sorted(word.strip() for side in ("left", "right") for word in WORDS[side])
        for side in ("left", "right"):
            assert [word for word in both.split() if word.startswith(side)] == [word.strip() for word in WORDS[side]]
        assert said[1] == "".join(WORDS["last"])
    assert again <= ROUNDS * TASKS * 2


def step_of(line: str) -> int:
    """The step of a line of the ledger."""
    return {"first": 0, "left": 1, "right": 1, "asked yes": 2, "last": 3}[line]
