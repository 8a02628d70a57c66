"""Deletes all data of a principal: its open tasks are canceled, all tasks go, then what names it.

Invariant: each step is short and may be repeated, and the steps come in an order in which a deletion that was cut off
finds what is left. The name goes last from the rows by which a repetition finds the others. No call of the principal is
admitted from before the first step until after the last one (`engine.erasures`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec.structs import replace

from dragoman.admin.principals import HeldData, PrincipalDeletion, PrincipalReport
from dragoman.admin.tasks import ChangeFailure
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.key_beginnings import open_tasks
from dragoman.engine.admin.task_batches import change_each
from dragoman.engine.erasures import SETTLED_MS, Erasure, Erasures
from dragoman.engine.key_stops import KeyStops
from dragoman.model.errors import TaskNotCancelable, TaskNotFound, UnsupportedOperation
from dragoman.model.principal import KEY_PREFIX
from dragoman.store.api import ListQuery, Store
from dragoman.store.principals import key_name
from dragoman.store.retention import BATCH_TASKS
from dragoman.store.shared import CONSOLE_SESSIONS

TURN_S = 10.0
"""How long a request works before it answers that there is more to do. Clients wait a minute for an answer."""

CANCELED_AT_A_TIME = 20
"""Tasks that are canceled before the time is looked at."""

REASON = "all data of its caller is deleted"


class TaskRemovals(Protocol):
    """Ends and deletes tasks of anybody."""

    async def cancel(self, operator: Operator, task_id: str, reason: str) -> object:
        """Cancel a task, and wait until it has ended. Raises A2AError."""
        ...

    async def delete_ended(self, task_ids: Collection[str]) -> Sequence[str]:
        """Delete those of the tasks that have ended, with their files. Returns their ids. Raises StoreError."""
        ...


class PrincipalEraser:
    """Deletes the data of principals. `alone`: no server has the store open, so that there is nothing to wait for."""

    def __init__(
        self, store: Store, tasks: TaskRemovals, erasures: Erasures, stops: KeyStops, *, alone: bool = False
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._erasures = erasures
        self._stops = stops
        self._settled_ms = 0 if alone else SETTLED_MS

    async def delete(self, asked: Asked[PrincipalDeletion]) -> PrincipalReport:
        """Delete as much as there is time for, or count what there is. Raises A2AError or StoreError."""
        wanted, operator = asked.given, asked.operator
        principal = wanted.principal
        held = await held_data(self._store, principal)
        report = PrincipalReport(principal=principal, dry_run=wanted.dry_run, held=held)
        if wanted.dry_run:
            return report
        request = await self._erasures.find_request(principal)
        _check(wanted, operator, held)
        if request is None and held.empty:
            return report
        request = await self._erasures.begin(principal)
        await self._erasures.refresh()
        await self._settle(request)
        ends_s = asyncio.get_running_loop().time() + TURN_S
        try:
            return await self._work(operator, wanted, replace(report, alias=request.alias), ends_s)
        except UnsupportedOperation:  # a task is open, so the principal may go on
            await self._let_in(principal)
            raise

    async def _settle(self, request: Erasure) -> None:
        """Wait until every replica keeps the principal out, and has written what it had gathered."""
        left_ms = request.asked_ms + self._settled_ms - self._store.clock.now_ms()
        await asyncio.sleep(max(0, min(left_ms, self._settled_ms)) / 1000)

    async def _work(
        self, operator: Operator, wanted: PrincipalDeletion, report: PrincipalReport, ends_s: float
    ) -> PrincipalReport:
        principal, deleted, loop = wanted.principal, 0, asyncio.get_running_loop()
        if not wanted.cancel_open:
            _check(wanted, operator, await held_data(self._store, principal))  # others may have come meanwhile
        while wanted.cancel_open and (open_ids := await self._some_open(principal)):
            if failed := await self._cancel(operator, open_ids):
                await self._let_in(principal)
                return replace(report, alias="", failed=failed)
            if loop.time() > ends_s:
                return replace(report, more=True)
        async for count in self._steps(principal, report.alias):
            deleted += count
            if loop.time() > ends_s:
                return replace(report, tasks=deleted, more=True)
        await self._let_in(principal)
        return replace(report, tasks=deleted)

    async def _let_in(self, principal: str) -> None:
        await self._erasures.end(principal)
        await self._erasures.refresh()

    async def _steps(self, principal: str, alias: str) -> AsyncIterator[int]:
        """Each step yields how many tasks it has deleted."""
        query = ListQuery(owner=principal, agent=None, limit=BATCH_TASKS)
        while rows := (await self._store.list_rows(query)).rows:
            deleted = await self._tasks.delete_ended([row.head.id for row in rows])
            if not deleted:
                raise UnsupportedOperation(f"tasks go on, such as {rows[0].head.id}: repeat the deletion")
            yield len(deleted)
        rows_of, state = self._store.principals, self._store.state
        await state.end_scopes(principal)
        async for _ in _repeat(state.sweep):
            yield 0
        async for _ in _repeat(lambda: rows_of.forget(principal)):
            yield 0
        await self._forget_entries(principal, alias)
        async for _ in _repeat(lambda: rows_of.rename(principal, alias, self._store.clock.now_ms())):
            yield 0

    async def _forget_entries(self, principal: str, alias: str) -> None:
        """End the sessions of the console, and leave no name in requests to stop keys."""
        spelled = msgspec.json.encode(principal)
        for entry in await self._store.shared.scan(CONSOLE_SESSIONS):
            if spelled in entry.value:
                await self._store.shared.delete(entry.key)
        await self._stops.forget(principal, alias)

    async def _some_open(self, principal: str) -> list[str]:
        """The ids of some tasks that have not ended; none if there are none."""
        found: list[str] = []
        async for row in open_tasks(self._store, principal):
            found.append(row.head.id)
            if len(found) == CANCELED_AT_A_TIME:
                break
        return found

    async def _cancel(self, operator: Operator, task_ids: Sequence[str]) -> tuple[ChangeFailure, ...]:
        """Cancel tasks. Returns those that go on."""

        async def cancel(task_id: str) -> None:
            with suppress(TaskNotCancelable, TaskNotFound):  # it has just ended by itself
                await self._tasks.cancel(operator, task_id, REASON)

        return await change_each(task_ids, cancel)


async def held_data(store: Store, principal: str) -> HeldData:
    """How much there is of a principal. Raises StoreError."""
    return HeldData(**msgspec.structs.asdict(await store.principals.count(principal)))


def hint(principal: str) -> str:
    """How to find the name of a principal that has nothing, for a message."""
    named = "" if key_name(principal) is not None else f", the caller of a key is {KEY_PREFIX}NAME"
    return f"nothing is kept of {principal[:100]!r}: `dragoman admin usage` and `dragoman audit` name principals{named}"


async def _repeat(step: Callable[[], Awaitable[int]]) -> AsyncIterator[int]:
    """Repeat a short batch until nothing is left."""
    while changed := await step():
        yield changed


def _check(wanted: PrincipalDeletion, operator: Operator, held: HeldData) -> None:
    """Raises UnsupportedOperation if the data may not be deleted now."""
    if wanted.principal == operator.principal:
        raise UnsupportedOperation("these are your own keys and tasks: let another operator delete them")
    if held.open_tasks and not wanted.cancel_open:
        count = f"{held.open_tasks} open task{'' if held.open_tasks == 1 else 's'}"
        raise UnsupportedOperation(f"{wanted.principal[:100]} has {count}: let them end, or set cancel_open")
