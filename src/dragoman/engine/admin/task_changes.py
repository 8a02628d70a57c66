"""TaskChanges: how an operator answers, cancels, deletes and sends again the tasks of everybody.

Invariant: an answer and a cancel are calls of the task's owner that carry the operator's name. So they go the way of
the owner's own calls, on every replica, and the task's log tells who made them. A task that is sent again becomes a new
task of the operator. Only tasks that have ended are deleted.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from dragoman.admin.bulk import BulkRequest
from dragoman.admin.tasks import (
    ENDS,
    LIST_TASKS,
    OPEN,
    AnswerPart,
    CancelReport,
    CancelRequest,
    ChangedTask,
    ChangeFailure,
    DeletedTask,
    DeleteReport,
    DeleteRequest,
    SentAgain,
    StateWord,
    TaskAnswer,
    TaskFilter,
    TaskLine,
    TaskQuery,
    state_word,
)
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.folded_places import LOG_BYTES
from dragoman.engine.admin.inspection import SEARCHED, Inspector
from dragoman.engine.admin.playback import find_head
from dragoman.engine.admin.task_batches import change_each
from dragoman.engine.handler import Handler
from dragoman.engine.operated_tasks import OperatedTasks
from dragoman.model.errors import InvalidParams, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from dragoman.model.events import Intervened, MessageReceived, StatusChanged
from dragoman.model.ids import new_id
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Call, CancelTask, Manners, SendMessage
from dragoman.model.principal import Principal
from dragoman.model.task import TERMINAL, Record, TaskState
from dragoman.store.api import Store

DIALECT = "admin"
"""The dialect of calls that make no task."""

NEW_DIALECT = "1.0"
"""The dialect of a task that is sent again, whatever its first caller spoke."""

PAGE = 200
"""How many tasks are read at once when all are looked for that fit."""

APPROVES, REFUSES = "yes", "no"
"""The words that every agent understands as the approval of a tool's call, and as its refusal."""


class TaskChanges:
    """Changes tasks, by calls to the `handler`, which has no admission, since operators have no quota.

    A change of one task that a change of others consists of has an entry of its own in the audit trail.
    """

    def __init__(
        self, handler: Handler, operated: OperatedTasks, store: Store, inspector: Inspector, notes: AccessNotes
    ) -> None:
        self._handler = handler
        self._operated = operated
        self._store = store
        self._inspector = inspector
        self._notes = notes

    async def answer(self, operator: Operator, task_id: str, answer: TaskAnswer) -> ChangedTask:
        """Answer a task that is input-required or auth-required. Returns it as it goes on.

        Raises A2AError, whose text says who has answered the question if somebody was quicker.
        """
        message = Message(message_id=new_id(), role=Role.USER, task_id=task_id, parts=_parts(answer))
        send = SendMessage(message=message, return_immediately=True, history_length=0, answers=answer.question)
        try:
            return await self._call(operator, task_id, send, answer.reason)
        except UnsupportedOperation:
            quicker = await self._find_answer(task_id, answer.question) if answer.question else ""
            if not quicker:
                raise
            raise UnsupportedOperation(f"task {task_id}: {quicker}") from None

    async def _find_answer(self, task_id: str, question: str) -> str:
        """Say who has answered a question, or how its task has gone on without; empty if its log does not tell."""
        asked, by, after = False, "", 0
        while page := await self._store.read(task_id, after, LOG_BYTES):
            after = page[-1].seq
            for logged in page:
                match logged.event:
                    case StatusChanged(message=message) if message is not None and message.message_id == question:
                        asked, by = True, ""
                    case Intervened(operator=operator, action="answer") if asked:
                        by = operator
                    case MessageReceived(timestamp=at) if asked:
                        return f"{by or 'its caller'} has answered this question already, at {at}"
                    case StatusChanged(state=state, timestamp=at) if asked:
                        return f"the question needs no answer any more: the task is {SPELLED[state]} since {at}"
        return ""

    async def send_again(self, operator: Operator, task_id: str) -> SentAgain:
        """Send the first message of a task to its agent again, as a new task of the operator. Raises A2AError."""
        head, message = await self._operated.request(task_id)
        send = SendMessage(
            message=replace(message, message_id=new_id(), task_id=None, context_id=None),
            return_immediately=True,
            history_length=0,
            accepted_output_modes=head.accepted_output_modes,
            metadata=head.metadata,
            skill=head.skill,
            skills=head.skills,
            earlier=head.earlier,
        )
        call = Call(
            operation=send,
            principal=Principal(operator.principal, key=operator.key, team=operator.team),
            agent=head.agent,
            dialect=NEW_DIALECT,
            mount=head.mount,
            manners=Manners(answers_with_message=False),
            extensions=head.extensions,
        )
        record = await self._handler.call(call)
        assert isinstance(record, Record)
        return SentAgain(id=record.head.id, state=state_word(record.state))

    async def cancel(self, operator: Operator, task_id: str, reason: str = "") -> ChangedTask:
        """Cancel a task, and wait until it has ended. Raises A2AError."""
        return await self._call(operator, task_id, CancelTask(id=task_id), reason)

    async def cancel_many(self, operator: Operator, wanted: CancelRequest) -> CancelReport:
        """Cancel the tasks that fit, or only list them. Raises A2AError."""
        matched, more = await self._matching(wanted, OPEN, wanted.limit)
        if wanted.dry_run:
            return CancelReport(dry_run=True, matched=matched, more=more)
        canceled, failed = await self._each(matched, lambda each: self._noted_cancel(operator, each, wanted.reason))
        return CancelReport(dry_run=False, matched=matched, canceled=canceled, failed=failed, more=more)

    async def delete(self, operator: Operator, task_id: str, *, force: bool = False) -> DeletedTask:
        """Delete a task that has ended. With `force` an open one is canceled first. Raises A2AError."""
        _, _, state = await find_head(self._store, task_id)
        if state not in TERMINAL:
            if not force:
                raise still_open(task_id, state)
            with suppress(TaskNotCancelable):  # it has just ended by itself
                await self._noted_cancel(operator, task_id, "to be deleted")
        if not await self._operated.delete((task_id,)):
            raise TaskNotFound(task_id)  # somebody else has deleted it meanwhile
        return DeletedTask(id=task_id)

    async def delete_ended(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """Delete those of the tasks that have ended, without entries of their own. Returns their ids."""
        return await self._operated.delete(task_ids)

    async def delete_many(self, operator: Operator, wanted: DeleteRequest) -> DeleteReport:
        """Delete the tasks that fit, or only list them. Raises A2AError."""
        states = (*OPEN, *ENDS) if wanted.force else ENDS
        matched, more = await self._matching(wanted, states, wanted.limit)
        if wanted.dry_run:
            return DeleteReport(dry_run=True, matched=matched, more=more)
        deleted, failed = await self._each(matched, lambda each: self._noted_delete(operator, each, force=wanted.force))
        return DeleteReport(dry_run=False, matched=matched, deleted=deleted, failed=failed, more=more)

    async def _noted_cancel(self, operator: Operator, task_id: str, reason: str) -> ChangedTask:
        work = self.cancel(operator, task_id, reason)
        return await self._notes.noted(operator, "tasks.cancel", work, task_id=task_id)

    async def _noted_delete(self, operator: Operator, task_id: str, *, force: bool) -> DeletedTask:
        work = self.delete(operator, task_id, force=force)
        return await self._notes.noted(operator, "tasks.delete", work, task_id=task_id)

    async def _call(
        self, operator: Operator, task_id: str, operation: SendMessage | CancelTask, reason: str
    ) -> ChangedTask:
        head = (await find_head(self._store, task_id))[0]
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
        return ChangedTask(id=task_id, state=state_word(record.state))

    async def _each(
        self, tasks: Sequence[TaskLine], change: Callable[[str], Awaitable[object]]
    ) -> tuple[tuple[str, ...], tuple[ChangeFailure, ...]]:
        """Change tasks. Returns the ids of those that were changed, and those that could not be."""
        failed = await change_each([task.id for task in tasks], change)
        left = {failure.id for failure in failed}
        return tuple(task.id for task in tasks if task.id not in left), failed

    async def act(self, operator: Operator, wanted: BulkRequest, task_id: str) -> bool:
        """Carry out a bulk act on one task, without an entry of its own in the audit trail.

        Returns False if the task is gone, or its state does not fit any more. Raises A2AError, StoreError or
        OutcomeUnknown.
        """
        known = await self._store.head(task_id)
        if known is None or state_word(known[2]) not in wanted.states:
            return False
        match wanted.action:
            case "cancel":
                try:
                    await self.cancel(operator, task_id, wanted.reason)
                except TaskNotCancelable:  # it has just ended by itself
                    return False
                return True
            case "delete":
                if known[2] not in TERMINAL:
                    with suppress(TaskNotCancelable):
                        await self.cancel(operator, task_id, wanted.reason or "to be deleted")
                return bool(await self._operated.delete((task_id,)))
            case "send-again":
                await self.send_again(operator, task_id)
                return True

    async def match(
        self, wanted: TaskFilter, states: Sequence[StateWord]
    ) -> AsyncGenerator[tuple[TaskLine, ...], None]:
        """The tasks in these states that fit, page by page, as long as somebody reads on.

        A page may be empty, and a task whose state changes meanwhile may come twice. Raises InvalidParams, StoreError.
        """
        values: dict[str, Any] = {name: getattr(wanted, name) for name in TaskFilter.__struct_fields__}
        looked = any(values[name] is not None for name in SEARCHED)  # then one look at all is enough
        for state in (wanted.state,) if looked or wanted.state is not None else states:
            query: TaskQuery | None = TaskQuery(**values | {"state": state}, limit=PAGE)
            while query is not None:
                page = await self._inspector.list(query)
                yield tuple(line for line in page.tasks if line.state in states)
                query = LIST_TASKS.next_page(query, page)

    async def _matching(
        self, wanted: TaskFilter, states: Sequence[StateWord], limit: int
    ) -> tuple[tuple[TaskLine, ...], bool]:
        """The tasks in these states that fit, and whether there are more of them than the limit."""
        found: dict[str, TaskLine] = {}
        async with aclosing(self.match(wanted, states)) as pages:
            async for page in pages:
                for line in page:
                    if line.id not in found and len(found) == limit:
                        return tuple(found.values()), True
                    found[line.id] = line
        return tuple(found.values()), False


def still_open(task_id: str, state: TaskState) -> UnsupportedOperation:
    """Build the refusal to delete a task that has not ended."""
    return UnsupportedOperation(f"task {task_id} is {SPELLED[state]}: cancel it before, or set force")


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
