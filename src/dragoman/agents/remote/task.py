"""Joins one of our tasks to the task that an upstream makes of it: messages go there, updates come back.

Invariant: a resumed run continues with the upstream's task where it left off. A message is sent twice only to an
upstream that recognises it. A cancel before the upstream has named its task cancels that task, too: the stream is read
on until then, for a bounded time. Over chat completions, as KAOS does when a card offers no A2A or there is no card,
the whole conversation goes with each message, since the other side keeps none.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from dragoman.agents.remote import failures
from dragoman.agents.remote.admission import LOOK_AGAIN_S, UpstreamAdmission
from dragoman.agents.remote.failures import UNFOUND
from dragoman.agents.remote.ids import UpstreamIds
from dragoman.agents.remote.relay import Relay
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.agents.remote.standing import UpstreamStanding
from dragoman.client import Connection
from dragoman.client.errors import HttpRefusal, NoAnswer, NoToken, PeerError, StreamLost
from dragoman.client.stream import TaskStream
from dragoman.engine.api import Ended, Run
from dragoman.engine.upstream_notes import read_upstream_notes
from dragoman.model.errors import (
    A2AError,
    AgentOffline,
    Forbidden,
    InternalError,
    InvalidAgentResponse,
    MethodNotFound,
    TaskTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from dragoman.model.ids import timestamp_ms
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Subscribe
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update
from dragoman.net.errors import EgressError

log = logging.getLogger("dragoman.upstreams")

QUESTIONS = {
    TaskState.INPUT_REQUIRED: (Part(text="More input is needed."),),
    TaskState.AUTH_REQUIRED: (Part(text="Authentication is needed."),),
}
"""The question when an upstream sends only the state."""

_NO_CHAT = frozenset({401, 403, 429})
"""Statuses that do not mean that a server lacks A2A."""

_MOVES_MAX = 2
"""How often a message follows an agent whose card has moved its address."""

_NOT_INSTEAD = (InvalidAgentResponse, TaskTimeout, Unauthorized, Forbidden, TooManyRequests)
"""Errors after which chat completions are no way out: it may have worked, or lets nobody in."""

_FOR_NOW = (Unavailable, TooManyRequests, AgentOffline, InternalError)
"""Errors that may pass while the upstream's task is still there."""

HISTORY_MAX = 50
"""The most earlier messages of the conversation that go with one over chat completions."""

STOP_S = 5.0
"""Seconds that an upstream may take to name, or to cancel, a task that nobody here runs any more."""


class UpstreamTask:
    """The exchange between `run` and the upstream of `route`.

    `queues`: the task waits for an upstream that cannot be reached.
    """

    __slots__ = ("_admission", "_due", "_ids", "_moves", "_relay", "_resumptions", "_route", "_run", "_standing")

    def __init__(self, run: Run, route: UpstreamRoute, *, queues: bool) -> None:
        self._run = run
        self._route = route
        self._ids = UpstreamIds(run, route)
        self._admission = UpstreamAdmission(run, route, self._ids, queues=queues)
        self._relay = Relay(run, route.credentials, route.name)
        self._standing = UpstreamStanding(run, route.retrier.clock)
        self._due = False
        self._resumptions = 0
        self._moves = 0

    async def carry_out(self) -> None:
        """Have the upstream carry out the task. Raises Ended, unless it completed without a closing message."""
        try:
            status = await (self._begin() if self._run.epoch == 1 else self._resume())
            while status is not None and status.state in INTERRUPTED:
                status = await self._send(await self._ask(status))
            if status is not None:
                await self._end(status)
            elif self._relay.faults:
                raise self._completed(())
            self._standing.record()
        except Ended as ended:
            self._standing.record()
            parts = self._route.credentials.masking.parts(ended.parts)
            raise Ended(ended.state, parts, ended.reason, ended.retry_after_s) from ended
        except asyncio.CancelledError:
            if self._run.canceled and self._ids.task_id:
                self._standing.record_cancel(await self._route.cancel_task(self._ids.task_id))
            raise

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _begin(self) -> TaskStatus | None:
        return await self._send(self._run.message)

    async def _send(self, message: Message) -> TaskStatus | None:
        """Send a message, and pass on updates until the upstream's task ends or asks. None: a message answered it."""
        route = self._route
        while True:
            connection = await self._admission.connection()
            if connection is None:
                return await self._chat()
            operation = await self._ids.build_send(message, connection)
            self._due = True
            try:
                stream = connection.task_stream(
                    operation, traceparent=self._run.traceparent, on_link=self._standing.set_link
                )
                status = await self._follow(stream, connection)
            except (A2AError, NoAnswer, PeerError) as error:
                if (retry := await self._after_failure(error, connection)) is None:
                    continue
                if isinstance(retry, Ended):
                    raise retry from error
                return retry
            route.adopt_card()
            return status

    async def _after_failure(
        self, error: A2AError | NoAnswer | PeerError, spoken: Connection
    ) -> Ended | TaskStatus | None:
        """Decide what follows a failed send. None: send again; a status: how the task stands; Ended: to be raised."""
        route, admission, ids = self._route, self._admission, self._ids
        admission.record_failure(error)
        if isinstance(error, StreamLost) and ids.task_id:
            return await self._continue(lost=True)
        if isinstance(error, TaskTimeout) and error.task_id:
            self._record_task(error.task_id, "", self._standing.begin(()))
            return await self._continue()
        if isinstance(error, Unauthorized | Forbidden) and route.forwards:
            await admission.ask_for_credentials()
            return None
        unsaid = isinstance(error, NoToken) or (isinstance(error, NoAnswer) and not error.sent)
        if admission.queues and (unsaid or isinstance(error, Unavailable | AgentOffline | TooManyRequests)):
            await admission.wait(failures.asked_s(error))
            return None
        refused = isinstance(error, HttpRefusal) and error.status not in _NO_CHAT
        gone = refused or isinstance(error, MethodNotFound) or failures.not_there(error)
        if gone:
            before = spoken.interface
            if self._moves < _MOVES_MAX and await admission.refresh_card() and spoken.interface != before:
                self._moves += 1
                return None
        chats = gone or (spoken.tongue.chats and isinstance(error, A2AError) and not isinstance(error, _NOT_INSTEAD))
        chats = chats and route.over_http
        if chats and ids.number == 1 and not ids.task_id and (said := await self._chat_instead()) is not None:
            return said
        untouched = self._run.epoch == 1 and ids.number == 1 and not ids.task_id
        return failures.ending(route.name, error, route.retry_s if untouched else None)

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def _follow(self, stream: TaskStream, connection: Connection) -> TaskStatus | None:
        """Pass on a stream to its end, and return how the task stands then. None: the answer was a message."""
        route, relay, fold, asked_s = self._route, self._relay, stream.fold, time.monotonic()
        relay.deltas = connection.tongue.deltas
        self._resumptions = stream.resumptions
        batches = stream.batches()
        if self._ids.task_id:
            first = await anext(batches, None)
        else:
            first = await _read_first(batches, stream, connection, self._run, route)
        async with aclosing(batches):
            if first is not None:
                route.record_answer()
                route.count("succeeded", time.monotonic() - asked_s)
                self._run.working()
                if self._due:
                    self._note_taken()
                await self._pass_on(first, stream)
            async for batch in batches:
                await self._pass_on(batch, stream)
        state = fold.state
        if state is None:
            if fold.message is not None:
                await relay.emit(fold.message.parts)
                self._ids.keep_context(fold.message.context_id or "")
        elif state in TERMINAL or state in INTERRUPTED:
            if stream.final is not None:
                await relay.pass_snapshot(stream.final)
            await relay.settle()
        return fold.status

    async def _pass_on(self, batch: Sequence[Update], stream: TaskStream) -> None:
        relay = self._relay
        if not self._ids.task_id and (task_id := stream.fold.task_id):
            self._record_task(task_id, stream.fold.context_id, self._standing.begin(batch))
        if stream.resumptions != self._resumptions:
            self._resumptions = stream.resumptions
            relay.expect_repetition()
        for update in batch:
            if type(update) is ArtifactUpdate:
                await relay.pass_chunk(update)
            elif type(update) is StatusUpdate:
                await relay.pass_status(update)
            elif type(update) is Task:
                await relay.pass_snapshot(update)  # after an answer, it has the artifacts from before the question
        status = stream.fold.status
        if status is not None and status is not self._standing.status:
            self._standing.hear(status)

    def _record_task(self, task_id: str, context_id: str, standing: dict[str, str]) -> None:
        """Record the upstream's ids. Raises Ended if they are beyond what can be kept."""
        try:
            self._ids.record_task(task_id, context_id, standing)
        except ValueError as fault:
            self._relay.leave_out(str(fault))
            said = failures.left_out(self._route.name, self._relay.faults)
            raise Ended(TaskState.FAILED, (said,), failures.UNREADABLE) from fault

    def _note_taken(self) -> None:
        """Record that the upstream has the message."""
        self._due = False
        self._ids.record_taken()

    # -- asking and ending ---------------------------------------------------------------------------------------------

    async def _ask(self, status: TaskStatus) -> Message:
        """Ask the caller what the upstream asks, and return the answer."""
        parts = self._relay.readable(status.message.parts) if status.message is not None else ()
        self._standing.record()
        self._run.note(used=self._relay.usage_note)
        question = self._route.credentials.masking.parts(parts or QUESTIONS[status.state])
        return await self._run.ask(question, auth=status.state is TaskState.AUTH_REQUIRED)

    async def _end(self, status: TaskStatus) -> None:
        relay, name = self._relay, self._route.name
        parts = relay.readable(status.message.parts) if status.message is not None else ()
        if status.state is not TaskState.COMPLETED:
            word = status.state.value.removeprefix("TASK_STATE_").lower()
            if relay.faults:
                raise Ended(status.state, (*parts, failures.left_out(name, relay.faults)), failures.UNREADABLE)
            if not parts and status.state is not TaskState.CANCELED:
                parts = (Part(text=f"{name} {word} it without a word."),)
            raise Ended(status.state, parts)
        if not relay.emitted:
            await relay.emit(parts or await self._last_words())
            parts = ()
        elif relay.has_emitted(parts):
            parts = ()
        if relay.faults:
            raise self._completed(parts)
        if parts:
            raise Ended(status.state, parts)

    def _completed(self, parts: Sequence[Part]) -> Ended:
        """The end of a task that the upstream completed with content that cannot be read. With no other it failed."""
        said = failures.left_out(self._route.name, self._relay.faults)
        state = TaskState.COMPLETED if self._relay.emitted else TaskState.FAILED
        return Ended(state, (*parts, said), failures.UNREADABLE)

    async def _last_words(self) -> Sequence[Part]:
        """The upstream's last message in its history, for upstreams that put their answer nowhere else."""
        try:
            connection = await self._route.connection()
            if connection is None or not self._ids.task_id:
                return ()
            task = await connection.get(self._ids.task_id)
        except (A2AError, *UNFOUND):
            return ()
        last = task.history[-1] if task.history else None
        return last.parts if last is not None and last.role is Role.AGENT else ()

    # -- resuming a task that is there ---------------------------------------------------------------------------------

    async def _resume(self) -> TaskStatus | None:
        """Resume where an earlier run left off."""
        run, ids, note = self._run, self._ids, self._run.record.note or {}
        run.goes_on()
        answers = await self._answers(int(note.get("sent", "1")))
        if used := note.get("used"):
            self._relay.load_usage(used)
        notes = read_upstream_notes(note)
        ids.load(notes, 1 + len(answers))
        self._standing.load(notes)
        if not ids.task_id:
            if (
                run.epoch > 1
                and not note.get("waits")
                and not self._route.may_repeat(timestamp_ms(run.head.created_at))
            ):
                raise failures.uncertain(self._route.name)
            ids.number = 1
            return await self._begin()
        unsent = answers[-1] if answers and int(note.get("sent", "1")) < ids.number else None
        if unsent is None:
            ids.number += 1
        return await self._continue(unsent)

    async def _answers(self, sent: int) -> list[Message]:
        """The recorded answers for the upstream, in order, including unasked ones that were sent."""
        history = self._run.record.history
        asked = max((index for index, message in enumerate(history) if message.role is Role.AGENT), default=-1)
        answers: list[Message] = []
        question: tuple[Part, ...] = ()
        for message in history[1 : asked + 2]:
            if message.role is Role.AGENT:
                question = message.parts
                continue
            answer = await self._run.ask(question)
            if question != self._admission.credentials_question:
                answers.append(answer)
            question = ()
        while len(answers) < sent - 1:
            answers.append(await self._run.ask(()))
        return answers

    async def _continue(self, unsent: Message | None = None, *, lost: bool = False) -> TaskStatus | None:
        """Read how the upstream's task stands, and continue from there. `unsent` is an answer that it may not have.

        `lost`: the upstream has already been silent for as long as a task waits.
        """
        run, route, ids, relay = self._run, self._route, self._ids, self._relay
        lost_at = time.monotonic() - route.timeouts.mend_s if lost else None
        pause_s = 0.2
        while True:
            connection = await self._admission.connection()
            if connection is None:
                raise failures.forgotten(route.name)
            try:
                task = await connection.get(ids.task_id)
                route.record_answer()
                self._run.working()
                self._standing.hear(task.status)
                lost_at, pause_s = None, 0.2
                if unsent is not None:
                    known = any(ids.message_id == each.message_id for each in task.history)
                    if task.status.state in INTERRUPTED and not known:
                        return await self._send(unsent)
                    self._note_taken()
                    unsent = None
                relay.deltas = connection.tongue.deltas
                await relay.pass_snapshot(task)
                if task.status.state in TERMINAL or task.status.state in INTERRUPTED:
                    await relay.settle()
                    return task.status
                stream = connection.task_stream(
                    Subscribe(id=ids.task_id), traceparent=run.traceparent, on_link=self._standing.set_link
                )
                stream.fold.add(replace(task, artifacts=()) if relay.deltas else task)
                relay.expect_whole()
                status = await self._follow(stream, connection)
                if stream.final is None and status is not None and status.state in TERMINAL:
                    await self._pass_on_rest(connection)
                return status
            except (A2AError, NoAnswer, PeerError) as error:
                self._admission.record_failure(error)
                if isinstance(error, NoAnswer):
                    self._standing.set_link(up=False)
                if isinstance(error, Unauthorized | Forbidden) and route.forwards:
                    await self._admission.ask_for_credentials()
                    continue
                now = time.monotonic()
                if lost_at is None:
                    lost_at = now - (route.timeouts.mend_s if isinstance(error, StreamLost) else 0.0)
                if isinstance(error, A2AError) and not isinstance(error, _FOR_NOW):
                    raise failures.ending(route.name, error) from error
                waits = self._admission.queues and not isinstance(error, InternalError)
                if not waits and now - lost_at >= route.timeouts.mend_s:
                    gone = isinstance(error, NoAnswer)  # it has the message, even if it did not hear this question
                    raise failures.uncertain(route.name) if gone else failures.ending(route.name, error) from error
                await route.pause(min(LOOK_AGAIN_S, max(pause_s, route.breaker.wait_s)))
                pause_s *= 2

    async def _pass_on_rest(self, connection: Connection) -> None:
        """Pass on what the ended task holds beyond its stream, which was joined late (Evo AI)."""
        try:
            await self._relay.pass_snapshot(await connection.get(self._ids.task_id))
        except (A2AError, NoAnswer, PeerError) as error:
            self._admission.record_failure(error)

    # -- chat completions ----------------------------------------------------------------------------------------------

    async def _chat(self) -> TaskStatus:
        """Send the message over chat completions, and emit the agent's answer. Raises Ended."""
        run, route = self._run, self._route
        self._admission.set_caller(old=False)
        if not run.message.text:
            raise failures.ended(TaskState.REJECTED, f"{route.name} takes text only.")
        messages = [
            {"role": "user" if message.role is Role.USER else "assistant", "content": message.text}
            for message in (*await run.history(HISTORY_MAX), run.message)
            if message.text
        ]
        asked_s = time.monotonic()
        try:
            text = await route.chat(messages, run.traceparent)
        except (A2AError, PeerError, EgressError) as error:
            self._admission.record_failure(error)
            raise failures.ending(route.name, error, route.retry_s) from error
        route.record_answer()
        route.count("succeeded", time.monotonic() - asked_s)
        run.working()
        await self._relay.emit((Part(text=text),))
        return TaskStatus(state=TaskState.COMPLETED, timestamp="")

    async def _chat_instead(self) -> TaskStatus | None:
        """Try chat completions where A2A gets no answer. None if that fails, too."""
        try:
            return await self._chat()
        except Ended:
            return None


async def _read_first(
    batches: AsyncGenerator[list[Update], None],
    stream: TaskStream,
    connection: Connection,
    run: Run,
    route: UpstreamRoute,
) -> list[Update] | None:
    """Return the first batch of a stream, None if there is none.

    If the run is canceled before that, the upstream's task is canceled once the upstream names it. Raises what the
    stream raises.
    """
    first = asyncio.get_running_loop().create_task(_read_next(batches))
    try:
        return await asyncio.shield(first)
    except asyncio.CancelledError:
        if not (run.canceled and route.run_beside(_cancel_once_named(first, batches, stream, connection, route))):
            first.cancel()
            await asyncio.wait((first,))
            await batches.aclose()
        raise


async def _read_next(batches: AsyncGenerator[list[Update], None]) -> list[Update] | None:
    return await anext(batches, None)


async def _cancel_once_named(
    first: "asyncio.Task[list[Update] | None]",
    batches: AsyncGenerator[list[Update], None],
    stream: TaskStream,
    connection: Connection,
    route: UpstreamRoute,
) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            batch = await first
            while batch is not None and not stream.fold.task_id:
                batch = await anext(batches, None)
            if task_id := stream.fold.task_id:
                await batches.aclose()
                await connection.cancel(task_id)
    except TimeoutError:
        log.info("upstream %s: a task that was canceled here was not canceled there in time", route.name)
    except (A2AError, NoAnswer, PeerError) as error:
        log.info("upstream %s: a task that was canceled here: %s", route.name, route.describe(error))
    finally:
        await asyncio.shield(batches.aclose())
