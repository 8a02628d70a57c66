"""The output of nodes that have finished: it is stored with their results, however busy the machine is."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from langgraph.checkpoint.base import empty_checkpoint

from dragoman.agents.frameworks.langgraph import outputs as outputs_module
from dragoman.agents.frameworks.langgraph.checkpoints import CheckpointSaver
from dragoman.agents.frameworks.langgraph.outputs import StoredOutput, TaskOutputs
from dragoman.engine.state_space import StoredSpace
from dragoman.model.ids import SystemClock
from dragoman.store.local_state import LocalState
from dragoman.store.state import StateEntry, StatePut, StateScope
from tests.frameworks.conversations import Anybody

METADATA = {"langgraph_checkpoint_ns": "node:a", "langgraph_step": 1}
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs_module, "LOOK_S", 0.01)


class SlowSpace(StoredSpace):
    """Reads entries when the gate is open, and notes the keys of each write."""

    def __init__(self) -> None:
        scope = StateScope("graph", "ada", "talk", "checkpoint")
        super().__init__(LocalState(SystemClock()), scope, Anybody(), SystemClock(), retry_s=0)  # type: ignore[arg-type]
        self.gate = asyncio.Event()
        self.written: list[str] = []

    async def get_entries(self, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        await self.gate.wait()
        return await super().get_entries(keys)

    async def write_entries(self, *, puts: Sequence[StatePut] = (), **more: Any) -> int:
        self.written += [put.key for put in puts]
        return await super().write_entries(puts=puts, **more)


class Said:
    """What a task said."""

    async def entries_of(self, task_id: str) -> list[StatePut]:
        return [StatePut(f"o/{task_id}", b"said")]

    def rest(self, step: int) -> list[StatePut]:
        return []


async def test_a_checkpoint_comes_after_the_results_before_it_and_what_their_tasks_said() -> None:
    space = SlowSpace()
    saver = CheckpointSaver(space, (), Said())
    config: Any = {"configurable": {"thread_id": "talk", "checkpoint_ns": ""}}
    first = await saver.aput(config, empty_checkpoint(), {"step": 0}, {})
    before = len(space.written)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        group.create_task(saver.aput_writes(first, [("messages", "hello")], "task", "~pull, node"))
        group.create_task(saver.aput(first, empty_checkpoint(), {"step": 1}, {}))
        for _ in range(20):
            await asyncio.sleep(0)
        assert space.written[before:] == []
        space.gate.set()
    kinds = [key[0] for key in space.written[before:]]
    assert kinds == ["w", "o", "c"]


def texts(puts: Sequence[StatePut]) -> list[Any]:
    return [each.piece for put in puts for each in msgspec.msgpack.decode(put.value, type=list[StoredOutput])]


async def test_a_result_waits_for_what_its_task_said_while_the_run_is_busy() -> None:
    outputs = TaskOutputs("o/t/")
    storing: list[asyncio.Task[list[StatePut]]] = []

    async def graph() -> AsyncIterator[str]:
        yield "begins"
        storing.append(asyncio.create_task(outputs.entries_of("a")))
        yield "says"
        yield "ends"

    async with asyncio.timeout(DEADLINE_S):
        async for event in outputs.watch_events(graph()):
            match event:
                case "begins":
                    outputs.begin("a")
                case "says":
                    await asyncio.sleep(0.3)  # longer than an idle run would wait
                    assert outputs.rest(5) == []
                    assert not storing[0].done()
                    outputs.add(METADATA, "a word")
                case _:
                    outputs.finish("a")
        assert texts(await storing[0]) == ["a word"]


async def test_a_run_that_breaks_off_is_given_up_on() -> None:
    outputs = TaskOutputs("o/t/")

    async def graph() -> AsyncIterator[str]:
        yield "begins"
        assert await outputs.entries_of("a") == []  # as LangGraph waits for its writes before it raises
        raise OSError("a node has failed")

    with pytest.raises(OSError, match="a node has failed"):
        async with asyncio.timeout(DEADLINE_S):
            async for _ in outputs.watch_events(graph()):
                outputs.begin("a")
    assert await outputs.entries_of("hidden") == []


async def test_a_run_that_waits_for_what_is_stored_takes_no_event() -> None:
    outputs = TaskOutputs("o/t/")

    async def graph() -> AsyncIterator[str]:
        yield "begins"

    async with asyncio.timeout(DEADLINE_S):
        async for _ in outputs.watch_events(graph()):
            outputs.begin("a")
            with outputs.taking_none():
                assert await outputs.entries_of("a") == []
