"""MessageSink: the words of a run that may answer with a Message, until one comes that a Message cannot hold.

Invariant: nothing is written. All that the agent said is in the Message, or in the task that takes its place, in the
same order. An agent declared `direct` makes no task: what a Message cannot hold goes nowhere.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from dragoman.engine.api import Execute, Hear, Past, Sink, Traits
from dragoman.engine.lineage import full_lineage
from dragoman.engine.runs.execution import OVER, OVER_CANCELED
from dragoman.engine.runs.run_writer import BUFFER_BYTES_MAX, weigh
from dragoman.engine.runs.services import RunServices
from dragoman.engine.state_space import StateSpace
from dragoman.engine.words import WORKING, Ask, Delegation, Note, Say, Sleep, Step, Waiting, Working
from dragoman.model.events import ArtifactChunk, Delegated, Event, Logged, Noted, Stepped, Submitted
from dragoman.model.headers import TaskHeaders
from dragoman.model.lifecycle import fold
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record, TaskHead, Usage
from dragoman.model.title import TITLE_NOTE
from dragoman.store.state import StateKind


class Undecided(Protocol):
    """The execution of an agent that may answer with a Message, or make a task."""

    @property
    def open(self) -> bool:
        """Whether both are possible."""
        ...

    @property
    def canceled(self) -> bool:
        """See `engine.api.Run.canceled`."""
        ...

    def become_task(self) -> None:
        """Have a task made, unless there is one or the answer is decided."""
        ...


class MessageSink:
    """See `engine.api.Sink`. `execution` is None for an agent that makes no task.

    A Message holds the parts of plain artifacts up to `BUFFER_BYTES_MAX`. A task is made at the first status, named
    artifact, large file, question, delegation or note, and when the agent reads the conversation. `pour` hands it all
    that was said before.
    """

    __slots__ = (
        "_bytes",
        "_events",
        "_execution",
        "_head",
        "_headers",
        "_held",
        "_services",
        "_task",
        "_traits",
        "_works",
        "used",
    )

    def __init__(
        self,
        head: TaskHead,
        message: Message,
        services: RunServices,
        *,
        traits: Traits,
        headers: TaskHeaders | None = None,
        execution: Undecided | None = None,
    ) -> None:
        self.used: Usage | None = None
        """The tokens used before a task took over."""
        self._head = head
        self._services = services
        self._headers = headers
        self._traits = traits
        self._execution = execution
        self._events: list[Event] = [Submitted(message, head.created_at)]
        self._bytes = 0
        self._held: deque[tuple[ArtifactChunk | Note | Waiting, int]] = deque()
        """The words that the task does not have yet, with the weights of chunks."""
        self._works = False
        self._task: asyncio.Future[Sink] | None = None
        """The sink of the task once it has all that was said. It is cancelled if there will be none."""

    def large(self, parts: Sequence[Part]) -> bool:
        """Whether a file in `parts` is too large for a Message: it belongs in the blob store."""
        return self._services.files.large(parts)

    def answer(self, words: Sequence[Part], message_id: str) -> Message:
        """The Message that holds the parts of all artifacts, followed by the agent's last words."""
        record = self.record
        parts = [part for artifact in record.artifacts for part in artifact.parts]
        return Message(
            message_id=message_id,
            role=Role.AGENT,
            parts=(*parts, *words) or (Part(text=""),),
            context_id=record.head.context_id,
        )

    async def pour(self, task: Sink) -> bool:
        """Hand everything that was said to the task. Returns whether the task has it all, and its sink takes over."""
        if self._works:
            task.mark(WORKING)
        while self._held:
            word, weight = self._held.popleft()
            if not isinstance(word, ArtifactChunk):
                task.mark(word)
            elif (waits := task.say(word, weight)) is not None:
                await waits
        if self._works:  # the agent may have said so meanwhile, as it may have used tokens
            task.mark(WORKING)
        if self.used is not None:
            task.mark(self.used)
        taken = self._taken_over()
        if not taken.done():
            taken.set_result(task)
            self._release(canceled=False)
        return not taken.cancelled()

    def drop(self, *, canceled: bool) -> None:
        """Take nothing more: there will be no task. It was `canceled`, or answered with a Message."""
        self._taken_over().cancel()
        self._release(canceled=canceled)

    def _release(self, *, canceled: bool) -> None:
        """Drop the execution, whose outcome is decided: the two form a cycle (see `RunWriter.release`)."""
        if self._execution is not None:
            self._execution = OVER_CANCELED if canceled else OVER

    # -- engine.api.Sink -----------------------------------------------------------------------------------------------

    @property
    def canceled(self) -> bool:
        """See `engine.api.Sink`. An agent that makes no task has nothing to cancel."""
        return self._execution is not None and self._execution.canceled

    @property
    def headers(self) -> TaskHeaders | None:
        """See `engine.api.Sink`."""
        return self._traits.choose_headers(self._headers)

    @property
    def gives_headers(self) -> bool:
        """See `engine.api.Sink`."""
        return bool(self._traits.header_names)

    @property
    def lineage(self) -> tuple[str, ...]:
        """See `engine.api.Sink`."""
        return full_lineage(self._head, self._services.server)

    @property
    def record(self) -> Record:
        """See `engine.api.Sink`. It is as a task would hold it."""
        return fold(self._head, None, (Logged(seq, event) for seq, event in enumerate(self._events, 1)))

    @property
    def notes(self) -> Mapping[str, str]:
        """See `engine.api.Sink`."""
        return self.record.note or {}

    def check(self) -> None:
        """See `engine.api.Sink`. A run that was dropped hears of it when it needs the task."""

    def say(self, word: Say | ArtifactChunk, weight: int = 0) -> Awaitable[None] | None:
        """See `engine.api.Sink`."""
        if self._execution is None:
            if isinstance(word, ArtifactChunk):
                self._events.append(word)
            return None
        if self._execution.open and isinstance(word, ArtifactChunk) and self._fits(word):
            self._events.append(word)
            self._held.append((word, weight))
            return None
        return self._say_in_task(word, weight)

    async def _say_in_task(self, word: Say | ArtifactChunk, weight: int) -> None:
        waits = (await self._in_task()).say(word, weight)
        if waits is not None:
            await waits

    def _fits(self, chunk: ArtifactChunk) -> bool:
        """Whether a Message can hold the chunk beside what it holds already."""
        artifact = chunk.artifact
        self._bytes += weigh(chunk)
        apart = artifact.name or artifact.description or artifact.metadata or artifact.extensions
        return not (apart or self._bytes > BUFFER_BYTES_MAX or self.large(artifact.parts))

    def mark(self, word: Working | Waiting | Note | Usage) -> None:
        """See `engine.api.Sink`."""
        match word:
            case Usage():
                self.used = (self.used or Usage()) + word
            case Working():
                self._works = True
            case Note(note) if self._execution is not None:
                if TITLE_NOTE not in note:  # a Message needs none
                    self._execution.become_task()
                self._held.append((word, 0))
                self._events.append(Noted(note))
            case Waiting() if self._execution is not None:
                self._execution.become_task()
                self._held.append((word, 0))

    async def ask(self, word: Ask) -> Message:
        """See `engine.api.Sink`. Raises RuntimeError if there is no task to wait for an answer."""
        if self._execution is None:
            raise RuntimeError(f"agent {self._head.agent!r} is declared direct: it cannot ask; leave direct=True out")
        return await (await self._in_task()).ask(word)

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """See `engine.api.Sink`. Raises RuntimeError if there is no task to be the parent."""
        if self._execution is None:
            agent = self._head.agent
            raise RuntimeError(f"agent {agent!r} is declared direct: it cannot delegate; leave direct=True out")
        return await (await self._in_task()).delegate(order, hear)

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """See `engine.api.Sink`. Raises RuntimeError if there is no task to record it."""
        if self._execution is None:
            agent = self._head.agent
            raise RuntimeError(f"agent {agent!r} is declared direct: it cannot record steps; leave direct=True out")
        return await (await self._in_task()).step(word, execute)

    async def sleep(self, word: Sleep) -> None:
        """See `engine.api.Sink`. Raises RuntimeError if there is no task that could sleep."""
        if self._execution is None:
            agent = self._head.agent
            raise RuntimeError(f"agent {agent!r} is declared direct: it cannot sleep; leave direct=True out")
        await (await self._in_task()).sleep(word)

    async def patched(self, name: str) -> bool:
        """See `engine.api.Sink`. A run that makes no task never runs again."""
        return self._execution is None or await (await self._in_task()).patched(name)

    async def written(self) -> None:
        """See `engine.api.Sink`."""
        if self._execution is not None:
            await (await self._in_task()).written()

    def landing(self, done: "asyncio.Future[None]") -> None:
        """See `engine.api.Sink`. Nothing is written."""
        if not done.done():
            done.set_result(None)

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """See `engine.api.Sink`. Without a task there is one request."""
        return self._head.metadata

    async def past(self, *, context: bool = False) -> Past:
        """See `engine.api.Sink`."""
        if context and self._execution is not None:
            return await (await self._in_task()).past()
        return self._services.past

    async def state(self, kind: StateKind, *, wide: bool = False, shared: bool = False) -> StateSpace | None:
        """See `engine.api.Sink`."""
        if self._execution is None:
            return None
        return await (await self._in_task()).state(kind, wide=wide, shared=shared)

    def _taken_over(self) -> "asyncio.Future[Sink]":
        if self._task is None:
            self._task = asyncio.get_running_loop().create_future()
        return self._task

    async def _in_task(self) -> Sink:
        """The sink of the task, which is made if there is none. Raises CancelledError if there will be none."""
        assert self._execution is not None
        self._execution.become_task()
        return await asyncio.shield(self._taken_over())
