"""Administration: what an operator reads and changes across principals, noted in the audit trail.

Invariant: every access has an entry in the trail under the operator's own name, also when the change itself is carried
out as a call of the task's owner. Only bindings that have admitted an operator may call it.
"""

import asyncio
from collections.abc import Awaitable
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from dragoman.engine.handler import Handler
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.inspection import (
    STATES_BY_WORD,
    Inspector,
    StateWord,
    TaskFilter,
    TaskLine,
    TaskLines,
    TaskReport,
    Timeline,
)
from dragoman.engine.overview import (
    OPEN,
    AgentLines,
    Overview,
    ReplicaLines,
    ServerFacts,
    Stats,
    UpstreamLines,
    WorkerLines,
)
from dragoman.model.errors import A2AError, InvalidParams, TaskNotFound, Unavailable
from dragoman.model.ids import Clock
from dragoman.model.lifecycle import SPELLED
from dragoman.model.operations import Call, CancelTask
from dragoman.model.principal import Principal
from dragoman.model.task import TERMINAL, Record
from dragoman.store.api import Store, StoreError
from dragoman.store.audit import AuditEntry

T = TypeVar("T")

DIALECT = "admin"
"""The dialect of the calls made here. No task is ever made here."""

CANCELS_AT_ONCE = 16
"""How many tasks one request cancels at the same time; each may take its agent's grace period."""


class Operator(Struct, frozen=True):
    """The operator who asks: the id of the principal, and the address, without port."""

    principal: str
    peer: str = ""


class CancelRequest(TaskFilter, frozen=True, kw_only=True):
    """Cancel the open tasks that fit, at most `limit`. With `dry_run` they are only listed."""

    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class Canceled(Struct, frozen=True, kw_only=True):
    """A task that has been canceled, or has the state that it had reached before."""

    id: str
    state: StateWord


class CancelFailure(Struct, frozen=True, kw_only=True):
    """A task that could not be canceled, and why."""

    id: str
    reason: str


class CancelReport(Struct, frozen=True, kw_only=True):
    """The outcome of canceling many tasks. `more`: tasks beyond the limit fit as well."""

    dry_run: bool
    matched: tuple[TaskLine, ...]
    canceled: tuple[str, ...] = ()
    failed: tuple[CancelFailure, ...] = ()
    more: bool = False


class Administration:
    """Answers operators. `handler` is the engine, without admission: an operator has no quota."""

    def __init__(self, handler: Handler, store: Store, trail: Trail, clock: Clock) -> None:
        self._handler = handler
        self._store = store
        self._inspector = Inspector(store, clock)
        self._overview = Overview(store, clock)
        self._trail = trail
        self._clock = clock

    async def list_tasks(self, operator: Operator, wanted: TaskFilter, limit: int, cursor: str) -> TaskLines:
        """A page of tasks. Raises A2AError."""
        return await self._noted(operator, "tasks.list", self._inspector.list(wanted, limit, cursor))

    async def show_task(self, operator: Operator, task_id: str) -> TaskReport:
        """One task. Raises A2AError."""
        return await self._noted(operator, "tasks.show", self._inspector.show(task_id), task_id)

    async def read_log(self, operator: Operator, task_id: str, after: int, limit: int) -> Timeline:
        """The events of a task after seq `after`. Raises A2AError."""
        return await self._noted(operator, "tasks.log", self._inspector.log(task_id, after, limit), task_id)

    async def cancel_task(self, operator: Operator, task_id: str) -> Canceled:
        """Cancel a task, and wait until it has ended. Raises A2AError."""
        return await self._noted(operator, "tasks.cancel", self._cancel(task_id), task_id)

    async def cancel_tasks(self, operator: Operator, wanted: CancelRequest) -> CancelReport:
        """Cancel the tasks that fit, or only list them. Raises A2AError."""
        if wanted.empty:
            raise InvalidParams("filter", "is empty: name the tasks; older_than_s = 0 selects every open task")
        if wanted.state is not None and STATES_BY_WORD[wanted.state] in TERMINAL:
            raise InvalidParams("state", f"{wanted.state} is an end: choose one of {', '.join(OPEN)}")
        return await self._noted(operator, "tasks.cancel-many", self._cancel_many(operator, wanted))

    async def list_agents(self, operator: Operator, facts: ServerFacts) -> AgentLines:
        """The agents, with the numbers of their tasks. Raises A2AError."""
        return await self._noted(operator, "agents.list", self._overview.agents(facts))

    async def list_workers(self, operator: Operator, facts: ServerFacts) -> WorkerLines:
        """The agents that workers serve."""
        self._note(operator, "workers.list")
        return WorkerLines(workers=facts.workers())

    async def list_upstreams(self, operator: Operator, facts: ServerFacts) -> UpstreamLines:
        """The agents of other servers."""
        self._note(operator, "upstreams.list")
        return UpstreamLines(upstreams=facts.upstreams())

    async def list_replicas(self, operator: Operator) -> ReplicaLines:
        """The servers on the store. Raises A2AError."""
        return await self._noted(operator, "replicas.list", self._overview.replicas())

    async def show_stats(self, operator: Operator) -> Stats:
        """How much there is to do. Raises A2AError."""
        return await self._noted(operator, "stats.show", self._overview.stats())

    async def _cancel(self, task_id: str) -> Canceled:
        known = await self._store.head(task_id)
        if known is None:
            raise TaskNotFound(task_id)
        head = known[0]
        call = Call(
            operation=CancelTask(id=task_id),
            principal=Principal(head.owner),
            agent=head.agent,
            dialect=DIALECT,
            mount=head.mount,
        )
        record = await self._handler.call(call)
        assert isinstance(record, Record)
        return Canceled(id=task_id, state=SPELLED[record.state])  # type: ignore[arg-type]  # the words of StateWord

    async def _cancel_many(self, operator: Operator, wanted: CancelRequest) -> CancelReport:
        matched, more = await self._open_tasks(wanted)
        if wanted.dry_run:
            return CancelReport(dry_run=True, matched=matched, more=more)
        turn = asyncio.Semaphore(CANCELS_AT_ONCE)
        failed: list[CancelFailure] = []

        async def cancel(task: TaskLine) -> None:
            async with turn:
                try:
                    await self.cancel_task(operator, task.id)
                except A2AError as error:
                    failed.append(CancelFailure(id=task.id, reason=error.message))

        async with asyncio.TaskGroup() as group:
            for task in matched:
                group.create_task(cancel(task), name=f"cancel {task.id}")
        unended = {failure.id for failure in failed}
        canceled = tuple(task.id for task in matched if task.id not in unended)
        return CancelReport(dry_run=False, matched=matched, canceled=canceled, failed=tuple(failed), more=more)

    async def _open_tasks(self, wanted: CancelRequest) -> tuple[tuple[TaskLine, ...], bool]:
        """The open tasks that fit, and whether there are more of them than the limit."""
        found: list[TaskLine] = []
        values = {name: getattr(wanted, name) for name in TaskFilter.__struct_fields__}
        for state in OPEN if wanted.state is None else (wanted.state,):
            one_state, cursor = TaskFilter(**{**values, "state": state}), ""
            while len(found) <= wanted.limit:
                page = await self._inspector.list(one_state, 100, cursor)
                found += page.tasks
                cursor = page.next_cursor
                if not cursor:
                    break
        return tuple(found[: wanted.limit]), len(found) > wanted.limit

    async def _noted(self, operator: Operator, action: str, work: Awaitable[T], task_id: str = "") -> T:
        """Await `work`, and note what became of it. Raises A2AError."""
        reason = ""
        try:
            return await work
        except A2AError as error:
            reason = type(error).__name__
            raise
        except StoreError as error:
            reason = Unavailable.__name__
            raise Unavailable("the server's store cannot answer now: try again", 5) from error
        finally:
            self._note(operator, action, task_id, reason)

    def _note(self, operator: Operator, action: str, task_id: str = "", reason: str = "") -> None:
        self._trail.note(
            AuditEntry(
                at_ms=self._clock.now_ms(),
                principal=operator.principal,
                action=action,
                task_id=task_id,
                allowed=not reason,
                reason=reason,
                peer=operator.peer,
            )
        )
