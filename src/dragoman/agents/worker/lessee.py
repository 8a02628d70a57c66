"""Lessee: takes an agent's tasks from a server and runs the agent on them, in this process.

Invariant: reports reach the server in the order in which they were made, each once. A call whose answer was lost is
repeated under the same number. A task that is canceled, or whose lease is over, is worked on only as long as its agent
takes to stop.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.detached_run import DetachedRun
from dragoman.agents.url_files import read_here
from dragoman.agents.worker import wire
from dragoman.client.credentials import Authorized, Credentials
from dragoman.client.errors import NoToken
from dragoman.client.http import Requester
from dragoman.engine.api import Delegation, Ended, Hear, Reject, Runner, came_to
from dragoman.engine.bounds import Bounds, flag, integer, steps
from dragoman.engine.bounds import usage as check_usage
from dragoman.model.events import ArtifactChunk, Delegated, Event, Noted, StatusChanged
from dragoman.model.ids import new_id
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.principal import Principal
from dragoman.model.task import Progress, Record, Task, TaskHead, TaskState, Usage
from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError

log = logging.getLogger("dragoman.worker")

T = TypeVar("T")

RETRY_S = 0.5
"""Pause before a call is repeated that did not reach the server, or that the server could not take."""

CALL_S = 30.0
"""How long a call may take beyond the time for which it asks to wait."""

ELSEWHERE_S = 5.0
"""The same for a heartbeat where other servers could be called. Those are tried before the lease is over."""

RETRY_S_MAX = 5.0
"""Longest pause before the next call to a server that was not reached."""

BEAT_S_MIN = 0.2
"""Shortest time between two heartbeats, if the server answers at once."""

LEAVE_S = 5.0
"""How long a canceled agent may clean up before it is left behind."""

LEAVE_AT_STOP_S = 1.5
"""The same when the worker stops, which is to be over soon."""

GIVE_BACK_S = 1.0
"""How long a server may take to accept a task that is given back; after that, its lease runs out."""


class CallRefused(Exception):
    """The server refused a call.

    `lost`: the lease is over; `unidentified`: the key is missing or not valid; `unknown`: it has no such agent.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.lost = status == 409
        self.unidentified = status == 401
        self.unknown = status == 404
        self.temporary = status >= 500 or status == 429


class WorkerApi:
    """The worker API of one agent on one server. The worker authenticates by a `key`, or by other `credentials`.

    `others` are the URLs of more servers on the same store. Calls go to the next one when one does not answer.
    """

    def __init__(
        self,
        egress: Egress,
        url: str,
        agent: str,
        key: str | None = None,
        credentials: Credentials | None = None,
        others: Sequence[str] = (),
    ) -> None:
        self.agent = agent
        self.beat_s = ELSEWHERE_S if others else CALL_S
        """How long a heartbeat may take beyond the time for which it asks to wait."""
        self.beat_part = 0.25 if others else 0.5
        """The part of a lease for which a heartbeat waits. One that hangs leaves time for another server."""
        self._http: Requester = egress if credentials is None else Authorized(egress, credentials)
        self._bases = tuple(f"{one.rstrip('/')}/workers/{agent}" for one in (url, *others))
        self._turns = 0
        self._headers = {"Content-Type": "application/json"} | ({"x-api-key": key} if key else {})

    async def call(
        self, action: str, body: Struct, into: type[T], wait_s: float = 0.0, call_s: float = CALL_S
    ) -> T | None:
        """Make one call; None if the answer is empty. Raises CallRefused, or EgressError if there is no answer."""
        turn = self._turns
        try:
            reply = await self._http.request(
                "POST",
                f"{self._bases[turn % len(self._bases)]}/{action}",
                timeout_s=wait_s + call_s,
                headers=self._headers,
                body=msgspec.json.encode(body),
            )
        except NoToken as error:
            raise CallRefused(401 if error.permanent else 503, str(error)) from error
        except EgressError:
            self._turn_from(turn)
            raise
        if reply.status == 204:
            return None
        if reply.status != 200:
            if reply.status >= 500:
                self._turn_from(turn)
            raise CallRefused(reply.status, _reason(reply.body))
        return msgspec.json.decode(reply.body, type=into)

    def _turn_from(self, turn: int) -> None:
        """Call the next server from now on, unless another call has done that already."""
        if turn == self._turns:
            self._turns += 1


class RemoteRun(DetachedRun):
    """See `engine.api.Run`. Every method raises CancelledError once the lease is over."""

    def __init__(self, server: WorkerApi, delivery: wire.LeasedTask) -> None:
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
        self.bounds = Bounds(delivery.max_text)
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
        self._answered_with: dict[str, dict[str, Any] | None] = {}
        """By answer, the metadata of its request."""
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
        parts, progress = self.bounds.parts("parts", parts), steps(progress)
        metadata = self.bounds.metadata("metadata", metadata)
        async with self._turn:
            update = wire.StatusReport(
                self.lease,
                message=wire.WorkerMessage(tuple(parts)) if parts else None,
                progress=None if progress is None else wire.Steps(*progress),
                metadata=metadata,
                usage=self._take_usage(),
                number=self._next(),
            )
            await self.tell("update", update, wire.EmptyReply)
            said = self._message(parts) if parts else None
            at = None if progress is None else Progress(*progress)
            self._add(StatusChanged(TaskState.WORKING, self.head.created_at, said, at))

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Emit an artifact or a chunk of one."""
        artifact = self.bounds.artifact(artifact)
        append, last_chunk = flag("append", append), flag("last_chunk", last_chunk)
        async with self._turn:
            chunk = wire.ArtifactReport(
                self.lease,
                wire.encode_artifact(artifact),
                append=append,
                last_chunk=last_chunk,
                usage=self._take_usage(),
                number=self._next(),
            )
            await self.tell("artifact", chunk, wire.EmptyReply)
            self._add(ArtifactChunk(artifact, append, last_chunk))

    def usage(self, usage: Usage) -> None:
        """Add to the tokens used. They are sent with the next report."""
        self._used = (self._used or Usage()) + check_usage(usage)

    def note(self, /, **note: str) -> None:
        """Write notes down. The server stores them with the next question."""
        note = self.bounds.note(note)
        self._notes |= note
        self._add(Noted(note))

    def note_soon(self, /, **note: str) -> None:
        """Write notes down, as `note`."""
        self.note(**note)

    async def read(self, part: Part) -> bytes:
        """Return the bytes of a file part, fetched from here: see `engine.api.Run.read`."""
        return await read_here(part)

    async def ask(self, parts: Sequence[Part], *, auth: bool = False) -> Message:
        """Put the task into `input-required` (or `auth-required`) and wait for the caller's next message."""
        parts = self.bounds.parts("parts", parts)
        async with self._turn:
            if self._used is not None:
                await self.tell(
                    "update",
                    wire.StatusReport(self.lease, usage=self._take_usage(), number=self._next()),
                    wire.EmptyReply,
                )
            self._questions += 1
            wait_s = min(self.expires_s / 2, wire.WAIT_S_MAX)
            note, self._notes = self._notes or None, {}
            question = wire.AskRequest(
                self.lease, wire.WorkerMessage(tuple(parts)), auth, self._questions, wait_s, note
            )
            while True:
                reply = await self.tell("ask", question, wire.AskReply, wait_s)
                if reply is not None and reply.answer is not None:
                    self._answered_with[reply.answer.message_id] = reply.metadata
                    return reply.answer

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Give a task to another agent of the server. `hear` gets each artifact only when it is whole."""
        order = order.check(self.bounds, self.message.parts)
        self._orders += 1
        wait_s = min(self.expires_s / 2, wire.WAIT_S_MAX)
        told = wire.DelegateRequest(
            self.lease,
            order.agent,
            message=wire.WorkerMessage(order.parts),
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
            reply = await self.tell("delegate", told, wire.DelegateReply, wait_s)
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
        found = await self.tell("references", wire.PastRequest(self.lease), wire.ReferencesReply)
        return () if found is None else tuple(_record(_head(self.head, task), task) for task in found.tasks)

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """The metadata of the request that brought a message: it came with the task, or with the answer."""
        return self.head.metadata if message is self.message else self._answered_with.get(message.message_id)

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context before this run, oldest first."""
        found = await self.tell("history", wire.PastRequest(self.lease, integer("limit", limit)), wire.HistoryReply)
        return () if found is None else found.messages

    async def end(self, state: TaskState, parts: Sequence[Part] = ()) -> None:
        """Report how the task ended."""
        async with self._turn:
            self.ending = True
            said = wire.WorkerMessage(tuple(parts)) if parts else None
            if state is TaskState.COMPLETED and said is None:
                await self.tell(
                    "complete", wire.CompletionReport(self.lease, usage=self._take_usage()), wire.EmptyReply
                )
            else:
                update = wire.StatusReport(self.lease, state=state.value, message=said, usage=self._take_usage())
                await self.tell("update", update, wire.EmptyReply)

    async def tell(self, action: str, body: Struct, into: type[T], wait_s: float = 0.0) -> T | None:
        """Make a call under the lease, repeated until it is answered.

        Raises CallRefused, or CancelledError if the lease is over.
        """
        while True:
            try:
                return await self._server.call(action, body, into, wait_s)
            except EgressError:
                await asyncio.sleep(RETRY_S)
            except CallRefused as refused:
                if refused.lost:
                    self.over = True
                    raise asyncio.CancelledError("the lease is over") from refused
                if not refused.temporary:
                    raise
                await asyncio.sleep(RETRY_S)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _take_usage(self) -> wire.WorkerTokens | None:
        used, self._used = self._used, None
        if used is None:
            return None
        models = tuple(
            wire.WorkerModelTokens(each.model, each.input_tokens, each.output_tokens, each.total_tokens)
            for each in used.models
        )
        return wire.WorkerTokens(used.input_tokens, used.output_tokens, used.total_tokens, models)

    def _message(self, parts: Sequence[Part]) -> Message:
        return Message(message_id=f"{self.head.id}-{self._numbers}", role=Role.AGENT, parts=tuple(parts))

    def _add(self, event: Event) -> None:
        self._fold.add(self._fold.seq + 1, event)


class Lessee:
    """A worker for one agent, with at most `tasks` at once. `name` identifies this worker to the server."""

    def __init__(self, agent: Runner, server: WorkerApi, *, name: str, tasks: int) -> None:
        self._agent = agent
        self._server = server
        self._name = name
        self._leave_s = LEAVE_S
        self._slots = asyncio.Semaphore(tasks)

    async def work(self, stop: asyncio.Event, grace_s: float) -> None:
        """Take tasks until `stop`; then give those back that do not end within `grace_s`."""
        stopping = asyncio.ensure_future(stop.wait())
        running: set[asyncio.Task[None]] = set()
        try:
            while not stop.is_set():
                slot = asyncio.ensure_future(self._slots.acquire())
                await asyncio.wait((slot, stopping), return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    slot.cancel()
                    break
                taking = asyncio.ensure_future(self._take())
                await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    taking.cancel()
                    break
                task = asyncio.create_task(self._run(taking.result()))
                running.add(task)
                task.add_done_callback(running.discard)
                task.add_done_callback(lambda _: self._slots.release())
            if running:
                await asyncio.wait(running, timeout=grace_s)
        finally:
            stopping.cancel()
            self._leave_s = LEAVE_AT_STOP_S
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    async def _take(self) -> wire.LeasedTask:
        """Wait for the next task, however long it takes."""
        pause_s = RETRY_S
        request = wire.TakeRequest(self._name, wait_s=wire.WAIT_S_MAX, replays=True)
        while True:
            try:
                delivery = await self._server.call("lease", request, wire.LeasedTask, wire.WAIT_S_MAX)
            except (EgressError, CallRefused) as error:
                if isinstance(error, CallRefused) and not error.temporary:
                    raise
                log.warning("agent %s: cannot ask for tasks, trying again: %s", self._server.agent, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
                continue
            if pause_s != RETRY_S:
                log.info("agent %s: the server answers", self._server.agent)
                pause_s = RETRY_S
            if delivery is not None:
                return delivery

    async def _run(self, delivery: wire.LeasedTask) -> None:
        """Do one task. Returns when it has ended, or was canceled or lost."""
        run = RemoteRun(self._server, delivery)
        doing = asyncio.create_task(self._do(run))
        beating = asyncio.create_task(self._beat(run))
        try:
            await asyncio.wait((doing, beating), return_when=asyncio.FIRST_COMPLETED)
            if run.ending:
                await asyncio.wait((doing,), timeout=CALL_S)
        finally:
            doing.cancel()
            await asyncio.wait((doing,), timeout=self._leave_s)
            beating.cancel()
            await asyncio.wait((beating,))
            if not doing.done() or doing.cancelled():
                await self._give_back(run)

    async def _do(self, run: RemoteRun) -> None:
        try:
            await self._agent.run(run)
        except Reject as reject:
            await self._end(run, TaskState.REJECTED, _text(str(reject)))
        except Ended as ended:
            await self._end(run, ended.state, ended.parts)
        except (Exception, SystemExit, BaseExceptionGroup, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (run.over or task is None or task.cancelling()):
                raise
            reference = new_id()[-12:]
            log.error(
                "agent %s raised in task %s (reference %s)",
                self._server.agent,
                run.head.id,
                reference,
                exc_info=error,
            )
            await self._end(run, TaskState.FAILED, _text(f"The agent failed (reference {reference})."))
        else:
            await self._end(run, TaskState.COMPLETED)

    async def _end(self, run: RemoteRun, state: TaskState, parts: Sequence[Part] = ()) -> None:
        try:
            await run.end(state, parts)
        except CallRefused as refused:
            log.warning("task %s: its end was refused: %s", run.head.id, refused)

    async def _beat(self, run: RemoteRun) -> None:
        """Keep the lease. Returns when the task is canceled or lost."""
        wait_s = min(run.expires_s * self._server.beat_part, wire.WAIT_S_MAX)
        request = wire.HeartbeatRequest(run.lease, wait_s, answers=1 << 30)  # answers come by `ask` instead
        clock = asyncio.get_running_loop().time
        heard = clock()
        while True:
            began = clock()
            try:
                pulse = await self._server.call("heartbeat", request, wire.HeartbeatReply, wait_s, self._server.beat_s)
            except (EgressError, CallRefused) as error:
                if run.ending:
                    return
                if isinstance(error, CallRefused) and not error.temporary:
                    log.warning("task %s is lost: %s", run.head.id, error)
                    return
                if clock() - heard > run.expires_s:
                    log.warning("task %s is lost: the server cannot be reached: %s", run.head.id, error)
                    return
            else:
                heard = clock()
                if pulse is None or pulse.cancel:
                    run.canceled = pulse is not None
                    log.info("task %s is canceled", run.head.id)
                    return
            await asyncio.sleep(max(0.0, BEAT_S_MIN - (clock() - began)))

    async def _give_back(self, run: RemoteRun) -> None:
        """Let another worker have the task at once. The server refuses this for one that was canceled or lost."""
        try:
            async with asyncio.timeout(GIVE_BACK_S):
                await self._server.call("release", wire.ReleaseRequest(run.lease), wire.EmptyReply)
        except (EgressError, CallRefused, TimeoutError):
            return


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


def _text(text: str) -> tuple[Part, ...]:
    return (Part(text=text),) if text else ()
