"""DirectRun: one execution of an agent that answers with a Message instead of a task.

Invariant: nothing is written while it runs. Everything that the agent emits becomes one message.
"""

import asyncio
from asyncio import get_running_loop
from collections.abc import Sequence
from typing import Any

from dragoman.engine.api import Delegation, Ended, Hear, Reject, Runner
from dragoman.engine.bounds import Bounds, flag, steps
from dragoman.engine.bounds import usage as check_usage
from dragoman.engine.runs.history import History
from dragoman.engine.runs.run import failed, full_lineage
from dragoman.model.errors import InternalError, Unavailable, UnsupportedOperation
from dragoman.model.events import ArtifactChunk, Delegated, Event, Logged, Submitted
from dragoman.model.lifecycle import fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import CallerCredentials
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead, TaskState, Usage


def answer_with(record: Record, words: Sequence[Part], message_id: str) -> Message:
    """The Message that holds the parts of all artifacts, followed by the agent's last words."""
    parts = [part for artifact in record.artifacts for part in artifact.parts]
    return Message(
        message_id=message_id,
        role=Role.AGENT,
        parts=(*parts, *words) or (Part(text=""),),
        context_id=record.head.context_id,
    )


class DirectRun:
    """See `engine.api.Run`. There is no task, so `ask` fails, and progress goes nowhere."""

    def __init__(
        self, runner: Runner, head: TaskHead, message: Message, past: History, bounds: Bounds, server: str = ""
    ) -> None:
        self.head = head
        self.message = message
        self.principal = Principal(head.owner)
        self.skill = head.skill
        self.skills = head.skills
        self.extensions = head.extensions
        self.traceparent = head.traceparent
        self.epoch = 1
        self.bounds = bounds
        self._runner = runner
        self._past = past
        self._server = server
        self.used: Usage | None = None
        """The tokens used so far."""
        self._events: list[Event] = [Submitted(message, head.created_at)]

    async def answer(self, message_id: str, timeout_s: float, setting: str = "blocking_timeout_s") -> Message:
        """Run the agent and return everything it emitted as one message.

        Raises UnsupportedOperation if it rejects, Unavailable if it takes longer than `timeout_s`, which `setting`
        says, else InternalError.
        """
        limit, last = asyncio.timeout(timeout_s), tuple[Part, ...]()
        try:
            async with limit:
                await get_running_loop().create_task(self._run_to_end())
        except Reject as reject:
            raise UnsupportedOperation(str(reject) or "the agent rejected the message") from reject
        except Ended as ended:
            last = ended.parts
            if ended.state is TaskState.REJECTED:
                raise UnsupportedOperation(
                    "".join(part.text or "" for part in last) or "the agent rejected the message"
                ) from ended
            if ended.state is not TaskState.COMPLETED:
                raise InternalError(failed(self.head, "failed", ended)) from ended
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            raise InternalError(failed(self.head, "canceled itself", error)) from error
        except BaseException as error:
            if limit.expired():
                raise Unavailable(f"{self.head.agent} did not answer within {timeout_s:g} s ({setting})") from error
            raise InternalError(failed(self.head, "raised", error)) from error
        return answer_with(self.record, last, message_id)

    async def _run_to_end(self) -> None:
        """Run the agent. Raises what it raises, or TypeError or ValueError if its last words cannot be sent.

        It has an asyncio task of its own: the call's task is not the agent's to cancel.
        """
        try:
            await self._runner.run(self)
        except Ended as ended:
            end = ended.check(self.bounds)
            raise Ended(end.state, end.parts, end.reason) from ended
        except Reject as reject:
            self.bounds.text("reason", str(reject))
            raise
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as ended:  # no asyncio task can end with one
            raise RuntimeError(f"{type(ended).__name__} in an agent") from ended

    @property
    def canceled(self) -> bool:
        """Always False: without a task there is nothing to cancel."""
        return False

    @property
    def shown(self) -> CallerCredentials | None:
        """Always None: credentials are not passed on."""
        return None

    def note(self, /, **note: str) -> None:
        """Keep nothing: there is no later run."""
        self.bounds.note(note)

    def note_soon(self, /, **note: str) -> None:
        """Keep nothing: there is no later run."""
        self.bounds.note(note)

    async def noted(self) -> dict[str, str]:
        """The last note of an earlier task of the context."""
        return await self._past.note(self.head)

    @property
    def lineage(self) -> tuple[str, ...]:
        """The agents through which the message came, this one last."""
        return full_lineage(self.head, self._server)

    @property
    def record(self) -> Record:
        """Everything emitted so far, as a task would hold it."""
        return fold(self.head, None, (Logged(seq, event) for seq, event in enumerate(self._events, 1)))

    async def status(
        self, parts: Sequence[Part], *, progress: tuple[int, int] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report nothing: the caller only sees the message."""
        self.bounds.parts("parts", parts)
        self.bounds.metadata("metadata", metadata)
        steps(progress)

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Keep the artifact for the answer."""
        if not self.bounds.weigh_plain(artifact):
            artifact = self.bounds.artifact(artifact)
        if not append.__class__ is last_chunk.__class__ is bool:
            append, last_chunk = flag("append", append), flag("last_chunk", last_chunk)  # type: ignore[unreachable]
        self._events.append(ArtifactChunk(artifact, append, last_chunk))

    def usage(self, usage: Usage) -> None:
        """Add to the tokens used. A Message has no field for them, but they are counted."""
        self.used = (self.used or Usage()) + check_usage(usage)

    def note_next(self, /, *, usage: bool = False, **note: str) -> None:
        """Do nothing: there is no later run."""

    async def written(self) -> None:
        """Return at once: nothing is written."""

    def landing(self, done: "asyncio.Future[None]") -> None:
        """Set the result of `done` at once: nothing is written."""
        if not done.done():
            done.set_result(None)

    def caught_up(self) -> None:
        """Do nothing: there is no replay."""

    def known(self, count: int, *, replays: bool) -> tuple[Message, ...]:
        """Return nothing: there is no earlier run."""
        return ()

    def carries_on(self, handed: int) -> None:
        """Do nothing: there is no earlier run."""

    def working(self) -> None:
        """Do nothing: there is no task to be `working`."""

    def waiting(self, parts: Sequence[Part]) -> None:
        """Do nothing: the caller only sees the message."""

    def goes_on(self) -> None:
        """Do nothing: there is no earlier run."""

    async def ask(self, parts: Sequence[Part], *, auth: bool = False) -> Message:
        """Raises RuntimeError: without a task nothing can wait for an answer."""
        raise RuntimeError(f"agent {self.head.agent!r} is declared direct: it cannot ask; leave direct=True out")

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Raises RuntimeError: a delegation needs a task as its parent."""
        raise RuntimeError(f"agent {self.head.agent!r} is declared direct: it cannot delegate; leave direct=True out")

    async def references(self) -> tuple[Record, ...]:
        """The caller's own tasks among those that the message names."""
        return await self._past.references(self.head, self.message.reference_task_ids)

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """The metadata of the request: there is only one."""
        return self.head.metadata

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context, oldest first."""
        return await self._past.messages(self.head, limit)

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part. Raises Unreadable."""
        return await self._past.read(part)
