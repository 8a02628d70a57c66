"""LangGraph's long-term memory in our store answers as its own store in memory does."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from dragoman.agents.frameworks.langgraph.items import ItemStore
from dragoman.engine.state_space import StateSpace
from dragoman.model.ids import SystemClock
from dragoman.model.principal import Principal
from dragoman.store.local_state import LocalState
from dragoman.store.open import open_store
from dragoman.store.state import StateScope
from dragoman.testing import ClientFixture, run
from tests.frameworks.conversations import space_of
from tests.frameworks.kit import served
from tests.soak import times
from tests.store.cases.bench import SetClock

SCOPE = StateScope("graph", "ada", "", "store")
LABELS = ("a", "b", "users", "ä/b", "x" * 150)
KEYS = ("one", "two", "three/four", "..", "ü" * 80)


def opened(space: StateSpace) -> ItemStore:
    async def find_space() -> StateSpace:
        return space

    return ItemStore(find_space)


@pytest.fixture(params=["local", "file", pytest.param("postgres", marks=pytest.mark.slow)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ItemStore]:
    """In memory, in a file of SQLite, and in PostgreSQL."""
    clock = SystemClock()
    if request.param == "local":
        yield opened(space_of(LocalState(clock), SCOPE, clock))
        return
    url = f"sqlite:///{tmp_path}/store.db" if request.param == "file" else request.getfixturevalue("used_postgres_url")
    kept = open_store(url, clock)
    await kept.open("h1")
    try:
        yield opened(space_of(kept.state, SCOPE, clock))
    finally:
        await kept.close()


class Operations:
    """Random operations. Namespaces are read that have been written, because LangGraph's store makes those it reads."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._written: list[tuple[str, ...]] = []

    def batch(self) -> list[Any]:
        return [self._one() for _ in range(self._chance.choice([1, 1, 1, 5]))]

    def _one(self) -> Any:
        chance = self._chance
        match chance.randrange(8):
            case 0 | 1 | 2:
                self._written.append(namespace := self._namespace())
                return PutOp(namespace, chance.choice(KEYS), self._value())
            case 3:
                self._written.append(namespace := self._namespace())
                return PutOp(namespace, chance.choice(KEYS), None)
            case 4 | 5 if self._written:
                return GetOp(chance.choice(self._written), chance.choice(KEYS))
            case 6:
                prefix = self._namespace()[: chance.randrange(4)]
                return SearchOp(
                    prefix, self._filter(), limit=chance.choice([1, 3, 10]), offset=chance.choice([0, 0, 2])
                )
            case _:
                path = tuple(chance.choice([*LABELS, "*"]) for _ in range(chance.randrange(1, 3)))
                conditions = (MatchCondition(chance.choice(["prefix", "suffix"]), path),)
                return ListNamespacesOp(
                    chance.choice([None, conditions]),
                    chance.choice([None, 1, 2]),
                    limit=chance.choice([1, 100]),
                    offset=chance.choice([0, 1]),
                )

    def _namespace(self) -> tuple[str, ...]:
        return tuple(self._chance.choice(LABELS) for _ in range(self._chance.randrange(1, 4)))

    def _value(self) -> dict[str, Any]:
        chance = self._chance
        return {
            "number": chance.randrange(5),
            "kind": chance.choice(["x", "y", None]),
            "deep": {"list": [chance.randrange(3), 1.5, "ü"], "flag": chance.random() < 0.5},
        }

    def _filter(self) -> dict[str, Any] | None:
        chance = self._chance
        number = chance.randrange(5)
        operator = chance.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
        return chance.choice([None, {"kind": "x"}, {"number": {operator: number}}, {"deep": {"flag": True}}])


def plain(result: Any) -> Any:
    """A result without the times."""
    if isinstance(result, list):
        return [plain(each) for each in result]
    return (result.namespace, result.key, result.value) if hasattr(result, "created_at") else result


async def compare(store: ItemStore, seed: int, count: int) -> None:
    """Do random operations on the store and on LangGraph's own."""
    operations, known, done = Operations(seed), InMemoryStore(), 0
    while done < count:
        ops = operations.batch()
        done += len(ops)
        assert plain(await store.abatch(ops)) == plain(await known.abatch(ops)), (done, ops)


@pytest.mark.parametrize("seed", range(times(2, 50)))
async def test_random_operations_answer_as_in_memory(store: ItemStore, seed: int) -> None:
    await compare(store, seed, 500)


async def test_thousands_of_random_operations_answer_as_in_memory() -> None:
    clock = SystemClock()
    await compare(opened(space_of(LocalState(clock), SCOPE, clock)), 1, times(2000, 10_000))


async def test_an_item_keeps_its_time_when_it_is_written_again(store: ItemStore) -> None:
    await store.aput(("a",), "one", {"n": 1})
    first = await store.aget(("a",), "one")
    await asyncio.sleep(0.002)
    await store.aput(("a",), "one", {"n": 2})
    second = await store.aget(("a",), "one")
    assert first is not None
    assert second is not None
    assert (second.value, second.created_at) == ({"n": 2}, first.created_at)
    assert second.updated_at > first.updated_at


async def test_a_query_is_refused_with_the_fix(store: ItemStore) -> None:
    with pytest.raises(ValueError, match="leave query out, or compile the graph with a store that has an index"):
        await store.asearch(("a",), query="something like it")


async def test_labels_of_namespaces_are_checked_in_batches_too(store: ItemStore) -> None:
    with pytest.raises(InvalidNamespaceError):
        await store.abatch([PutOp(("a.b",), "one", {})])


async def test_items_expire_and_reading_lets_them_begin_anew() -> None:
    clock = SetClock()
    store = opened(space_of(LocalState(clock), SCOPE, clock))
    await store.aput(("a",), "one", {"n": 1}, ttl=10)
    await store.aput(("a",), "two", {"n": 2}, ttl=10)
    minute = round(timedelta(minutes=1).total_seconds() * 1000)
    clock.ms += 9 * minute
    assert await store.aget(("a",), "one") is not None
    assert await store.aget(("a",), "two", refresh_ttl=False) is not None
    clock.ms += 9 * minute
    assert [item.key for item in await store.asearch(("a",))] == ["one"]
    clock.ms += 9 * minute
    assert await store.aget(("a",), "one") is not None
    clock.ms += 11 * minute
    assert await store.asearch(("a",)) == []


async def test_plain_functions_use_it_in_their_thread_and_the_loop_s_own_is_refused(store: ItemStore) -> None:
    await asyncio.to_thread(store.put, ("a",), "one", {"n": 1})
    assert (await asyncio.to_thread(store.get, ("a",), "one")).value == {"n": 1}  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="use the asynchronous methods in the event loop"):
        store.get(("a",), "one")


def remembering(store: Any = None) -> Any:
    async def note(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        assert runtime.store is not None
        said = [str(item.value["said"]) for item in await runtime.store.asearch(("said",))]
        await runtime.store.aput(("said",), str(len(said)), {"said": state["messages"][-1].content})
        return {"messages": [AIMessage(", ".join(said) or "nothing")]}

    return StateGraph(MessagesState).add_node("note", note).add_edge(START, "note").compile(store=store)


async def test_a_graph_without_a_store_gets_one_for_all_conversations_of_its_caller(
    dragoman_client: ClientFixture,
) -> None:
    graph = remembering()
    async with dragoman_client(served(graph)) as connection:
        told = []
        for text in ("One", "Two", "Three"):
            task = await connection.send(text)
            told.append(task.artifacts[0].parts[0].text)  # type: ignore[union-attr]
    assert told == ["nothing", "One", "One, Two"]
    assert graph.store is None


async def test_a_graph_with_a_store_of_its_own_keeps_it() -> None:
    own = InMemoryStore()
    await run(served(remembering(own)), "One", principal=Principal("ada"))
    assert [item.value for item in own.search(("said",))] == [{"said": "One"}]
