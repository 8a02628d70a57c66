"""Numbers of tasks for an operator."""

import pytest

from dragoman.admin.overview import LIST_REPLICAS, AgentFacts, StateLine
from dragoman.engine.admin.overview import Overview
from dragoman.model.events import Submitted
from dragoman.model.ids import timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.api import NewTask
from dragoman.store.open import open_store
from dragoman.store.replicas import Replica
from dragoman.store.state import StatePut, StateScope, StateWrite
from tests.engine.house import StandingClock
from tests.kit.facts import NoFacts

NOW_MS = 1_800_000_000_000


class TwoAgents(NoFacts):
    def agents(self) -> tuple[AgentFacts, ...]:
        return tuple(
            AgentFacts(id=name, name=name, version="1", kind="python", degraded=None) for name in ("busy", "idle")
        )


def task(number: int, state: TaskState, age_s: int) -> NewTask:
    at = NOW_MS - age_s * 1000
    head = TaskHead(
        id=f"t{number}",
        context_id="c",
        agent="busy",
        owner=f"key:p{number % 2}",
        dialect="1.0",
        mount="/",
        created_at=timestamp(at),
    )
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="hi"),))
    return NewTask(head=head, events=(Submitted(message, timestamp(at)),), state=state, status_ms=at, holder=None)


async def test_agents_have_the_numbers_of_their_tasks_and_the_age_of_the_oldest_queued() -> None:
    store = open_store("memory:", StandingClock())
    await store.open("me")
    states = (TaskState.SUBMITTED, TaskState.SUBMITTED, TaskState.SUBMITTED, TaskState.INPUT_REQUIRED, TaskState.FAILED)
    for number, state in enumerate(states):
        await store.create(task(number, state, age_s=10 * (number + 1)))
    overview = Overview(store)
    busy, idle = (await overview.agents(TwoAgents())).agents
    assert (busy.queued, busy.running, busy.waiting, busy.total) == (3, 0, 1, 5)
    assert busy.oldest_queued_s == 30.0
    assert (idle.total, idle.oldest_queued_s) == (0, None)
    stats = await overview.stats()
    assert {state: count for state, count in stats.tasks.items() if count} == {
        "submitted": 3,
        "input-required": 1,
        "failed": 1,
    }
    assert stats.state == {}
    for context, kind in (("c", "memory"), ("", "memory"), ("c", "checkpoint")):
        scope = StateScope("busy", "key:p0", context, kind)  # type: ignore[arg-type]
        await store.state.write_entries(StateWrite(scope=scope, puts=(StatePut("k", b"123"), StatePut("l", b""))))
    assert (await overview.stats()).state == {"checkpoint": StateLine(1, 2, 5), "memory": StateLine(2, 4, 10)}
    await store.close()


async def test_a_replica_without_a_sign_of_life_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory:", StandingClock())
    await store.open("me")

    async def two() -> tuple[Replica, ...]:
        return tuple(Replica(id=name, address="", agents=(), started_ms=0, silent=name == "b") for name in "ab")

    monkeypatch.setattr(store.replicas, "all", two)
    overview = Overview(store)
    assert {line.id: line.silent for line in (await overview.replicas()).replicas} == {"a": False, "b": True}
    assert "silent" in {column.field for column in LIST_REPLICAS.columns}
    stats = await overview.stats()
    assert (stats.replicas, stats.silent_replicas) == (2, 1)
    await store.close()
