"""Sends a handful of messages to one endpoint, and records what becomes of them.

Invariant: at most six messages are sent, and a seventh with a webhook. Whatever they began is canceled, unless it has
ended. No webhook is registered unless the caller asks for it, and one at the agent's own machine is deleted again.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client import Connection, Message, NoAnswer, PeerError, PushConfig, Task
from dragoman.client.conversation import make_message
from dragoman.client.errors import is_untaken
from dragoman.doctor.observation import Attempt, AttemptOutcome
from dragoman.doctor.tape import Tape
from dragoman.doctor.webhook import ProbeWebhook
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

READS_MAX = 3
"""How often a task that is not found is asked for again: another replica may have it."""

LAST_S = 2.0
"""How long a stream may stay open after its task has ended."""

CALLED_S = 5.0
"""How long the call of a webhook is waited for."""

REFUSED_S = 2.0
"""How long a server is left alone that is asked too much and does not say for how long."""

EVENTS_MAX = 200
"""A stream that has more updates is left there."""

_RUNNING = frozenset({TaskState.SUBMITTED.value, TaskState.WORKING.value})
_WAITING = frozenset({TaskState.INPUT_REQUIRED.value, TaskState.AUTH_REQUIRED.value})
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
    """The attempts at one endpoint. `outcomes` has those that were made, in their order.

    `tape` keeps what `connection` sends and receives. An `official` endpoint speaks a version of A2A, and no vendor's
    dialect. `webhook` is where the agent can call this tool, None if nowhere.
    """

    def __init__(
        self,
        connection: Connection,
        other: Connection | None,
        tape: Tape,
        wish: Wish,
        *,
        streams: bool,
        subscribes: bool = True,
        official: bool = True,
        webhook: ProbeWebhook | None = None,
    ) -> None:
        self.outcomes: dict[Attempt, AttemptOutcome] = {}
        self._connection = connection
        self._other = other
        self._tape = tape
        self._wish = wish
        self._streams = streams
        self._subscribes = subscribes
        self._official = official
        self._webhook = webhook
        self._begun: dict[str, bool] = {}
        """The tasks that were begun, each with whether it has ended."""
        self._unheard: set[str] = set()
        """The ids of messages that got no answer in time."""

    async def run(self) -> None:
        """Make all attempts, one after the other; those that need a task only if there is one."""
        message_id = str(uuid4())
        first = await self._say(Attempt.SEND, message_id=message_id)
        if first.error or (first.failure and not first.late):
            return
        if not first.late:
            await self._say(Attempt.REPEAT, message_id=message_id)
            if self._streams:
                await self._stream()
        context_id = first.context_id if self._streams else None  # the stream began a conversation of its own
        begun = await self._say(Attempt.BEGIN, context_id=context_id, immediately=True)
        if first.late and begun.late:
            return
        await self._say(Attempt.SEND_TO_UNKNOWN, task_id=str(uuid4()))
        now = await self._read(task) if (task := first if first.task_id else begun).task_id else task
        if begun.task_id and not begun.ended:
            if self._streams and self._subscribes:
                await self._subscribe(begun.task_id)
            await self._cancel(begun.task_id)
        if self._official:
            await self._page()
            if now.ended:
                await self._say(Attempt.SEND_TO_ENDED, task_id=task.task_id)
        if now.ended:
            await self._call(Attempt.CANCEL_ENDED, CancelTask(id=task.task_id))
            if self._streams:
                await self._record(Attempt.SUBSCRIBE_ENDED, self._events(Subscribe(id=task.task_id)))
        if self._webhook is not None:
            await self._await_call(self._webhook)

    async def end(self) -> None:
        """Cancel every task that was begun and has not ended; `LEFT` lists those that run on."""
        if self._unheard:
            await self._find_unheard()
        left = []
        for task_id in [each for each, ended in self._begun.items() if not ended]:
            came = await self._attempt(self._ask(self._connection, CancelTask(id=task_id)))
            if not (came.ended or came.error in ("TaskNotCancelable", "TaskNotFound")):
                came = await self._attempt(self._ask(self._connection, GetTask(id=task_id)))
                if not came.ended:
                    left.append(task_id)
        self.outcomes[Attempt.LEFT] = AttemptOutcome(kind="TaskList", listed=tuple(left))

    async def _find_unheard(self) -> None:
        """Find the tasks of messages that got no answer, by the history of the newest tasks."""
        try:
            async with asyncio.timeout(ATTEMPT_S):
                page = await self._connection.ask(ListTasks(page_size=20, history_length=20))
        except (A2AError, TimeoutError, PeerError, NoAnswer):
            return
        for task in page.tasks if isinstance(page, TaskList) else ():
            if task.id not in self._begun and any(each.message_id in self._unheard for each in task.history):
                self._begun[task.id] = task.status.state in _TERMINAL

    async def _read(self, task: AttemptOutcome) -> AttemptOutcome:
        """Read a task in every way, and return it as it was when it was read last."""
        now = await self._await_end(Attempt.GET, task.task_id)
        for _ in range(READS_MAX if now.error == "TaskNotFound" else 1):
            again = await self._call(Attempt.READ_AGAIN, GetTask(id=task.task_id, history_length=0))
            if again.task_id:
                break
        await self._call(Attempt.LIST, ListTasks(context_id=task.context_id, page_size=50))
        if self._other is not None:
            await self._record(Attempt.FOREIGN, self._ask(self._other, GetTask(id=task.task_id)))
        if self._wish.webhooks:
            await self._try_webhook(task.task_id)
        return now

    async def _page(self) -> None:
        """List tasks one by one, twice if the second page is the first: tasks may have moved meanwhile."""
        for _ in range(2):
            page = await self._call(Attempt.PAGE, ListTasks(page_size=1))
            if not page.next_page:
                return
            following = await self._call(Attempt.NEXT_PAGE, ListTasks(page_size=1, page_token=page.next_page))
            if following.listed != page.listed:
                return

    async def _await_end(self, attempt: Attempt, task_id: str) -> AttemptOutcome:
        now = await self._call(attempt, GetTask(id=task_id))
        until_s = _now_s() + END_S
        while now.state in _RUNNING and _now_s() < until_s:
            await asyncio.sleep(POLL_S)
            now = await self._call(attempt, GetTask(id=task_id))
        return now

    async def _subscribe(self, task_id: str) -> None:
        """Subscribe to a task at work. What came says nothing if the task has ended meanwhile."""
        came = await self._record(Attempt.SUBSCRIBE, self._events(Subscribe(id=task_id), enough=1))
        if came.error or came.failure:
            now = await self._attempt(self._ask(self._connection, GetTask(id=task_id)))
            if now.state not in _RUNNING:
                del self.outcomes[Attempt.SUBSCRIBE]

    async def _cancel(self, task_id: str) -> None:
        came = await self._call(Attempt.CANCEL, CancelTask(id=task_id))
        if not came.error and not came.failure:
            await self._await_end(Attempt.AFTER_CANCEL, task_id)

    async def _stream(self) -> None:
        operation = StreamMessage(message=make_message(self._wish.text))
        came = await self._record(Attempt.STREAM, self._events(operation))
        if came.task_id and len(came.event_ids) > 1 and came.event_ids[0]:
            rest = len(came.event_ids) - 1
            resumed = self._events(Subscribe(id=came.task_id), after=came.event_ids[0], enough=rest)
            await self._record(Attempt.RESUME, resumed)

    async def _try_webhook(self, task_id: str) -> None:
        hook_id = str(uuid4())
        config = PushConfig(id=hook_id, task_id=task_id, url=OWN_HOOK)
        came = await self._call(Attempt.WEBHOOK, CreatePushConfig(config=config))
        if not came.error and not came.failure:
            await self._attempt(
                self._ask(self._connection, DeletePushConfig(task_id=task_id, id=came.task_id or hook_id))
            )

    async def _await_call(self, webhook: ProbeWebhook) -> None:
        """Send a message with a webhook, and wait for its call."""
        config = PushConfig(id=str(uuid4()), url=webhook.url)
        message = make_message(self._wish.text)
        came = await self._call(Attempt.CALLED, SendMessage(message=message, push_config=config))
        if came.error or came.failure:
            return
        called = await webhook.wait(CALLED_S)
        self.outcomes[Attempt.CALLED] = replace(came, listed=("called",) if called else ())

    async def _say(
        self,
        attempt: Attempt,
        *,
        message_id: str | None = None,
        task_id: str | None = None,
        context_id: str | None = None,
        immediately: bool = False,
    ) -> AttemptOutcome:
        message = make_message(self._wish.text, message_id=message_id, task_id=task_id, context_id=context_id)
        came = await self._call(attempt, SendMessage(message=message, return_immediately=immediately))
        if came.late:
            self._unheard.add(message.message_id)
        return came

    async def _call(self, attempt: Attempt, operation: Operation) -> AttemptOutcome:
        return await self._record(attempt, self._ask(self._connection, operation))

    async def _record(self, attempt: Attempt, work: Coroutine[Any, Any, AttemptOutcome]) -> AttemptOutcome:
        self._tape.take()
        came = await self._attempt(work)
        self.outcomes[attempt] = came = replace(came, exchange=self._tape.take())
        if came.task_id and came.kind != "PushConfig" and attempt is not Attempt.FOREIGN:
            self._begun[came.task_id] = came.ended
        return came

    async def _attempt(self, work: Coroutine[Any, Any, AttemptOutcome]) -> AttemptOutcome:
        began_s = _now_s()
        try:
            async with asyncio.timeout(ATTEMPT_S):
                came = await work
        except A2AError as error:
            came = AttemptOutcome(error=type(error).__name__)
        except TimeoutError:
            came = AttemptOutcome(failure=TOO_SLOW)
        except (PeerError, NoAnswer) as error:
            came = AttemptOutcome(failure=_failure(error))
        return replace(came, elapsed_ms=(_now_s() - began_s) * 1000)

    async def _ask(self, connection: Connection, operation: Operation) -> AttemptOutcome:
        """Make a call. One that sends no message is made once more if its connection broke: some servers close theirs
        after an answer of 500. A call that was refused because there were too many is made once more.
        """
        try:
            answer = await connection.ask(operation)
        except NoAnswer:
            if isinstance(operation, SendMessage):
                raise
            answer = await connection.ask(operation)
        except (A2AError, PeerError) as error:
            if not is_untaken(error):
                raise
            await asyncio.sleep(REFUSED_S)
            answer = await connection.ask(operation)
        return _outcome(answer)

    async def _events(
        self, operation: StreamMessage | Subscribe, after: str | None = None, enough: int = EVENTS_MAX + 1
    ) -> AttemptOutcome:
        """Read a stream; one that was refused because there were too many is asked for once more."""
        try:
            return await self._read_events(operation, after, enough)
        except (A2AError, PeerError) as error:
            if not is_untaken(error):
                raise
            await asyncio.sleep(REFUSED_S)
            return await self._read_events(operation, after, enough)

    async def _read_events(
        self, operation: StreamMessage | Subscribe, after: str | None, enough: int
    ) -> AttemptOutcome:
        """Read a stream to its end, or for LAST_S after its task has ended or waits; at most until it was `enough`."""
        began_s = _now_s()
        kinds: list[str] = []
        ids: list[str] = []
        came, first_ms, last_ms, after_end, stays_open, broke = AttemptOutcome(), 0.0, 0.0, 0, False, ""
        async with aclosing(self._connection.events(operation, after=after)) as batches:
            ends_s: float | None = None
            while len(kinds) < enough:
                try:
                    async with asyncio.timeout_at(ends_s):
                        batch = await anext(batches, None)
                except TimeoutError:
                    if ends_s is None:
                        raise
                    stays_open = True
                    break
                except (A2AError, PeerError, NoAnswer) as error:
                    if not kinds:
                        raise
                    broke = _failure(error)
                    break
                if batch is None:
                    break
                last_ms = (_now_s() - began_s) * 1000
                first_ms = first_ms or last_ms
                for event_id, update in batch:
                    kinds.append(type(update).__name__)
                    ids.append(event_id)
                    after_end += came.ended or came.kind == "Message"
                    came = _merge(came, _outcome(update))
                if ends_s is None and (came.ended or came.kind == "Message" or came.state in _WAITING):
                    ends_s = _now_s() + LAST_S
        return replace(
            came,
            events=tuple(kinds),
            event_ids=tuple(ids),
            first_ms=first_ms,
            last_ms=last_ms,
            after_end=after_end,
            stays_open=stays_open,
            broke=broke,
        )


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _failure(error: Exception) -> str:
    return str(error).removeprefix(f"{getattr(error, 'url', '')}: ")


def _outcome(value: object) -> AttemptOutcome:
    kind = type(value).__name__
    match value:
        case TaskList():
            listed = tuple(task.id for task in value.tasks)
            return AttemptOutcome(kind=kind, listed=listed, next_page=value.next_page_token)
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
        history=len(getattr(value, "history", ())),
        ended=state in _TERMINAL,
    )


def _merge(before: AttemptOutcome, update: AttemptOutcome) -> AttemptOutcome:
    """Return the outcome of a stream after one more update; an artifact has no state, and the first end counts."""
    state, ended = (update.state, update.ended) if update.state and not before.ended else (before.state, before.ended)
    return replace(
        before,
        kind=before.kind or update.kind,
        task_id=before.task_id or update.task_id,
        context_id=before.context_id or update.context_id,
        state=state,
        ended=ended,
    )
