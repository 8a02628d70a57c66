"""RemoteRun: a run whose task lives on a server. The agent here reports to it over the worker API.

Invariant: reports reach the server in the order in which they were made, each once. A call whose answer was lost is
repeated under the same number.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.url_files import read_here
from dragoman.agents.worker import wire
from dragoman.client.credentials import Authorized, Credentials
from dragoman.client.errors import NoToken
from dragoman.client.http import Requester
from dragoman.engine.api import Delegation, Hear, came_to
from dragoman.model.events import ArtifactChunk, Delegated, Event, Noted, StatusChanged
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.principal import Principal
from dragoman.model.task import Progress, Record, Task, TaskHead, TaskState, Usage
from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError

T = TypeVar("T")

RETRY_S = 0.5
"""Pause before a call is repeated that did not reach the server, or that the server could not take."""

CALL_S = 30.0
"""How long a call may take beyond the time for which it asks to wait."""


class Refused(Exception):
    """The server refused a call. `lost`: the lease is over."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.lost = status == 409
        self.temporary = status >= 500 or status == 429


class Server:
    """The worker API of one agent on one server. The worker authenticates by a `key`, or by other `credentials`."""

    def __init__(
        self, egress: Egress, url: str, agent: str, key: str | None = None, credentials: Credentials | None = None
    ) -> None:
        self.agent = agent
        self._way: Requester = egress if credentials is None else Authorized(egress, credentials)
        self._base = f"{url.rstrip('/')}/workers/{agent}"
        self._headers = {"Content-Type": "application/json"} | ({"x-api-key": key} if key else {})

    async def call(self, action: str, body: Struct, into: type[T], wait_s: float = 0.0) -> T | None:
        """Make one call; None if the answer is empty. Raises Refused, or EgressError if there is no answer."""
        try:
            reply = await self._way.request(
                "POST",
                f"{self._base}/{action}",
                timeout_s=wait_s + CALL_S,
                headers=self._headers,
                body=msgspec.json.encode(body),
            )
        except NoToken as error:
            raise Refused(401 if error.permanent else 503, str(error)) from error
        if reply.status == 204:
            return None
        if reply.status != 200:
            raise Refused(reply.status, _reason(reply.body))
        return msgspec.json.decode(reply.body, type=into)


class RemoteRun:
    """See `engine.api.Run`. Every method raises CancelledError once the lease is over."""

    def __init__(self, server: Server, delivery: wire.Delivery) -> None:
        task = delivery.task
        self.lease = delivery.lease
        self.expires_s = delivery.expires_s
        self.message = delivery.message
        self.principal = Principal(delivery.principal)
        self.skill = delivery.skill
        self.skills = delivery.skills
        self.extensions = delivery.extensions
        self.traceparent = delivery.traceparent
        self.lineage = delivery.lineage
        self.epoch = 1
        self.ending = False
        """Whether the end of the task is on its way. The lease ends with it."""
        self.over = False
        """Whether the server has said that the lease is over."""
        self.head = TaskHead(
            id=task.id,
            context_id=task.context_id,
            agent=server.agent,
            owner=delivery.principal,
            dialect="",
            mount="",
            created_at=task.status.timestamp,
            skill=delivery.skill,
            skills=delivery.skills,
            metadata=delivery.metadata,
            extensions=delivery.extensions,
        )
        self._server = server
        self._fold = Fold(self.head, replace(_record(self.head, task), note=delivery.note))
        self._notes: dict[str, str] = {}
        self._numbers = 0
        self._questions = 0
        self._orders = 0
        self._used: Usage | None = None
        self._turn = asyncio.Lock()

    @property
    def record(self) -> Record:
        """The task as it was leased, plus what was reported since."""
        return self._fold.record()

    async def status(
        self, parts: Sequence[Part], *, progress: tuple[int, int] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report while `working`."""
        async with self._turn:
            update = wire.Update(
                self.lease,
                message=wire.Said(tuple(parts)) if parts else None,
                progress=None if progress is None else wire.Steps(*progress),
                metadata=metadata,
                usage=self._take_usage(),
                number=self._next(),
            )
            await self.tell("update", update, wire.Nothing)
            said = self._message(parts) if parts else None
            at = None if progress is None else Progress(*progress)
            self._add(StatusChanged(TaskState.WORKING, self.head.created_at, said, at))

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Emit an artifact or a chunk of one."""
        async with self._turn:
            chunk = wire.Chunk(
                self.lease,
                wire.given(artifact),
                append=append,
                last_chunk=last_chunk,
                usage=self._take_usage(),
                number=self._next(),
            )
            await self.tell("artifact", chunk, wire.Nothing)
            self._add(ArtifactChunk(artifact, append, last_chunk))

    def usage(self, usage: Usage) -> None:
        """Add to the tokens used. They are sent with the next report."""
        self._used = (self._used or Usage()) + usage

    async def written(self) -> None:
        """Return at once: the server has taken all reports, and writes them."""

    def landing(self, done: "asyncio.Future[None]") -> None:
        """Complete `done` at once: no write is in progress here."""
        if not done.done():
            done.set_result(None)

    canceled = False
    shown = None

    def note(self, **note: str) -> None:
        """Write notes down. The server stores them with the next question."""
        self._notes |= note
        self._add(Noted(note))

    async def noted(self) -> dict[str, str]:
        """Return no notes: earlier tasks of the conversation are not known here."""
        return {}

    async def read(self, part: Part) -> bytes:
        """Return the bytes of a file part, fetched from here: see `engine.api.Run.read`."""
        return await read_here(part)

    def caught_up(self) -> None:
        """Do nothing: the server replays."""

    def working(self) -> None:
        """Do nothing: the server has been told at the beginning."""

    def waiting(self, parts: Sequence[Part]) -> None:
        """Do nothing: nobody is there to be told."""

    def goes_on(self) -> None:
        """Do nothing: the server has the output of earlier runs, and lets it be replaced."""

    async def ask(self, parts: Sequence[Part], *, auth: bool = False) -> Message:
        """Put the task into `input-required` (or `auth-required`) and wait for the caller's next message."""
        async with self._turn:
            if self._used is not None:
                await self.tell(
                    "update", wire.Update(self.lease, usage=self._take_usage(), number=self._next()), wire.Nothing
                )
            self._questions += 1
            wait_s = min(self.expires_s / 2, wire.WAIT_S_MAX)
            note, self._notes = self._notes or None, {}
            question = wire.Question(self.lease, wire.Said(tuple(parts)), auth, self._questions, wait_s, note)
            while True:
                reply = await self.tell("ask", question, wire.Reply, wait_s)
                if reply is not None and reply.answer is not None:
                    return reply.answer

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Give a task to another agent of the server. `hear` gets each artifact only when it is whole."""
        self._orders += 1
        wait_s = min(self.expires_s / 2, wire.WAIT_S_MAX)
        told = wire.Order(
            self.lease,
            order.agent,
            message=wire.Said(order.parts),
            skill=order.skill,
            context_id=order.context_id,
            timeout_s=order.timeout_s,
            progress=order.progress,
            asks=order.asks,
            detach=order.detach,
            delegation=self._orders,
            wait_s=wait_s,
        )
        while True:
            reply = await self.tell("delegate", told, wire.Handed, wait_s)
            if reply is not None and (came := reply.outcome) is not None:
                break
        usage = None if came.usage is None else came.usage.usage()
        delegated = Delegated(
            told.delegation, came.agent, came.task_id, came.state, came.timestamp, came.message, came.artifacts, usage
        )
        if hear is not None:
            for artifact in delegated.artifacts:
                await hear(ArtifactChunk(artifact, last_chunk=True))
        return came_to(delegated, order)

    async def references(self) -> tuple[Record, ...]:
        """The tasks that the message names, as far as they are the caller's."""
        found = await self.tell("references", wire.PastRequest(self.lease), wire.Tasks)
        return () if found is None else tuple(_record(_head(self.head, task), task) for task in found.tasks)

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context before this run, oldest first."""
        found = await self.tell("history", wire.PastRequest(self.lease, limit), wire.Messages)
        return () if found is None else found.messages

    async def end(self, state: TaskState, parts: Sequence[Part] = ()) -> None:
        """Report how the task ended."""
        async with self._turn:
            self.ending = True
            said = wire.Said(tuple(parts)) if parts else None
            if state is TaskState.COMPLETED and said is None:
                await self.tell("complete", wire.Completion(self.lease, usage=self._take_usage()), wire.Nothing)
            else:
                update = wire.Update(self.lease, state=state.value, message=said, usage=self._take_usage())
                await self.tell("update", update, wire.Nothing)

    async def tell(self, action: str, body: Struct, into: type[T], wait_s: float = 0.0) -> T | None:
        """Make a call under the lease, repeated until it is answered.

        Raises Refused, or CancelledError if the lease is over.
        """
        while True:
            try:
                return await self._server.call(action, body, into, wait_s)
            except EgressError:
                await asyncio.sleep(RETRY_S)
            except Refused as refused:
                if refused.lost:
                    self.over = True
                    raise asyncio.CancelledError("the lease is over") from refused
                if not refused.temporary:
                    raise
                await asyncio.sleep(RETRY_S)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _take_usage(self) -> wire.Tokens | None:
        used, self._used = self._used, None
        return None if used is None else wire.Tokens(used.input_tokens, used.output_tokens, used.total_tokens)

    def _message(self, parts: Sequence[Part]) -> Message:
        return Message(message_id=f"{self.head.id}-{self._numbers}", role=Role.AGENT, parts=tuple(parts))

    def _add(self, event: Event) -> None:
        self._fold.add(self._fold.seq + 1, event)


def _record(head: TaskHead, task: Task) -> Record:
    return Record(head=head, seq=1, status=task.status, artifacts=task.artifacts, history=task.history)


def _head(like: TaskHead, task: Task) -> TaskHead:
    return msgspec.structs.replace(
        like, id=task.id, context_id=task.context_id, created_at=task.status.timestamp, metadata=task.metadata
    )


def _reason(content: bytes) -> str:
    try:
        answer: Mapping[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
        return str(answer["error"]["message"])
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError):
        return content[:200].decode("utf-8", "replace")
