"""Sends a handful of messages to one endpoint, and records what becomes of them.

Invariant: at most five messages are sent. The task that is not waited for is canceled. No webhook is registered unless
the caller asks for it, and one that was accepted is deleted again.
"""

import asyncio
import time
from collections.abc import Awaitable
from contextlib import aclosing
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client import Connection, Message, NoAnswer, PeerError, PushConfig, Task
from dragoman.client.conversation import make_message
from dragoman.doctor.observation import Attempt, AttemptOutcome
from dragoman.model.errors import A2AError
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetTask,
    ListTasks,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.task import TaskState
from dragoman.model.updates import TaskList

TEXT = "Hello"
"""The text of the messages, unless the user gives another."""

ATTEMPT_S = 10.0
"""How long one attempt may take. An agent that works for longer is not measured."""

TOO_SLOW = f"no answer within {ATTEMPT_S:g} s"
"""The failure of an attempt that took longer."""

OWN_HOOK = "http://127.0.0.1:9/"
"""A webhook at the agent's own machine, at a port where nobody listens (RFC 863)."""

END_S = 3.0
"""How long a task that has begun may still run before it is read last."""

POLL_S = 0.2
"""How often it is read meanwhile."""

EVENTS_MAX = 200
"""A stream that has more updates is left there."""

_RUNNING = frozenset({TaskState.SUBMITTED.value, TaskState.WORKING.value})
_TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})


EVERY = "every"
"""The word for all interfaces of a card."""


class Wish(Struct, frozen=True, kw_only=True):
    """The permission of the user: the text to send, and whether webhooks are tried.

    `interface` names the interface of the card to which messages go: its binding, with or without a version, its URL,
    or `EVERY`. Empty: the one that the other client commands would use.
    """

    text: str = TEXT
    webhooks: bool = False
    interface: str = ""


class Trial:
    """The attempts at one endpoint. `outcomes` has those that were made, in their order."""

    def __init__(self, connection: Connection, other: Connection | None, wish: Wish, *, streams: bool) -> None:
        self.outcomes: dict[Attempt, AttemptOutcome] = {}
        self._connection = connection
        self._other = other
        self._wish = wish
        self._streams = streams

    async def run(self) -> None:
        """Make all attempts, one after the other; those that need a task only if there is one."""
        message_id = str(uuid4())
        first = await self._call(Attempt.SEND, self._send(message_id=message_id))
        slow = first.failure == TOO_SLOW
        if first.error or (first.failure and not slow):
            return
        if not slow:
            await self._call(Attempt.REPEAT, self._send(message_id=message_id))
            if self._streams:
                await self._stream()
        await self._call(Attempt.SEND_TO_UNKNOWN, self._send(task_id=str(uuid4())))
        begun = await self._call(Attempt.BEGIN, self._send(immediately=True))
        try:
            now = await self._read(task) if (task := first if first.task_id else begun).task_id else task
        finally:
            if begun.task_id and not begun.ended:
                await self._call(Attempt.CANCEL, CancelTask(id=begun.task_id))
        if now.ended:
            await self._call(Attempt.CANCEL_ENDED, CancelTask(id=now.task_id))
            if self._streams:
                await self._record(Attempt.SUBSCRIBE_ENDED, self._events(Subscribe(id=now.task_id)))

    async def _read(self, task: AttemptOutcome) -> AttemptOutcome:
        """Read a task in every way, and return it as it was when it was read last."""
        now = await self._call(Attempt.GET, GetTask(id=task.task_id))
        until_s = time.monotonic() + END_S
        while now.state in _RUNNING and time.monotonic() < until_s:
            await asyncio.sleep(POLL_S)
            now = await self._call(Attempt.GET, GetTask(id=task.task_id))
        await self._call(Attempt.LIST, ListTasks(context_id=task.context_id, page_size=50))
        if self._other is not None:
            await self._record(Attempt.FOREIGN, self._ask(self._other, GetTask(id=task.task_id)))
        if self._wish.webhooks:
            await self._try_webhook(task.task_id)
        return now

    async def _stream(self) -> None:
        operation = StreamMessage(message=make_message(self._wish.text))
        came = await self._record(Attempt.STREAM, self._events(operation))
        if came.task_id and len(came.event_ids) > 1 and came.event_ids[0]:
            resumed = self._events(Subscribe(id=came.task_id), after=came.event_ids[0])
            await self._record(Attempt.RESUME, resumed)

    async def _try_webhook(self, task_id: str) -> None:
        hook_id = str(uuid4())
        config = PushConfig(id=hook_id, task_id=task_id, url=OWN_HOOK)
        came = await self._call(Attempt.WEBHOOK, CreatePushConfig(config=config))
        if not came.error and not came.failure:
            await self._attempt(
                self._ask(self._connection, DeletePushConfig(task_id=task_id, id=came.task_id or hook_id))
            )

    def _send(
        self, *, message_id: str | None = None, task_id: str | None = None, immediately: bool = False
    ) -> Operation:
        message = make_message(self._wish.text, message_id=message_id, task_id=task_id)
        return SendMessage(message=message, return_immediately=immediately)

    async def _call(self, attempt: Attempt, operation: Operation) -> AttemptOutcome:
        return await self._record(attempt, self._ask(self._connection, operation))

    async def _record(self, attempt: Attempt, work: Awaitable[AttemptOutcome]) -> AttemptOutcome:
        self.outcomes[attempt] = came = await self._attempt(work)
        return came

    async def _attempt(self, work: Awaitable[AttemptOutcome]) -> AttemptOutcome:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(ATTEMPT_S):
                came = await work
        except A2AError as error:
            came = AttemptOutcome(error=type(error).__name__)
        except TimeoutError:
            came = AttemptOutcome(failure=TOO_SLOW)
        except (PeerError, NoAnswer) as error:
            came = AttemptOutcome(failure=str(error).removeprefix(f"{getattr(error, 'url', '')}: "))
        return replace(came, elapsed_ms=(time.monotonic() - began_s) * 1000)

    async def _ask(self, connection: Connection, operation: Operation) -> AttemptOutcome:
        """Make a call. One that sends no message is made once more if its connection broke: some servers close theirs
        after an answer of 500.
        """
        try:
            answer = await connection.ask(operation)
        except NoAnswer:
            if isinstance(operation, SendMessage):
                raise
            answer = await connection.ask(operation)
        return _outcome(answer)

    async def _events(self, operation: StreamMessage | Subscribe, after: str | None = None) -> AttemptOutcome:
        began_s = time.monotonic()
        kinds: list[str] = []
        ids: list[str] = []
        came, first_ms = AttemptOutcome(), 0.0
        async with aclosing(self._connection.events(operation, after=after)) as batches:
            async for batch in batches:
                first_ms = first_ms or (time.monotonic() - began_s) * 1000
                for event_id, update in batch:
                    kinds.append(type(update).__name__)
                    ids.append(event_id)
                    came = _merge(came, _outcome(update))
                if len(kinds) > EVENTS_MAX:
                    break
        return replace(came, events=tuple(kinds), event_ids=tuple(ids), first_ms=first_ms)


def _outcome(value: object) -> AttemptOutcome:
    kind = type(value).__name__
    match value:
        case TaskList():
            return AttemptOutcome(kind=kind, listed=tuple(task.id for task in value.tasks))
        case Message():
            return AttemptOutcome(kind=kind, task_id="", context_id=value.context_id or "")
        case PushConfig():
            return AttemptOutcome(kind=kind, task_id=value.id)
        case Task():
            task_id, context_id = value.id, value.context_id
        case _:
            task_id, context_id = getattr(value, "task_id", "") or "", getattr(value, "context_id", "") or ""
    status = getattr(value, "status", None)
    state = getattr(status, "state", None)
    return AttemptOutcome(
        kind=kind,
        task_id=task_id,
        context_id=context_id,
        state="" if state is None else state.value,
        ended=state in _TERMINAL,
    )


def _merge(before: AttemptOutcome, update: AttemptOutcome) -> AttemptOutcome:
    """Return the outcome of a stream after one more update; an artifact has no state."""
    state, ended = (update.state, update.ended) if update.state else (before.state, before.ended)
    return replace(
        before,
        kind=before.kind or update.kind,
        task_id=before.task_id or update.task_id,
        context_id=before.context_id or update.context_id,
        state=state,
        ended=ended,
    )
