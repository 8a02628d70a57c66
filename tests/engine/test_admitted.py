"""The rights and the rates of callers, and the notes in the audit trail: before a real engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.engine.handlers.admission import KINDS, Admission
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.handlers.usage import OpenStreams, Rates
from dragoman.engine.subscriptions import Tail
from dragoman.model.errors import A2AError, Forbidden, TaskNotFound, TooManyRequests
from dragoman.model.message import Message
from dragoman.model.operations import (
    Call,
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
    DeleteTask,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    StreamMessage,
    Subscribe,
    UpdateStatus,
)
from dragoman.model.principal import AccessRole, Principal, Scope
from dragoman.model.task import Record, TaskState
from dragoman.store.audit import AuditEntry
from tests.engine.house import DEADLINE_S, House, Scripted, call, house, read, sending, silence, streaming

HOOK = PushConfig(url="https://example.org/", task_id="t")

NEEDED: list[tuple[Operation, Scope | None]] = [
    (sending(), Scope.SEND),
    (streaming(), Scope.SEND),
    (GetTask(id="t"), Scope.READ),
    (ListTasks(), Scope.READ),
    (Subscribe(id="t"), Scope.READ),
    (CancelTask(id="t"), Scope.CANCEL),
    (DeleteTask(id="t"), Scope.CANCEL),
    (CreatePushConfig(config=HOOK), Scope.PUSH),
    (GetPushConfig(task_id="t"), Scope.PUSH),
    (ListPushConfigs(task_id="t"), Scope.PUSH),
    (DeletePushConfig(task_id="t"), Scope.PUSH),
    (GetExtendedCard(), Scope.CARD),
    (CompleteTask(id="t"), None),
    (UpdateStatus(id="t", state=TaskState.WORKING), None),
]


class Table:
    """The entries that were written."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    def write(self, entries: Sequence[AuditEntry]) -> "asyncio.Future[None]":
        self.entries.extend(entries)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    async def read(self, **about: Any) -> tuple[AuditEntry, ...]:
        raise NotImplementedError

    async def acts(self, after: int | None) -> tuple[int, tuple[AuditEntry, ...]]:
        raise NotImplementedError

    async def sweep(self, before_ms: int) -> int:
        raise NotImplementedError


class Gate:
    """An engine behind the one who admits, and what was noted."""

    def __init__(self, here: House, admitted: Admission, trail: Trail, table: Table) -> None:
        self.house, self.admitted = here, admitted
        self.trail, self.table = trail, table

    async def ask(self, operation: Operation, who: Principal | None = None, **around: Any) -> Any:
        """The answer to the operation, or its stream."""
        asked = call(operation, **around)
        if who is not None:
            asked = Call(**{field: getattr(asked, field) for field in asked.__struct_fields__} | {"principal": who})
        stream = isinstance(operation, StreamMessage | Subscribe)
        async with asyncio.timeout(DEADLINE_S):
            return await (self.admitted.stream(asked) if stream else self.admitted.call(asked))

    async def noted(self) -> list[AuditEntry]:
        await self.trail.stop()
        return self.table.entries


@asynccontextmanager
async def gate(*agents: Scripted, per_s: int = 0, max_streams: int = 0, keeping: str = "all") -> AsyncIterator[Gate]:
    table = Table()
    async with house(*agents) as here:
        trail = Trail(table, keeping)
        rates = Rates(per_s) if per_s else None
        streams = OpenStreams(max_streams) if max_streams else None
        admitted = Admission(here.engine.operations, rates=rates, streams=streams, trail=trail, clock=here.clock)
        yield Gate(here, admitted, trail, table)
        await trail.stop()


async def outcome(asked: Awaitable[Any]) -> type[A2AError] | None:
    """The kind of error, if it is one that the gate raises."""
    try:
        answer = await asked
        if isinstance(answer, Tail):
            answer.close()
    except (Forbidden, TooManyRequests) as error:
        return type(error)
    except A2AError:
        return None
    return None


# -- scopes, agents ----------------------------------------------------------------------------------------------------


def test_every_operation_has_a_name_and_a_scope() -> None:
    assert set(KINDS) == set(Operation.__args__)
    assert {type(operation) for operation, _ in NEEDED} == set(KINDS)


@pytest.mark.parametrize(("operation", "scope"), NEEDED)
async def test_an_operation_needs_its_scope_and_no_other(operation: Operation, scope: Scope | None) -> None:
    async with gate() as here:
        others = Principal("anna", scopes=frozenset(Scope) - {scope})
        assert await outcome(here.ask(operation, others)) is (None if scope is None else Forbidden)
        if scope is not None:
            only = Principal("anna", scopes=frozenset({scope}))
            assert await outcome(here.ask(operation, only)) is None
        assert await outcome(here.ask(operation, Principal("anna"))) is None


@pytest.mark.parametrize(("operation", "scope"), NEEDED)
async def test_a_principal_of_another_agent_may_do_nothing(operation: Operation, scope: Scope | None) -> None:
    async with gate() as here:
        for role in AccessRole:
            other = Principal("anna", role, agents=frozenset({"other"}))
            with pytest.raises(Forbidden, match=r"^this key or token is not for agent 'agent'$"):
                await here.ask(operation, other)
        assert await outcome(here.ask(operation, Principal("anna", agents=frozenset({"agent"})))) is None


async def test_the_message_names_what_the_key_may_do() -> None:
    async with gate() as here:
        with pytest.raises(Forbidden, match=r"^this key or token may not send: it has the scopes cancel, read$"):
            await here.ask(sending(), Principal("anna", scopes=frozenset({Scope.READ, Scope.CANCEL})))
        with pytest.raises(Forbidden, match=r"^this key or token has no scope$"):
            await here.ask(ListTasks(), Principal("anna", scopes=frozenset()))


@pytest.mark.parametrize("send", [sending(push_config=HOOK), streaming(push_config=HOOK)])
async def test_a_webhook_within_a_message_needs_the_scope_of_webhooks_too(send: Operation) -> None:
    async with gate() as here:
        with pytest.raises(Forbidden, match=r"may not register webhooks: it has the scopes send$"):
            await here.ask(send, Principal("anna", scopes=frozenset({Scope.SEND})))
        both = Principal("anna", scopes=frozenset({Scope.SEND, Scope.PUSH}))
        assert await outcome(here.ask(send, both)) is None


async def test_the_dialect_of_a_task_is_asked_of_the_engine() -> None:
    async with gate() as here:
        record = await here.ask(sending())
        assert await here.admitted.dialect_of(record.head.id, Principal("anna"), "agent", "/") == "1.0"
        assert await here.admitted.dialect_of(record.head.id, Principal("ben"), "agent", "/") is None


# -- rates -------------------------------------------------------------------------------------------------------------


async def test_over_the_rate_requests_are_refused_until_later() -> None:
    async with gate(per_s=2) as here:
        await here.ask(ListTasks())
        await here.ask(sending())
        for operation in (ListTasks(), sending(), streaming()):
            with pytest.raises(TooManyRequests, match=r"more requests than 2 a second \(max_requests_per_s\)") as over:
                await here.ask(operation)
            assert (over.value.limit, over.value.retry_after_s) == ("max_requests_per_s", 1)
        await here.ask(ListTasks(), owner="ben")
        here.house.clock.ms += 500
        await here.ask(ListTasks())


# -- streams -----------------------------------------------------------------------------------------------------------


async def test_one_open_stream_is_said_in_the_singular() -> None:
    async with gate(Scripted(silence), max_streams=1) as here:
        stream = await here.ask(streaming())
        with pytest.raises(TooManyRequests, match=r"1 stream is open: close one \(max_streams\)"):
            await here.ask(streaming())
        stream.close()


async def test_no_more_streams_than_allowed_are_open_and_a_closed_one_makes_room() -> None:
    async with gate(Scripted(silence), max_streams=2) as here:
        first, second = await here.ask(streaming()), await here.ask(streaming())
        with pytest.raises(TooManyRequests, match=r"2 streams are open: close one \(max_streams\)") as over:
            await here.ask(Subscribe(id=first.head.id))
        assert (over.value.limit, over.value.retry_after_s >= 1) == ("max_streams", True)
        other = await here.ask(streaming(), owner="ben")
        first.close()
        first.close()
        third = await here.ask(Subscribe(id=first.head.id))
        with pytest.raises(TooManyRequests):
            await here.ask(streaming())
        for stream in (second, third, other):
            stream.close()


async def test_a_stream_that_came_to_its_end_makes_room_without_being_closed() -> None:
    async with gate(max_streams=1) as here:
        for _ in range(3):
            stream = await here.ask(streaming())
            items = await read(stream)
            assert items
            assert await stream.next() is None


async def test_of_many_at_once_no_more_are_let_through() -> None:
    async with gate(Scripted(silence), max_streams=3) as here:
        asked = [here.ask(streaming()) for _ in range(10)]
        opened = await asyncio.gather(*asked, return_exceptions=True)
        refused = [stream for stream in opened if isinstance(stream, TooManyRequests)]
        assert len(refused) == 7
        for stream in opened:
            if not isinstance(stream, BaseException):
                stream.close()


async def test_a_stream_that_is_refused_takes_no_place() -> None:
    async with gate(max_streams=1) as here:
        for _ in range(3):
            with pytest.raises(TaskNotFound):
                await here.ask(Subscribe(id="nope"))
        (await here.ask(streaming())).close()


async def test_a_counted_stream_is_the_stream() -> None:
    async with gate(max_streams=1) as here:
        stream = await here.ask(streaming())
        assert stream.head.owner == "anna"
        assert (stream.base, stream.retry) == (None, False)
        stream.close()
        assert await stream.next() is None


# -- what is noted -----------------------------------------------------------------------------------------------------


async def test_an_allowed_operation_is_noted_with_the_task_it_was_about() -> None:
    async with gate() as here:
        record = await here.ask(sending(), peer="192.0.2.1")
        stream = await here.ask(streaming())
        stream.close()
        await here.ask(GetTask(id=record.head.id))
        await here.ask(ListTasks())
        told = [(entry.action, entry.task_id, entry.allowed, entry.reason) for entry in await here.noted()]
        assert told == [
            ("SendMessage", record.head.id, True, ""),
            ("SendStreamingMessage", stream.head.id, True, ""),
            ("GetTask", record.head.id, True, ""),
            ("ListTasks", "", True, ""),
        ]
        first = (await here.noted())[0]
        assert (first.at_ms, first.principal, first.agent, first.peer) == (
            here.house.clock.ms,
            "anna",
            "agent",
            "192.0.2.1",
        )


async def test_a_refused_operation_is_noted_with_its_reason() -> None:
    reader = Principal("anna", scopes=frozenset({Scope.READ}))
    async with gate(per_s=3) as here:
        for operation, who in (
            (sending(task_id="t"), reader),
            (GetTask(id="nope"), None),
            (Subscribe(id="nope"), None),
            (CompleteTask(id="t"), None),
            (ListTasks(), None),
        ):
            with pytest.raises(A2AError):
                await here.ask(operation, who)
        told = [(entry.action, entry.task_id, entry.allowed, entry.reason) for entry in await here.noted()]
        assert told == [
            ("SendMessage", "t", False, "Forbidden"),
            ("GetTask", "nope", False, "TaskNotFound"),
            ("SubscribeToTask", "nope", False, "TaskNotFound"),
            ("CompleteTask", "t", False, "TaskNotFound"),
            ("ListTasks", "", False, "TooManyRequests"),
        ]


async def test_where_only_refusals_are_kept_nothing_else_is_noted() -> None:
    async with gate(keeping="refused") as here:
        record = await here.ask(sending())
        with pytest.raises(TaskNotFound):
            await here.ask(GetTask(id=record.head.id), owner="ben")
        assert [(entry.principal, entry.reason) for entry in await here.noted()] == [("ben", "TaskNotFound")]


async def test_a_caller_who_leaves_while_he_waits_has_been_allowed() -> None:
    begun = asyncio.Event()

    async def run(run: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with gate(Scripted(run)) as here:
        asking = asyncio.create_task(here.ask(sending()))
        async with asyncio.timeout(DEADLINE_S):
            await begun.wait()
        asking.cancel()
        await asyncio.wait([asking])
        (entry,) = await here.noted()
        assert (entry.action, entry.allowed, entry.reason) == ("SendMessage", True, "")


async def test_what_broke_is_noted_as_that() -> None:
    class Broken:
        async def call(self, asked: Call) -> Record | Message:
            raise RuntimeError("secret")

        async def stream(self, asked: Call) -> Any:
            raise RuntimeError("secret")

        async def look(self, asked: Call) -> Record | Message:
            raise RuntimeError("secret")

        async def dialect_of(self, task_id: str, principal: Principal, agent: str, mount: str) -> str | None:
            return None

        async def agent_of(self, task_id: str, principal: Principal, mount: str) -> str | None:
            return None

    async with gate() as here:
        admitted = Admission(Broken(), rates=None, streams=None, trail=here.trail, clock=here.house.clock)
        broken = Gate(here.house, admitted, here.trail, here.table)
        for operation in (ListTasks(), streaming()):
            with pytest.raises(RuntimeError):
                await broken.ask(operation)
        assert [entry.reason for entry in await here.noted()] == ["InternalError"] * 2


async def test_what_never_became_a_call_is_noted_too() -> None:
    entry = AuditEntry(at_ms=1, principal="", action="", allowed=False, reason="Unauthorized", peer="192.0.2.1")
    async with gate() as here:
        here.admitted.note(entry)
        assert await here.noted() == [entry]
