"""Joins one of our tasks to the task that an upstream makes of it: messages go there, updates come back.

Invariant: a resumed run continues with the upstream's task where it left off. A message is sent twice only to an
upstream that recognises it. A cancel before the upstream has named its task cancels that task, too.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import replace

from dragoman.agents.remote import failures
from dragoman.agents.remote.admission import LOOK_AGAIN_S, Admission
from dragoman.agents.remote.chat_task import chatted
from dragoman.agents.remote.faults import UNFOUND
from dragoman.agents.remote.late_cancel import first_of
from dragoman.agents.remote.names import Names
from dragoman.agents.remote.relay import Telling
from dragoman.agents.remote.route import UpstreamWay
from dragoman.client import Connection
from dragoman.client.errors import HttpRefusal, NoAnswer, NoToken, PeerError, StreamLost
from dragoman.client.following import Following
from dragoman.engine.api import Ended, Run
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

QUESTIONS = {
    TaskState.INPUT_REQUIRED: (Part(text="More input is needed."),),
    TaskState.AUTH_REQUIRED: (Part(text="Authentication is needed."),),
}
"""The question when an upstream sends only the state."""

NO_CHAT = frozenset({401, 403, 429})
"""Statuses that do not mean that a server lacks A2A."""

MOVES_MAX = 2
"""How often a message follows an agent whose card has moved its address."""

NOT_INSTEAD = (InvalidAgentResponse, TaskTimeout, Unauthorized, Forbidden, TooManyRequests)
"""Errors of KAOS's A2A after which chat completions are no way out: it may have worked, or lets nobody in."""

DELTAS = frozenset({"beeos"})
"""Dialects whose chunks do not say whether they continue an artifact or begin it again."""

_FOR_NOW = (Unavailable, TooManyRequests, AgentOffline, InternalError)


class UpstreamTask:
    """The exchange between `run` and the upstream of `way`.

    `queues`: the task waits for an upstream that cannot be reached.
    """

    __slots__ = ("_admission", "_due", "_mended", "_moves", "_names", "_run", "_telling", "_way")

    def __init__(self, run: Run, way: UpstreamWay, *, queues: bool) -> None:
        self._run = run
        self._way = way
        self._names = Names(run, way)
        self._admission = Admission(run, way, self._names, queues=queues)
        self._telling = Telling(run, way.said)
        self._due = False
        self._mended = 0
        self._moves = 0

    async def done(self) -> None:
        """Have the upstream carry out the task. Raises Ended, unless it completed without a closing message."""
        try:
            status = await (self._begin() if self._run.epoch == 1 else self._resume())
            while status is not None and status.state in INTERRUPTED:
                status = await self._send(await self._ask(status))
            if status is not None:
                await self._end(status)
        except Ended as ended:
            parts = self._way.said.masking.parts(ended.parts)
            raise Ended(ended.state, parts, ended.reason, ended.retry_after_s) from ended
        except asyncio.CancelledError:
            if self._run.canceled and self._names.task_id:
                await self._way.stop(self._names.task_id)
            raise

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _begin(self) -> TaskStatus | None:
        return await self._send(self._run.message)

    async def _send(self, message: Message) -> TaskStatus | None:
        """Send a message, and pass on updates until the upstream's task ends or asks. None: a message answered it."""
        way = self._way
        while True:
            connection = await self._admission.connection()
            if connection is None:
                return await self._chat()
            operation = await self._names.sending(message, connection)
            self._due = True
            try:
                following = connection.following(operation, traceparent=self._run.traceparent)
                status = await self._follow(following, connection)
            except (A2AError, NoAnswer, PeerError) as error:
                if (retry := await self._after_failure(error, connection)) is None:
                    continue
                if isinstance(retry, Ended):
                    raise retry from error
                return retry
            way.looked()
            return status

    async def _after_failure(
        self, error: A2AError | NoAnswer | PeerError, spoken: Connection
    ) -> Ended | TaskStatus | None:
        """Decide what follows a failed send. None: send again; a status: how the task stands; Ended: to be raised."""
        way, admission, names = self._way, self._admission, self._names
        admission.met(error)
        if isinstance(error, StreamLost) and names.task_id:
            return await self._continue(lost=True)
        if isinstance(error, TaskTimeout) and error.task_id:
            names.named(error.task_id, "")
            return await self._continue()
        if isinstance(error, Unauthorized | Forbidden) and way.forwards:
            await admission.ask_who()
            return None
        unsaid = isinstance(error, NoToken) or (isinstance(error, NoAnswer) and not error.sent)
        if admission.queues and (unsaid or isinstance(error, Unavailable | AgentOffline | TooManyRequests)):
            await admission.wait(failures.asked_s(error))
            return None
        refused = isinstance(error, HttpRefusal) and error.status not in NO_CHAT
        gone = refused or isinstance(error, MethodNotFound) or failures.not_there(error)
        if gone:
            before = spoken.interface
            if self._moves < MOVES_MAX and await admission.reread() and spoken.interface != before:
                self._moves += 1
                return None
        chats = gone or (
            spoken.tongue.name == "kaos" and isinstance(error, A2AError) and not isinstance(error, NOT_INSTEAD)
        )
        if chats and names.number == 1 and not names.task_id and (said := await self._chat_instead()) is not None:
            return said
        untouched = self._run.epoch == 1 and names.number == 1 and not names.task_id
        return failures.ending(way.name, error, way.again_s if untouched else None)

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def _follow(self, following: Following, connection: Connection) -> TaskStatus | None:
        """Pass on a stream to its end, and return how the task stands then. None: the answer was a message."""
        way, telling, folding, asked_s = self._way, self._telling, following.folding, time.monotonic()
        telling.deltas = connection.tongue.name in DELTAS
        self._mended = following.mended
        batches = following.batches()
        if self._names.task_id:
            first = await anext(batches, None)
        else:
            first = await first_of(batches, following, connection, self._run, way)
        async with aclosing(batches):
            if first is not None:
                way.answered()
                way.count("succeeded", time.monotonic() - asked_s)
                self._run.working()
                if self._due:
                    self._note_taken()
                await self._relay(first, following)
            async for batch in batches:
                await self._relay(batch, following)
        state = folding.state
        if state is None:
            if folding.message is not None:
                await telling.give(folding.message.parts)
                self._names.keep_context(folding.message.context_id or "")
        elif state in TERMINAL or state in INTERRUPTED:
            if following.final is not None:
                await telling.snapshot(following.final)
            await telling.settled()
        return folding.status

    async def _relay(self, batch: Sequence[Update], following: Following) -> None:
        telling = self._telling
        if not self._names.task_id and (task_id := following.folding.task_id):
            self._names.named(task_id, following.folding.context_id)
        if following.mended != self._mended:
            self._mended = following.mended
            telling.again()
        for update in batch:
            if type(update) is ArtifactUpdate:
                await telling.chunk(update)
            elif type(update) is StatusUpdate:
                await telling.report(update)
            elif type(update) is Task:
                await telling.snapshot(update)  # after an answer, it has the artifacts from before the question

    def _note_taken(self) -> None:
        """Record that the upstream has the message."""
        self._due = False
        self._names.taken()

    # -- asking and ending ---------------------------------------------------------------------------------------------

    async def _ask(self, status: TaskStatus) -> Message:
        """Ask the caller what the upstream asks, and return the answer."""
        parts = status.message.parts if status.message is not None else ()
        self._run.note(used=self._telling.noted)
        question = self._way.said.masking.parts(parts or QUESTIONS[status.state])
        return await self._run.ask(question, auth=status.state is TaskState.AUTH_REQUIRED)

    async def _end(self, status: TaskStatus) -> None:
        parts = status.message.parts if status.message is not None else ()
        if status.state is not TaskState.COMPLETED:
            word = status.state.value.removeprefix("TASK_STATE_").lower()
            if not parts and status.state is not TaskState.CANCELED:
                parts = (Part(text=f"{self._way.name} {word} it without a word."),)
            raise Ended(status.state, parts)
        if not self._telling.gave:
            await self._telling.give(parts or await self._last_words())
        elif parts and not self._telling.has_given(parts):
            raise Ended(status.state, parts)

    async def _last_words(self) -> Sequence[Part]:
        """The upstream's last message in its history, for upstreams that put their answer nowhere else."""
        try:
            connection = await self._way.connection()
            if connection is None or not self._names.task_id:
                return ()
            task = await connection.get(self._names.task_id)
        except (A2AError, *UNFOUND):
            return ()
        last = task.history[-1] if task.history else None
        return last.parts if last is not None and last.role is Role.AGENT else ()

    # -- resuming a task that is there ---------------------------------------------------------------------------------

    async def _resume(self) -> TaskStatus | None:
        """Resume where an earlier run left off."""
        run, names, note = self._run, self._names, self._run.record.note or {}
        run.goes_on()
        answers = await self._answers(int(note.get("sent", "1")))
        if used := note.get("used"):
            self._telling.counted(used)
        names.noted(note, 1 + len(answers))
        if not names.task_id:
            if run.epoch > 1 and not note.get("waits") and not self._way.repeats(timestamp_ms(run.head.created_at)):
                raise failures.uncertain(self._way.name)
            names.number = 1
            return await self._begin()
        unsent = answers[-1] if answers and int(note.get("sent", "1")) < names.number else None
        if unsent is None:
            names.number += 1
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
            if question != self._admission.who:
                answers.append(answer)
            question = ()
        while len(answers) < sent - 1:
            answers.append(await self._run.ask(()))
        return answers

    async def _continue(self, unsent: Message | None = None, *, lost: bool = False) -> TaskStatus | None:
        """Read how the upstream's task stands, and continue from there. `unsent` is an answer that it may not have.

        `lost`: the upstream has already been silent for as long as a task waits.
        """
        run, way, names, telling = self._run, self._way, self._names, self._telling
        lost_at = time.monotonic() - way.timeouts.mend_s if lost else None
        pause_s = 0.2
        while True:
            connection = await self._admission.connection()
            if connection is None:
                raise failures.forgotten(way.name)
            try:
                task = await connection.get(names.task_id)
                way.answered()
                self._run.working()
                lost_at, pause_s = None, 0.2
                if unsent is not None:
                    known = any(names.message_id == each.message_id for each in task.history)
                    if task.status.state in INTERRUPTED and not known:
                        return await self._send(unsent)
                    self._note_taken()
                    unsent = None
                telling.deltas = connection.tongue.name in DELTAS
                await telling.snapshot(task)
                if task.status.state in TERMINAL or task.status.state in INTERRUPTED:
                    await telling.settled()
                    return task.status
                following = connection.following(Subscribe(id=names.task_id), traceparent=run.traceparent)
                following.folding.add(replace(task, artifacts=()) if telling.deltas else task)
                telling.anew()
                status = await self._follow(following, connection)
                if following.final is None and status is not None and status.state in TERMINAL:
                    await self._pass_on_rest(connection)
                return status
            except (A2AError, NoAnswer, PeerError) as error:
                self._admission.met(error)
                if isinstance(error, Unauthorized | Forbidden) and way.forwards:
                    await self._admission.ask_who()
                    continue
                now = time.monotonic()
                if lost_at is None:
                    lost_at = now - (way.timeouts.mend_s if isinstance(error, StreamLost) else 0.0)
                if isinstance(error, A2AError) and not isinstance(error, _FOR_NOW):
                    raise failures.ending(way.name, error) from error
                waits = self._admission.queues and not isinstance(error, InternalError)
                if not waits and now - lost_at >= way.timeouts.mend_s:
                    gone = isinstance(error, NoAnswer)  # it has the message, even if it did not hear this question
                    raise failures.uncertain(way.name) if gone else failures.ending(way.name, error) from error
                await way.pause(min(LOOK_AGAIN_S, max(pause_s, way.breaker.wait_s)))
                pause_s *= 2

    async def _pass_on_rest(self, connection: Connection) -> None:
        """Pass on what the ended task holds beyond its stream, which was joined late (Evo AI)."""
        try:
            await self._telling.snapshot(await connection.get(self._names.task_id))
        except (A2AError, NoAnswer, PeerError) as error:
            self._admission.met(error)

    # -- chat completions ----------------------------------------------------------------------------------------------

    async def _chat(self) -> TaskStatus:
        self._admission.show(old=False)
        text = await chatted(self._run, self._way)
        self._run.working()
        await self._telling.give((Part(text=text),))
        return TaskStatus(state=TaskState.COMPLETED, timestamp="")

    async def _chat_instead(self) -> TaskStatus | None:
        """Try chat completions where A2A gets no answer. None if that fails, too."""
        try:
            return await self._chat()
        except Ended:
            return None
