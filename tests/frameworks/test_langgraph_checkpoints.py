"""Checkpoints of LangGraph in our store: LangGraph's own suite, and what it does not ask."""

import asyncio
import operator
import pickle
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict, cast

import pytest
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from dragoman.agents.frameworks.langgraph.checkpoints import CheckpointSaver
from dragoman.agents.frameworks.langgraph.state import classes_of
from dragoman.agents.frameworks.langgraph.threads import StoredThreads
from dragoman.engine.state_space import PAGE, StoredSpace
from dragoman.model.ids import SystemClock
from dragoman.store.local_state import LocalState
from dragoman.store.open import open_store
from dragoman.store.state import KEY_BYTES_MAX, StateScope, check_key, key_segment
from tests.frameworks.conversations import space_of
from tests.store.cases.states import begin_conversations

SCOPE = StateScope("graph", "ada", "talk", "checkpoint")

EVERYTHING = {
    *("put", "put_writes", "get_tuple", "list", "delete_thread"),
    *("delete_for_runs", "copy_thread", "prune"),
}
"""The capabilities that release 0.0.2 of the suite knows. Those of channels with deltas are asked below."""


def local_space() -> StoredSpace:
    return space_of(LocalState(SystemClock()), SCOPE)


@pytest.fixture(params=["local", "file", "memory", pytest.param("postgres", marks=pytest.mark.slow)])
async def space(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoredSpace]:
    """A space in a file of SQLite, in SQLite in memory, in PostgreSQL, and in memory without a store."""
    if request.param == "local":
        yield local_space()
        return
    urls = {"file": f"sqlite:///{tmp_path}/store.db", "memory": "memory:"}
    url = urls.get(request.param) or request.getfixturevalue("used_postgres_url")
    store = open_store(url, SystemClock())
    await store.open("h1")
    try:
        await begin_conversations(store, SCOPE)
        yield space_of(store.state, SCOPE)
    finally:
        await store.close()


async def test_langgraph_s_own_suite_passes(space: StoredSpace) -> None:
    @checkpointer_test(name="ours")
    async def ours() -> AsyncIterator[BaseCheckpointSaver[str]]:
        yield CheckpointSaver(space)

    report = await validate(ours)
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert {name for name, result in report.results.items() if result.detected} == EVERYTHING
    assert report.conformance_level() == "FULL"


def config_of(thread: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, **more}}


async def fill(saver: Any, seed: int) -> list[dict[str, Any]]:
    """Put a random tree of checkpoints with deltas, snapshots, and writes of tasks in any order."""
    chance = random.Random(seed)
    made: list[dict[str, Any]] = []
    for step in range(25):
        values: dict[str, Any] = {}
        for channel in ("a", "b"):
            if chance.random() < 0.15:
                values[channel] = chance.choice([_DeltaSnapshot([step]), [step]])
        versions = {channel: saver.get_next_version(None, None) for channel in values}
        parent = chance.choice([*made[-3:], *made[-1:]]) if made else config_of("thread")
        checkpoint = empty_checkpoint() | {"id": str(uuid6(clock_seq=step)), "channel_values": values}
        put = await saver.aput(parent, checkpoint | {"channel_versions": versions}, {"step": step}, versions)
        made.append(put)
        for task in chance.sample(["t1", "t2", "t3"], 2):
            writes = [(chance.choice("ab"), [step, task, each]) for each in range(chance.randrange(3))]
            await saver.aput_writes(put, writes, task, chance.choice(["", "~pull, 1", "~pull, 2"]))
    return made


@pytest.mark.parametrize("seed", range(10))
async def test_the_history_of_channels_with_deltas_is_as_in_memory(space: StoredSpace, seed: int) -> None:
    ours, theirs = CheckpointSaver(space), InMemorySaver()
    for mine, other in zip(await fill(ours, seed), await fill(theirs, seed), strict=True):
        known = theirs.get_delta_channel_history(config=other, channels=["a", "b"])
        assert await ours.aget_delta_channel_history(config=mine, channels=["a", "b"]) == known


class Grows(TypedDict):
    log: Annotated[list[str], DeltaChannel(lambda state, writes: state + [each for some in writes for each in some])]
    count: Annotated[int, operator.add]


def growing() -> StateGraph[Any]:
    graph = StateGraph(Grows)
    for name in ("left", "right"):
        graph.add_node(name, lambda state, name=name: {"log": [f"{name} {len(state['log'])}"], "count": 1})
        graph.add_edge(START, name)
    return graph


async def test_channels_with_deltas_are_made_again_after_pruning(space: StoredSpace) -> None:
    ours, theirs = CheckpointSaver(space), InMemorySaver()
    for turn in range(8):
        told: dict[str, Any] = {}
        for name, saver in (("ours", ours), ("theirs", theirs)):
            graph = growing().compile(checkpointer=saver)
            told[name] = await graph.ainvoke({"log": [f"turn {turn}"]}, config_of("thread"))
        assert told["ours"] == told["theirs"]
        await ours.aprune(["thread"])
    assert len(told["ours"]["log"]) == 24


async def test_pruning_leaves_the_newest_checkpoint_and_its_values(space: StoredSpace) -> None:
    saver = CheckpointSaver(space)
    graph = StateGraph(Simple).add_node("add", lambda state: {"log": [1]}).add_edge(START, "add").compile(saver)
    for _ in range(3):
        await graph.ainvoke({"log": [0]}, config_of("thread"))
    before = await saver.aget_tuple(config_of("thread"))
    await saver.aprune(["thread"])
    assert [each async for each in saver.alist(config_of("thread"))] == [before]
    assert before.checkpoint["channel_values"]["log"] == [0, 1] * 3
    left = [entry.key[0] for entry in await space.list_entries(limit=1000)]
    assert left.count("c") == 1
    assert left.count("v") == len(before.checkpoint["channel_values"])


class Simple(TypedDict):
    log: Annotated[list[int], operator.add]


class Mood(Enum):
    GOOD = "good"


class Animal(BaseModel):
    name: str


@dataclass
class Trip:
    to: str
    with_whom: Animal | None = None


class Named(TypedDict, total=False):
    trips: list[Trip]
    mood: Mood | None
    anything: Any


async def test_values_of_classes_that_the_state_names_come_back_as_such(space: StoredSpace) -> None:
    given = {"trips": [Trip("Rome", Animal(name="Rex"))], "mood": Mood.GOOD}
    graph = StateGraph(Named).add_node("go", lambda state: {}).add_edge(START, "go")
    saver = CheckpointSaver(space, classes_of(graph.compile()))
    compiled = graph.compile(checkpointer=saver)
    await compiled.ainvoke(given, config_of("thread"))
    assert (await compiled.aget_state(config_of("thread"))).values == given


class Stranger(BaseModel):
    made: int = 0


async def test_no_object_of_another_class_is_made(space: StoredSpace) -> None:
    graph = StateGraph(Named).add_node("go", lambda state: {}).add_edge(START, "go")
    saver = CheckpointSaver(space, classes_of(graph.compile()))
    compiled = graph.compile(checkpointer=saver)
    await compiled.ainvoke({"anything": Stranger(made=7)}, config_of("thread"))
    assert (await compiled.aget_state(config_of("thread"))).values == {"anything": {"made": 7}}


@pytest.mark.parametrize("kind", ["pickle", "json"])
async def test_forms_of_other_kinds_are_refused(kind: str) -> None:
    space = local_space()
    saver = CheckpointSaver(space)
    put = await saver.aput(config_of("thread"), empty_checkpoint(), {}, {})
    evil = CheckpointSaver(space)
    evil.serde = Evil(kind)
    await evil.aput_writes(put, [("a", "evil")], "task")
    with pytest.raises(ValueError, match=f"no values of kind '{kind}'"):
        await saver.aget_tuple(config_of("thread"))


class Evil:
    """Writes what LangGraph's serializer would unpickle, or make objects of."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return self._kind, pickle.dumps(value)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        raise AssertionError


async def test_a_value_that_cannot_be_written_leaves_nothing(space: StoredSpace) -> None:
    saver = CheckpointSaver(space)
    checkpoint = empty_checkpoint() | {"channel_values": {"a": 1, "b": object()}}
    with pytest.raises(TypeError):
        await saver.aput(config_of("thread"), checkpoint, {}, {"a": "1", "b": "1"})
    assert await space.list_entries() == ()


async def test_methods_for_threads_answer_there_and_refuse_the_loop_s_own() -> None:
    saver = CheckpointSaver(local_space())
    graph = StateGraph(Simple).add_node("add", lambda state: {"log": [1]}).add_edge(START, "add").compile(saver)
    with pytest.raises(RuntimeError, match="use the asynchronous methods in the event loop"):
        saver.get_tuple(config_of("thread"))
    assert await asyncio.to_thread(graph.invoke, {"log": [0]}, config_of("thread")) == {"log": [0, 1]}
    known = [each async for each in saver.alist(config_of("thread"))]
    assert await asyncio.to_thread(lambda: list(saver.list(config_of("thread")))) == known
    await asyncio.to_thread(saver.prune, ["thread"])
    await asyncio.to_thread(saver.copy_thread, "thread", "other")
    await asyncio.to_thread(saver.delete_thread, "thread")
    await asyncio.to_thread(saver.delete_for_runs, ["none"])
    assert (await saver.aget_tuple(config_of("other"))).checkpoint == known[0].checkpoint


def test_long_names_of_threads_and_namespaces_fit_into_a_key() -> None:
    texts = ["ä" * 2000, "node:" + "0" * 36 + "|" * 200, "x/y"]
    segments = [key_segment(text) for text in texts]
    assert len(set(segments)) == 3
    assert not any("/" in each for each in segments)
    key = "/".join(["w", *(key_segment("ä" * 20) for _ in range(5))])
    check_key(key)
    assert 5 * max(map(len, segments)) < KEY_BYTES_MAX


class Run:
    """A task of a conversation in which the tasks `at_work` are open."""

    def __init__(self, task: str, at_work: set[str]) -> None:
        self.head = SimpleNamespace(id=task)
        self._at_work = at_work

    async def open_tasks(self, task_ids: list[str]) -> set[str]:
        return self._at_work.intersection(task_ids)


async def test_a_task_that_begins_again_finds_its_thread_among_many(space: StoredSpace) -> None:
    graph = growing().compile()
    at_work = {f"{number:03}" for number in range(PAGE + 3)}

    async def thread_of(task: str) -> str:
        threads = StoredThreads(graph, None, space, cast(Any, Run(task, at_work)), (), "talk")
        return str((await threads.enter()).config["configurable"]["thread_id"])

    given = {task: await thread_of(task) for task in sorted(at_work)}
    assert given == {task: "talk" if task == "000" else f"talk//{task}" for task in at_work}
    at_work.discard("000")
    last = max(at_work)
    assert await thread_of(last) == f"talk//{last}"
