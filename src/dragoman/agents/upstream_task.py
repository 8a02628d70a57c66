"""One task of ours, and the task that an upstream makes of it: what the one is told, the other is.

Invariant: the id of the upstream's task is put into the log before anything that follows from it, so that a run that is
taken up again goes on with that task; a message is not sent twice but to an upstream that knows it again.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing
from hashlib import blake2b

from msgspec.structs import replace

from dragoman.agents import upstream_failures as failures
from dragoman.agents.upstream_chat import chatted
from dragoman.agents.upstream_telling import Telling
from dragoman.agents.upstream_way import Said, UpstreamWay
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import Connection
from dragoman.client.errors import HttpRefusal, NoAnswer, NoCard, NoToken, PeerError, StreamLost
from dragoman.client.following import Following
from dragoman.dialects.extensions import LINEAGE
from dragoman.engine.api import Ended, Run
from dragoman.model.errors import (
    A2AError,
    AgentOffline,
    Forbidden,
    InternalError,
    InvalidAgentResponse,
    MethodNotFound,
    TaskNotFound,
    TaskTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import StreamMessage, Subscribe
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskHead, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate

log = logging.getLogger("dragoman.upstreams")

QUESTIONS = {
    TaskState.INPUT_REQUIRED: (Part(text="More input is needed."),),
    TaskState.AUTH_REQUIRED: (Part(text="Authentication is needed."),),
}
"""What is asked when an upstream names the state only."""

LOOK_AGAIN_S = 5.0
"""Longest time between two looks at whether an upstream can be called."""

NO_CHAT = frozenset({401, 403, 429})
"""What a server that has no A2A does not answer with."""

TIMED = 13
"""Characters of a UUID of version 7 that tell the time (RFC 9562 §5.7): a context as old as its task has no earlier."""

MOVES_MAX = 2
"""How often a message follows an agent whose card says that it is elsewhere now."""

_FOR_NOW = (Unavailable, TooManyRequests, AgentOffline, InternalError)


class UpstreamTask:
    """What passes between `run` and the upstream at the end of `way`.

    `queues`: a task waits for an upstream that cannot be reached.
    """

    __slots__ = (
        "_context_id", "_due", "_moves", "_number", "_queues", "_run", "_task_id", "_telling", "_waited", "_way",
    )  # fmt: skip

    def __init__(self, run: Run, way: UpstreamWay, *, queues: bool) -> None:
        self._run = run
        self._way = way
        self._queues = queues
        self._number = 1
        self._task_id = ""
        self._context_id = ""
        self._telling = Telling(run)
        self._due = False
        self._moves = 0
        self._waited = False

    async def done(self) -> None:
        """Have the upstream do the task. Raises Ended, unless it completed without a word."""
        try:
            status = await (self._begun() if self._run.epoch == 1 else self._taken_up())
            while status is not None and status.state in INTERRUPTED:
                status = await self._said(await self._answer_to(status))
        except asyncio.CancelledError:
            if self._run.canceled and self._task_id:
                await self._way.stop(self._task_id)
            raise
        if status is not None:
            await self._end(status)

    # -- saying --------------------------------------------------------------------------------------------------------

    async def _begun(self) -> TaskStatus | None:
        return await self._said(self._run.message)

    async def _said(self, message: Message) -> TaskStatus | None:
        """Send a message, and pass on what becomes of it until the upstream's task ends or asks. None: completed."""
        way = self._way
        while True:
            connection = await self._admitted()
            if connection is None:
                return await self._chatted()
            self._due = True
            try:
                following = connection.following(
                    await self._operation(message, connection), traceparent=self._run.traceparent
                )
                status = await self._followed(following)
            except (A2AError, NoAnswer, PeerError) as error:
                if (retry := await self._turned_back(error, connection)) is None:
                    continue
                if isinstance(retry, Ended):
                    raise retry from error
                return retry
            way.looked()
            return status

    async def _turned_back(
        self, error: A2AError | NoAnswer | PeerError, spoken: Connection
    ) -> Ended | TaskStatus | None:
        """What is to be done after a send that failed: None to make it again, else how the task stands."""
        way, name = self._way, self._way.name
        self._met(error)
        if isinstance(error, StreamLost) and self._task_id:
            return await self._resumed()
        if isinstance(error, TaskTimeout) and error.task_id:
            self._named(error.task_id, "")
            return await self._resumed()
        if isinstance(error, Unauthorized | Forbidden) and way.forwards:
            await self._ask_who(again=True)
            return None
        unsaid = isinstance(error, NoToken) or (isinstance(error, NoAnswer) and not error.sent)
        if self._queues and (unsaid or isinstance(error, Unavailable | AgentOffline | TooManyRequests)):
            await self._wait()
            return None
        if isinstance(error, MethodNotFound) or (isinstance(error, HttpRefusal) and error.status not in NO_CHAT):
            before = spoken.interface
            if self._moves < MOVES_MAX and await self._reread() and spoken.interface != before:
                self._moves += 1
                return None
            if self._number == 1 and not self._task_id and (said := await self._chat_instead()) is not None:
                return said
        return failures.ending(name, error)

    async def _operation(self, message: Message, connection: Connection) -> StreamMessage:
        run, head, way = self._run, self._run.head, self._way
        metadata = {**(message.metadata or {}), LINEAGE: list(run.lineage)}
        references: list[str] = []
        if message.reference_task_ids:
            notes = [record.note for record in await run.references() if record.note]
            references = [note["task"] for note in notes if "task" in note]
        if not self._context_id:
            self._context_id = way.context(head) or await self._context_before() or derived(head)
        sent = replace(
            message,
            message_id=message_id(head, self._number),
            role=Role.USER,
            context_id=self._context_id,
            task_id=self._task_id or None,
            reference_task_ids=tuple(references),
            metadata=metadata,
        )
        return StreamMessage(
            message=sent,
            return_immediately=not (connection.tongue.streams and (connection.card is None or connection.card.streams)),
            history_length=0 if connection.tongue.name == "1.0" else None,
            accepted_output_modes=head.accepted_output_modes,
            metadata=head.metadata,
            skill=head.skill,
            skills=head.skills,
            earlier=head.earlier,
        )

    async def _context_before(self) -> str:
        """The upstream's own id of the conversation, as an earlier task of it noted it; empty if it uses ours."""
        head = self._run.head
        if self._way.keeps_contexts or head.context_id[:TIMED] == head.id[:TIMED]:
            return ""
        return (await self._run.noted()).get("context", "")

    # -- hearing -------------------------------------------------------------------------------------------------------

    async def _followed(self, following: Following) -> TaskStatus | None:
        """Pass on a stream to its end; how the task stands then. None: it was a message."""
        way, telling, folding, asked_s, first = self._way, self._telling, following.folding, time.monotonic(), True
        async with aclosing(following.updates()) as updates:
            async for update in updates:
                if first:
                    first = False
                    way.breaker.succeeded()
                    way.count("succeeded", time.monotonic() - asked_s)
                    if self._due:
                        self._taken()
                if folding.task_id and not self._task_id:
                    self._named(folding.task_id, folding.context_id)
                if type(update) is ArtifactUpdate:
                    await telling.chunk(update)
                elif type(update) is StatusUpdate:
                    await telling.report(update)
                elif type(update) is Task:
                    seen = self._run.record.artifacts if telling.gave and update.artifacts else ()
                    await telling.snapshot(update, seen)  # with an answer come the artifacts from before the question
        if folding.status is None and folding.message is not None:
            await self._telling.give(folding.message.parts)
            self._keep_context(folding.message.context_id or "")
        return folding.status

    def _taken(self) -> None:
        """The upstream has the message."""
        self._due = False
        if self._number > 1:
            self._run.note(sent=str(self._number))
        self._number += 1

    def _named(self, task_id: str, context_id: str) -> None:
        self._task_id = task_id
        self._run.note(task=task_id, context=context_id or self._context_id)
        self._keep_context(context_id)

    def _keep_context(self, context_id: str) -> None:
        if context_id:
            self._way.keep_context(self._run.head, self._context_id, context_id)
            self._context_id = context_id

    # -- asking and ending ---------------------------------------------------------------------------------------------

    async def _answer_to(self, status: TaskStatus) -> Message:
        """Ask the caller what the upstream asks."""
        parts = status.message.parts if status.message is not None else ()
        self._run.note(used=self._telling.noted)
        return await self._run.ask(parts or QUESTIONS[status.state], auth=status.state is TaskState.AUTH_REQUIRED)

    async def _end(self, status: TaskStatus) -> None:
        parts = status.message.parts if status.message is not None else ()
        if status.state is not TaskState.COMPLETED:
            word = status.state.value.removeprefix("TASK_STATE_").lower()
            if not parts and status.state is not TaskState.CANCELED:
                parts = (Part(text=f"{self._way.name} {word} it without a word."),)
            raise Ended(status.state, parts)
        if not self._telling.gave:
            await self._telling.give(parts or await self._last_words())
        elif parts:
            raise Ended(status.state, parts)

    async def _last_words(self) -> Sequence[Part]:
        """What the upstream said last in its history, where it says it nowhere else."""
        try:
            connection = await self._way.connection()
            if connection is None or not self._task_id:
                return ()
            task = await connection.get(self._task_id)
        except (A2AError, NoAnswer, PeerError, CardNotVerified):
            return ()
        last = task.history[-1] if task.history else None
        return last.parts if last is not None and last.role is Role.AGENT else ()

    # -- going on with a task that is there ---------------------------------------------------------------------------

    async def _taken_up(self) -> TaskStatus | None:
        """Go on where an earlier run left off."""
        run, note = self._run, self._run.record.note or {}
        answers = await self._answers(int(note.get("sent", "1")))
        if used := note.get("used"):
            self._telling.counted(used)
        self._task_id, self._context_id = note.get("task", ""), note.get("context", "")
        self._number = 1 + len(answers)
        if not self._task_id:
            if run.epoch > 1 and not note.get("waits") and not self._way.again.retries.dedupes:
                raise failures.uncertain(self._way.name)
            self._number = 1
            return await self._begun()
        unsent = answers[-1] if answers and int(note.get("sent", "1")) < self._number else None
        if unsent is None:
            self._number += 1
        return await self._resumed(unsent)

    async def _answers(self, sent: int) -> list[Message]:
        """The answers that were recorded for the upstream, in order, those that came unasked and were sent, too."""
        history = self._run.record.history
        asked = max((index for index, message in enumerate(history) if message.role is Role.AGENT), default=-1)
        answers: list[Message] = []
        question: tuple[Part, ...] = ()
        for message in history[1 : asked + 2]:
            if message.role is Role.AGENT:
                question = message.parts
                continue
            answer = await self._run.ask(question)
            if question != self._who:
                answers.append(answer)
            question = ()
        while len(answers) < sent - 1:
            answers.append(await self._run.ask(()))
        return answers

    async def _resumed(self, unsent: Message | None = None) -> TaskStatus | None:
        """Look how the upstream's task stands, and go on from there; `unsent` is an answer that it may not have."""
        run, way = self._run, self._way
        lost_at: float | None = None
        pause_s = 0.2
        while True:
            connection = await self._admitted()
            if connection is None:
                raise failures.forgotten(way.name)
            try:
                task = await connection.get(self._task_id)
                way.breaker.succeeded()
                lost_at, pause_s = None, 0.2
                sent = message_id(run.head, self._number)
                if unsent is not None:
                    if task.status.state in INTERRUPTED and all(sent != each.message_id for each in task.history):
                        return await self._said(unsent)
                    self._taken()
                    unsent = None
                await self._telling.snapshot(task, run.record.artifacts if task.status.state in TERMINAL else ())
                if task.status.state in TERMINAL or task.status.state in INTERRUPTED:
                    return task.status
                following = connection.following(Subscribe(id=self._task_id), traceparent=run.traceparent)
                following.folding.add(task)
                return await self._followed(following)
            except (A2AError, NoAnswer, PeerError) as error:
                self._met(error)
                if isinstance(error, Unauthorized | Forbidden) and way.forwards:
                    await self._ask_who(again=True)
                    continue
                now = time.monotonic()
                if lost_at is None:
                    lost_at = now - (way.timeouts.mend_s if isinstance(error, StreamLost) else 0.0)
                if isinstance(error, A2AError) and not isinstance(error, _FOR_NOW):
                    raise failures.ending(way.name, error) from error
                waits = self._queues and not isinstance(error, InternalError)
                if not waits and now - lost_at >= way.timeouts.mend_s:
                    raise failures.ending(way.name, error) from error
                await asyncio.sleep(min(LOOK_AGAIN_S, max(pause_s, way.breaker.wait_s)))
                pause_s *= 2

    # -- the way there -------------------------------------------------------------------------------------------------

    async def _admitted(self) -> Connection | None:
        """The connection, when a call may be made; None if the upstream speaks no A2A. Raises Ended."""
        way = self._way
        while True:
            if way.forwards and self._run.shown is None:
                await self._ask_who(again=False)
            while not way.breaker.admit():
                if not (self._queues or self._task_id):
                    raise failures.unreachable(way.name)
                await self._wait()
            try:
                connection = await way.connection()
            except NoCard:
                way.breaker.unknown()
                return None
            except CardNotVerified:
                way.breaker.unknown()
                raise failures.unreachable(way.name) from None
            except (NoAnswer, PeerError) as error:
                self._met(error)
                if not (self._queues or self._task_id):
                    raise failures.unreachable(way.name) from error
                await self._wait()
                continue
            if self._waited and not self._task_id:
                self._waited = False
                self._run.note(waits="")
                await self._run.written()  # from now on it may have been sent
            if connection is not None:
                self._show(connection)
            return connection

    async def _wait(self) -> None:
        """Let some time pass until the upstream may answer again; nothing has been sent."""
        if not self._waited and not self._task_id:
            self._waited = True
            self._run.note(waits="1")
        self._way.look()
        await asyncio.sleep(min(LOOK_AGAIN_S, max(0.2, self._way.breaker.wait_s)))

    @property
    def _who(self) -> tuple[Part, ...]:
        return (Part(text=f"{self._way.name} wants to know who asks: send a message with your credentials."),)

    async def _ask_who(self, *, again: bool) -> None:
        """Ask the caller for its credentials: they are not kept, so that they are gone after a restart."""
        if not self._waited and not self._task_id:
            self._waited = True
            self._run.note(waits="1")
        while True:
            await self._run.ask(self._who, auth=True)
            if self._run.shown is not None:
                return

    def _show(self, connection: Connection) -> None:
        if (said := self._caller(old=connection.tongue.name == "0.3")) is not None:
            self._way.said.caller.set(said)

    def _caller(self, *, old: bool) -> Said | None:
        run = self._run
        return Said(run.shown, run.extensions, old) if run.extensions or self._way.forwards else None

    def _met(self, error: A2AError | NoAnswer | PeerError) -> None:
        """Take note of how a call failed."""
        way = self._way
        down = isinstance(error, NoAnswer | NoToken) or (isinstance(error, HttpRefusal) and error.status >= 500)
        log.warning("upstream %s: task %s: %s: %s", way.name, self._run.head.id, type(error).__name__, error)
        if down:
            way.breaker.failed()
            way.count("failed")
        else:
            way.breaker.succeeded()
            way.count("refused")
        if isinstance(error, NoAnswer | PeerError | InvalidAgentResponse | TaskNotFound):
            way.look()

    async def _reread(self) -> bool:
        try:
            await self._way.reread()
        except (NoAnswer, PeerError, CardNotVerified):
            return False
        return True

    # -- chat completions ----------------------------------------------------------------------------------------------

    async def _chatted(self) -> TaskStatus:
        caller = self._way.said.caller
        before = caller.set(self._caller(old=False))
        try:
            text = await chatted(self._run, self._way)
        finally:
            caller.reset(before)
        await self._telling.give((Part(text=text),))
        return TaskStatus(state=TaskState.COMPLETED, timestamp="")

    async def _chat_instead(self) -> TaskStatus | None:
        """What comes of chat completions, where A2A is not answered; None if nothing does."""
        try:
            return await self._chatted()
        except Ended:
            return None


def derived(head: TaskHead) -> str:
    """The upstream's name for the conversation of a task: callers that chose the same name do not meet there."""
    return _named_by(f"{head.owner}\0{head.agent}\0{head.context_id}")


def message_id(head: TaskHead, number: int) -> str:
    """The id under which the message of that number is sent: the same whenever it is."""
    return _named_by(f"{head.id}\0{number}")


def _named_by(text: str) -> str:
    """A UUID of version 8 (RFC 9562 §5.8), always the same for a text."""
    made = blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{made[:8]}-{made[8:12]}-8{made[13:16]}-a{made[17:20]}-{made[20:]}"
