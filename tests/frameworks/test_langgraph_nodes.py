"""What nodes tell of the run: steps, sleeps and memory, in nodes that are run again, in another run or in the same."""

import asyncio
import operator
import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy, Send, interrupt
from msgspec.structs import replace

from dragoman import Context, current_context, current_sync_context
from dragoman.agents.frameworks.langgraph import adapt
from dragoman.client import Connection
from dragoman.engine.api import Runner
from dragoman.model.message import Part
from dragoman.model.task import TERMINAL, Task, TaskState
from dragoman.testing import ClientFixture, client
from dragoman.testing.loopback import CONFIG
from tests.frameworks.kills import Ledger, killed_often
from tests.frameworks.kit import served
from tests.frameworks.restarts import handed_over, restarted
from tests.kit.processes import ServerProcess
from tests.soak import times

HERE = Path(__file__).parent


class Paid:
    """Counts how often is paid for what."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}
        self.keys: list[str] = []

    def pay(self, what: str, step_key: str) -> str:
        self.times[what] = self.times.get(what, 0) + 1
        self.keys.append(step_key.partition(":")[2])
        return f"{what} paid"


def said(text: str) -> dict[str, Any]:
    return {"messages": [AIMessage(text)]}


def texts(task: object) -> list[str]:
    assert isinstance(task, Task), task
    assert task.status.state is TaskState.COMPLETED, task.status
    return ["".join(part.text or "" for part in artifact.parts) for artifact in task.artifacts]


async def test_a_node_has_the_context_of_its_run(dragoman_client: ClientFixture) -> None:
    async def work(state: MessagesState) -> dict[str, Any]:
        ctx = current_context()
        await ctx.status("at work")
        await ctx.memory.set("seen", state["messages"][-1].content)
        now, drawn = await ctx.now(), await ctx.uuid()
        await ctx.sleep(0.01)
        remembered = await ctx.memory.get("seen")
        assert (type(ctx), now.tzinfo is None, drawn.version) == (Context, False, 4)
        return said(f"{ctx.text} {remembered[0] if remembered else None}")

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    async with dragoman_client(served(graph)) as connection:
        assert texts(await connection.send("hello")) == ["hello hello"]


async def test_a_plain_node_has_it_in_its_thread(dragoman_client: ClientFixture) -> None:
    paid, raised = Paid(), list[str]()

    def work(state: MessagesState) -> dict[str, Any]:
        ctx = current_sync_context()
        assert current_sync_context() is ctx
        first = ctx.step("pay", paid.pay, "tea")
        ctx.status("at work")
        ctx.sleep(0.01)

        def elsewhere() -> None:
            try:
                ctx.step("pay", paid.pay, "rum")
            except RuntimeError as error:
                raised.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match=r"call current_sync_context\(\) in a plain function"):
            current_context()
        second = ctx.step("pay", paid.pay, "milk", timeout_s=5)
        return said(f"{first}, {second}")

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    async with dragoman_client(served(graph)) as connection:
        assert texts(await connection.send("hello")) == ["tea paid, milk paid"]
    assert [text.partition(" cannot")[0] for text in raised] == ["a thread that a skill has started itself"]
    assert [key.partition("/")[2] for key in paid.keys] == ["1", "3"]


async def test_code_elsewhere_has_none() -> None:
    with pytest.raises(RuntimeError, match="in a skill, use the ctx"):
        current_context()
    with pytest.raises(RuntimeError, match="in a skill, use the ctx"):
        current_sync_context()


async def test_an_async_node_cannot_block(dragoman_client: ClientFixture) -> None:
    async def work(state: MessagesState) -> dict[str, Any]:
        with pytest.raises(RuntimeError, match=r"call current_context\(\) in an async one"):
            current_sync_context()
        return said("fine")

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    async with dragoman_client(served(graph)) as connection:
        assert texts(await connection.send("hello")) == ["fine"]


async def test_a_context_ends_with_its_run(dragoman_client: ClientFixture) -> None:
    late, over = list[str](), asyncio.Event()

    async def after() -> None:
        await over.wait()
        try:
            current_context()
        except RuntimeError as error:
            late.append(str(error))

    outliving: list[asyncio.Task[None]] = []

    async def work(state: MessagesState) -> dict[str, Any]:
        outliving.append(asyncio.create_task(after()))
        return said("fine")

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    async with dragoman_client(served(graph)) as connection:
        await connection.send("hello")
        over.set()
        await outliving[0]
    assert len(late) == 1


async def test_a_cancel_ends_the_call_of_a_thread(dragoman_client: ClientFixture) -> None:
    began, ended = threading.Event(), threading.Event()

    def work(state: MessagesState) -> dict[str, Any]:
        began.set()
        try:
            current_sync_context().sleep(600)
        except asyncio.CancelledError:
            ended.set()
            raise
        return {}

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    async with dragoman_client(served(graph)) as connection:
        task = await connection.send("hello", return_immediately=True)
        assert isinstance(task, Task)
        assert await asyncio.to_thread(began.wait, 60)
        assert (await connection.cancel(task.id)).status.state is TaskState.CANCELED
        assert await asyncio.to_thread(ended.wait, 60)


def asking(paid: Paid, *, plain: bool) -> StateGraph[Any]:
    """Pays in a node that ends, in one that asks, after its answer, and in a last one."""

    async def pay_first(state: MessagesState) -> dict[str, Any]:
        return said(await current_context().step("pay", paid.pay, "first"))

    async def ask(state: MessagesState) -> dict[str, Any]:
        before = await current_context().step("pay", paid.pay, "before")
        answer = interrupt("Go on?")
        after = await current_context().step("pay", paid.pay, f"after {answer}")
        return said(f"{before}, {after}")

    def ask_plainly(state: MessagesState) -> dict[str, Any]:
        before = current_sync_context().step("pay", paid.pay, "before")
        answer = interrupt("Go on?")
        after = current_sync_context().step("pay", paid.pay, f"after {answer}")
        return said(f"{before}, {after}")

    async def pay_last(state: MessagesState) -> dict[str, Any]:
        return said(await current_context().step("pay", paid.pay, "last"))

    builder = StateGraph(MessagesState).add_node("first", pay_first).add_node("last", pay_last)
    builder.add_node("ask", ask_plainly if plain else ask)
    return builder.add_edge(START, "first").add_edge("first", "ask").add_edge("ask", "last")


ONCE = {"first": 1, "before": 1, "after yes": 1, "last": 1}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("checkpointer", [None, "none"])
async def test_a_node_that_is_resumed_finds_its_steps(
    dragoman_client: ClientFixture, checkpointer: Any, *, plain: bool
) -> None:
    paid = Paid()
    graph = asking(paid, plain=plain).compile()
    async with dragoman_client(adapt(graph, "test", checkpointer=checkpointer)) as connection:
        task = await connection.send("hello")
        assert isinstance(task, Task)
        ended = await connection.send("yes", task_id=task.id, context_id=task.context_id)
    assert texts(ended) == ["first paid", "before paid, after yes paid\n\nlast paid"]
    assert paid.times == ONCE
    assert len(set(paid.keys)) == 4
    assert all(key.startswith("@") and len(key) < 40 for key in paid.keys)


@pytest.mark.parametrize("checkpointer", [None, "none", "own"])
async def test_after_a_restart_the_steps_are_found(tmp_path: Path, checkpointer: Any) -> None:
    paid = Paid()

    def agent() -> Runner:
        if checkpointer == "own":  # in memory, so that it is lost
            return adapt(asking(paid, plain=False).compile(InMemorySaver()), "test")
        return adapt(asking(paid, plain=False).compile(), "test", checkpointer=checkpointer)

    ended = await restarted(tmp_path, agent, "hello", "yes")
    assert ended.status.state is TaskState.COMPLETED, ended.status
    assert paid.times == ONCE


async def test_a_worker_hands_the_steps_over() -> None:
    paid = Paid()
    ended = await handed_over(lambda: adapt(asking(paid, plain=False).compile(), "test"), "hello", "yes")
    assert ended.status.state is TaskState.COMPLETED, ended.status
    assert paid.times == ONCE


async def test_a_node_that_is_tried_again_finds_its_steps(dragoman_client: ClientFixture) -> None:
    paid, tries = Paid(), list[int]()

    async def work(state: MessagesState) -> dict[str, Any]:
        text = await current_context().step("pay", paid.pay, "tea")
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return said(text)

    policy = RetryPolicy(initial_interval=0.01)
    graph = StateGraph(MessagesState).add_node("work", work, retry_policy=policy).add_edge(START, "work").compile()
    async with dragoman_client(served(graph)) as connection:
        assert texts(await connection.send("hello")) == ["tea paid"]
    assert (len(tries), paid.times) == (3, {"tea": 1})


class Legs(TypedDict):
    legs: Annotated[list[str], operator.add]


class Trip(Legs):
    leg: str
    round: int


def touring(paid: Paid, stops: Callable[[], Awaitable[object]]) -> StateGraph[Any]:
    """Two nodes side by side, several of one node by Send, a subgraph as a node and called, and a node in a loop."""

    async def pay(what: str) -> dict[str, Any]:
        await asyncio.sleep(random.uniform(0, 0.01))
        ctx = current_context()
        await asyncio.gather(ctx.step("pay", paid.pay, f"{what} 1"), ctx.step("pay", paid.pay, f"{what} 2"))
        return {"legs": [what]}

    async def left(state: Trip) -> dict[str, Any]:
        return await pay("left")

    async def right(state: Trip) -> dict[str, Any]:
        return await pay("right")

    async def leg(state: Trip) -> dict[str, Any]:
        return await pay(f"leg {state['leg']}")

    async def called(state: Trip) -> dict[str, Any]:
        return await pay(f"called {state['leg']}")

    inner = StateGraph(Trip).add_node("pay", called).add_edge(START, "pay").compile()
    inner_twice = StateGraph(Trip, output_schema=Legs).add_node("pay", leg).add_edge(START, "pay").compile()

    async def call(state: Trip) -> dict[str, Any]:
        for each in "ab":
            await inner.ainvoke({"legs": [], "leg": each, "round": 0})
        return await pay("caller")

    def plain(state: Trip) -> dict[str, Any]:
        inside = StateGraph(Trip).add_node("pay", plain_pay).add_edge(START, "pay").compile()
        current_sync_context().step("pay", paid.pay, "plain")
        inside.invoke({"legs": [], "leg": "", "round": 0})
        return {"round": 1}

    def plain_pay(state: Trip) -> dict[str, Any]:
        current_sync_context().step("pay", paid.pay, "plain inside")
        return {}

    async def again(state: Trip) -> dict[str, Any]:
        await pay(f"round {state['round']}")
        if state["round"] == 3:
            await stops()
        return {"round": state["round"] + 1}

    builder = StateGraph(Trip).add_node("left", left).add_node("right", right).add_node("leg", leg)
    builder.add_node("called", inner_twice).add_node("call", call).add_node("plain", plain).add_node("again", again)
    builder.add_edge(START, "left").add_edge(START, "right")
    builder.add_conditional_edges("right", lambda state: [Send("leg", {"leg": each}) for each in "xyz"], ["leg"])
    builder.add_edge("leg", "call").add_edge("call", "plain")
    builder.add_conditional_edges("plain", lambda state: [Send("called", {"leg": each}) for each in "vw"], ["called"])
    builder.add_edge("called", "again")
    builder.add_conditional_edges("again", lambda state: "again" if state["round"] < 4 else "__end__")
    return builder


BOUGHT = [
    *("left", "right", "leg x", "leg y", "leg z", "called a", "called b", "caller", "leg v", "leg w"),
    *("round 1", "round 2", "round 3"),
]
"""For what `touring` pays twice; and once for what is plain."""


@pytest.mark.parametrize("checkpointer", [None, "none"])
async def test_each_execution_of_a_node_has_places_of_its_own(tmp_path: Path, checkpointer: Any) -> None:
    paid, stopped = Paid(), asyncio.Event()
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")

    async def stops() -> None:
        if not stopped.is_set():
            stopped.set()
            await asyncio.Event().wait()

    def agent() -> Runner:
        return adapt(touring(paid, stops).compile(), "test", checkpointer=checkpointer)

    async with client(agent(), config=config) as connection:
        task = await connection.send(Part(data={"legs": [], "leg": "", "round": 0}), return_immediately=True)
        assert isinstance(task, Task)
        await asyncio.wait_for(stopped.wait(), 60)
    async with client(agent(), config=config) as connection:
        ended = await waited(connection, task)
    assert ended.status.state is TaskState.COMPLETED, ended.status
    assert paid.times == {f"{what} {n}": 1 for what in BOUGHT for n in "12"} | {"plain": 1, "plain inside": 1}
    assert len(set(paid.keys)) == len(paid.keys)


async def waited(connection: Connection, task: Task) -> Task:
    async with asyncio.timeout(60):
        while task.status.state not in TERMINAL:
            await asyncio.sleep(0.02)
            task = await connection.get(task.id)
    return task


ROUNDS = times(3, 60)
TASKS = times(6, 20)


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["graph", "forgetful"])
async def test_after_kill_9_no_step_is_executed_that_was_recorded(tmp_path: Path, graph: str) -> None:
    chance = random.Random(2)
    ledger = tmp_path / "ledger"
    (tmp_path / "dragoman.toml").write_text(
        f"""
        store = "sqlite:///{tmp_path / "store.db"}"
        port = 0
        [[agents]]
        id = "graph"
        run = "{HERE / "purchases.py"}:graph"
        {'checkpointer = "none"' if graph == "forgetful" else ""}
        """
    )
    server = ServerProcess(tmp_path)
    async with killed_often(server, "graph", ledger, chance, rounds=ROUNDS, tasks=TASKS, lines=10) as after:
        ended = list(after.tasks.values())
    by_state = {state: [each for each in ended if each.status.state is state] for state in TERMINAL}
    done = by_state.pop(TaskState.COMPLETED)
    lost = [each for tasks_of in by_state.values() for each in tasks_of]
    if graph == "graph":
        assert not lost, server.said()[-4000:]
    assert {each.status.state for each in lost} <= {TaskState.FAILED}
    assert len(done) > len(ended) // 2
    again = 0
    for name, task in after.tasks.items():
        lines = Ledger(ledger).of(name)
        bought = [line.removeprefix("buys ") for line in lines if line.startswith("buys ")]
        known: set[str] = set()
        for line in lines:  # "has" follows once the step's result is on disk
            what = line.partition(" ")[2]
            if line.startswith("has "):
                known.add(what)
            else:
                assert what not in known, lines
        if task in lost:  # killed before its first step, without a checkpoint
            continue
        assert set(bought) == {"tea", "milk", "rum", "cake", "thanks"}
        again += len(bought) - 5
    assert again <= ROUNDS * TASKS * 2
