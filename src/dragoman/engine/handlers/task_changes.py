"""TaskChanges: how an operator answers and cancels the tasks of everybody.

Invariant: a change is a call of the task's owner that carries the operator's name. So it goes the way of the owner's
own calls, on every replica, and the task's log tells who made it.
"""

import asyncio
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.engine.handler import Handler
from dragoman.engine.handlers.access import AccessNotes, Operator
from dragoman.engine.inspection import STATES_BY_WORD, Inspector, StateWord, TaskFilter, TaskLine
from dragoman.engine.overview import OPEN
from dragoman.model.errors import A2AError, InvalidParams, TaskNotFound
from dragoman.model.ids import new_id
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Call, CancelTask, SendMessage
from dragoman.model.principal import Principal
from dragoman.model.task import TERMINAL, Record
from dragoman.store.api import Store

DIALECT = "admin"
"""The dialect of the calls made here. No task is ever made here."""

CHANGES_AT_ONCE = 16
"""How many tasks one request changes at the same time; canceling one may take its agent's grace period."""

Reason = Annotated[str, Meta(max_length=1000)]

APPROVES, REFUSES = "yes", "no"
"""The words that every agent understands as the approval of a tool's call, and as its refusal."""


class AnswerPart(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of an answer, as in A2A 1.0 §4.1.6: exactly one of `text`, `raw` (base64), `url` and `data`."""

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: dict[str, Any] | None = None


class TaskAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a task that waits for its caller: `parts`, or `approve`, true or false, if it asks for approval.

    `reason` goes into the task's log, and after a refusal to the agent.
    """

    parts: tuple[AnswerPart, ...] = ()
    approve: bool | None = None
    reason: Reason = ""


class CancelReason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a task is canceled, for its log."""

    reason: Reason = ""


class CancelRequest(TaskFilter, frozen=True, kw_only=True):
    """Cancel the open tasks that fit, at most `limit`. With `dry_run` they are only listed."""

    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    reason: Reason = ""


class ChangedTask(Struct, frozen=True, kw_only=True):
    """A task after a change: its state, which it may have reached before."""

    id: str
    state: StateWord


class ChangeFailure(Struct, frozen=True, kw_only=True):
    """A task that could not be changed, and why."""

    id: str
    reason: str


class CancelReport(Struct, frozen=True, kw_only=True):
    """The outcome of canceling many tasks. `more`: tasks beyond the limit fit as well."""

    dry_run: bool
    matched: tuple[TaskLine, ...]
    canceled: tuple[str, ...] = ()
    failed: tuple[ChangeFailure, ...] = ()
    more: bool = False


class TaskChanges:
    """Changes tasks. `handler` is the engine, without admission: an operator has no quota."""

    def __init__(self, handler: Handler, store: Store, inspector: Inspector, notes: AccessNotes) -> None:
        self._handler = handler
        self._store = store
        self._inspector = inspector
        self._notes = notes

    async def answer(self, operator: Operator, task_id: str, answer: TaskAnswer) -> ChangedTask:
        """Answer a task that is input-required or auth-required. Returns it as it goes on. Raises A2AError."""
        work = self._answer(operator, task_id, answer)
        return await self._notes.noted(operator, "tasks.answer", work, task_id=task_id)

    async def cancel(self, operator: Operator, task_id: str, reason: str = "") -> ChangedTask:
        """Cancel a task, and wait until it has ended. Raises A2AError."""
        work = self._call(operator, task_id, CancelTask(id=task_id), reason)
        return await self._notes.noted(operator, "tasks.cancel", work, task_id=task_id)

    async def cancel_many(self, operator: Operator, wanted: CancelRequest) -> CancelReport:
        """Cancel the tasks that fit, or only list them. Raises A2AError."""
        if wanted.empty:
            raise InvalidParams("filter", "is empty: name the tasks; older_than_s = 0 selects every open task")
        if wanted.state is not None and STATES_BY_WORD[wanted.state] in TERMINAL:
            raise InvalidParams("state", f"{wanted.state} is an end: choose one of {', '.join(OPEN)}")
        return await self._notes.noted(operator, "tasks.cancel-many", self._cancel_many(operator, wanted))

    async def _answer(self, operator: Operator, task_id: str, answer: TaskAnswer) -> ChangedTask:
        message = Message(message_id=new_id(), role=Role.USER, task_id=task_id, parts=_parts(answer))
        send = SendMessage(message=message, return_immediately=True, history_length=0)
        return await self._call(operator, task_id, send, answer.reason)

    async def _call(
        self, operator: Operator, task_id: str, operation: SendMessage | CancelTask, reason: str
    ) -> ChangedTask:
        known = await self._store.head(task_id)
        if known is None:
            raise TaskNotFound(task_id)
        head = known[0]
        call = Call(
            operation=operation,
            principal=Principal(head.owner),
            agent=head.agent,
            dialect=DIALECT,
            mount=head.mount,
            operator=operator.principal,
            reason=reason,
        )
        record = await self._handler.call(call)
        assert isinstance(record, Record)
        return ChangedTask(id=task_id, state=SPELLED[record.state])  # type: ignore[arg-type]  # the words of StateWord

    async def _cancel_many(self, operator: Operator, wanted: CancelRequest) -> CancelReport:
        matched, more = await self._open_tasks(wanted)
        if wanted.dry_run:
            return CancelReport(dry_run=True, matched=matched, more=more)
        turn = asyncio.Semaphore(CHANGES_AT_ONCE)
        failed: list[ChangeFailure] = []

        async def cancel(task: TaskLine) -> None:
            async with turn:
                try:
                    await self.cancel(operator, task.id, wanted.reason)
                except A2AError as error:
                    failed.append(ChangeFailure(id=task.id, reason=error.message))

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


def _parts(answer: TaskAnswer) -> tuple[Part, ...]:
    """The parts of the message. Raises InvalidParams."""
    if answer.approve is not None:
        if answer.parts:
            raise InvalidParams("approve", "goes without parts: say one or the other")
        refuses = f"{REFUSES}: {answer.reason}" if answer.reason else REFUSES
        return (Part(text=APPROVES if answer.approve else refuses),)
    if not answer.parts:
        raise InvalidParams("parts", "must have at least one part, or say approve")
    return tuple(_part(number, part) for number, part in enumerate(answer.parts))


def _part(number: int, part: AnswerPart) -> Part:
    contents = (part.text, part.raw, part.url)
    if sum(content is not None for content in contents) + (part.data is not UNSET) != 1:
        raise InvalidParams(f"parts[{number}]", "must have exactly one of text, raw, url and data")
    return Part(
        text=part.text,
        raw=part.raw,
        url=part.url,
        data=part.data,
        filename=part.filename,
        media_type=part.media_type,
        metadata=part.metadata,
    )
