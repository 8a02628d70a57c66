"""Lessee: takes an agent's tasks from a server and runs the agent on them, in this process.

Invariant: reports reach the server in the order in which they were made, each once. A call whose answer was lost is
repeated under the same number. A task that is canceled, or whose lease is over, is worked on only as long as its agent
takes to stop.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from dragoman.agents.url_files import read_here
from dragoman.agents.worker import wire
from dragoman.agents.worker.recorded_words import ELSEWHERE, read_replay
from dragoman.agents.worker.served_state import ServedSpace
from dragoman.client.credentials import Authorized, Credentials
from dragoman.client.errors import NoToken
from dragoman.client.http import Requester
from dragoman.engine.api import Ended, Execute, Hear, Reject, Run, Runner, Traits
from dragoman.engine.bounds import Bounds
from dragoman.engine.lineage import child_of
from dragoman.engine.runs.endings import ask_about_step, mismatched
from dragoman.engine.runs.places import (
    ExecutedStep,
    RunPlaces,
    begin_first_branch,
    executing_step,
    place_tasks,
    present_branch,
    refuse_within_step,
    step_key,
)
from dragoman.engine.runs.replay import NOTHING, Replay, ReplayMismatch, question_name
from dragoman.engine.words import (
    JSON_FORM,
    PATCHED,
    Ask,
    Delegation,
    End,
    Note,
    Say,
    Sleep,
    Step,
    StepDone,
    Waiting,
    Working,
)
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Logged,
    MessageReceived,
    Noted,
    Placed,
    StatusChanged,
    StepFailure,
    Stepped,
)
from dragoman.model.headers import RequestHeaders, TaskHeaders
from dragoman.model.ids import new_id, timestamp
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Progress, Record, Task, TaskHead, TaskState, Usage
from dragoman.model.title import TITLE_NOTE
from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError
from dragoman.store.state import StateKind

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

KEPT_SLEEP_S = 5.0
"""A worker keeps its task for a sleep of at most so long."""

HEAR_S = 1.0
"""How often a worker that keeps a sleeping task looks for the message that is to wake it."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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


class ServerSink:
    """See `engine.api.Sink`: the words go to the server from which the task was leased, in a `delivery`.

    The words of an earlier worker are not sent again: they are replayed here, from the log of the task. Nothing is
    written here: the server does that. `traits` are those of the agent.
    """

    def __init__(self, server: WorkerApi, delivery: wire.LeasedTask, traits: Traits) -> None:
        task = delivery.task
        self.lease = delivery.lease
        self.expires_s = delivery.expires_s
        self.lineage = delivery.lineage
        self.gives_headers = delivery.headers is not UNSET
        self.headers: TaskHeaders | None = None
        self._note_headers(delivery.headers)
        self.canceled = False
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
        self.imposed: End | None = None
        """The end that a difference from what is recorded imposes on the task, whatever the agent does now."""
        self.replay: Replay = NOTHING
        self._recorded = delivery.recorded
        self._keeps_state = delivery.keeps_state is True
        self._traits = traits
        self._places = RunPlaces(counted=False)
        self._server = server
        self._fold = Fold(self.head, replace(_record(self.head, task), note=delivery.note))
        self._notes: dict[str, str] = {}
        self._answered_with: dict[str, dict[str, Any] | None] = {}
        """By answer, the metadata of its request."""
        self._numbers = 0
        self._confirmed = 0
        """The newest of these numbers that the server has confirmed."""
        self._heard = ""
        """The id of the last answer, or of the task with the last outcome, that this worker was given."""
        self._questions = 0
        self._used: Usage | None = None
        self._title: str | None = None
        """The title that no report has taken along yet."""
        self._turn = asyncio.Lock()
        self._patches: dict[str, bool] = {}
        self._patching = asyncio.Lock()

    def stop(self, *, canceled: bool) -> None:
        """The task is worked on no longer: it is `canceled`, or its lease is over."""
        self.canceled = canceled

    def _note_headers(self, given: dict[str, dict[str, str]] | UnsetType) -> None:
        """Keep the headers of the caller's requests as the server has them now, by message."""
        if given is not UNSET:
            known = {message_id: RequestHeaders(MappingProxyType(each)) for message_id, each in given.items()}
            self.headers = TaskHeaders(known) if known else None

    async def recall(self) -> None:
        """Read what an earlier worker of the task has said and heard, before the agent is run."""
        if self._recorded is UNSET:
            return
        self.replay = await read_replay(self.head, self._read_log)
        self._places = RunPlaces(counted=not self.replay.places)

    async def _read_log(self, artifacts: bool) -> list[Logged]:
        log: list[Logged] = []
        seq = 0
        while self._recorded is not UNSET and seq < self._recorded:
            page = await self.tell("log", wire.LogRequest(self.lease, seq, artifacts), wire.LogReply)
            if page is None or page.seq == seq:
                break
            seq = page.seq
            log += [Logged(each.seq, each.event) for each in page.events]
        for logged in log:
            if isinstance(logged.event, MessageReceived):
                self._answered_with[logged.event.message.message_id] = logged.event.metadata
        return log

    # -- engine.api.Sink -----------------------------------------------------------------------------------------------

    @property
    def record(self) -> Record:
        """The task as it was leased, plus what was reported since."""
        return self._fold.record()

    @property
    def notes(self) -> Mapping[str, str]:
        """The notes of the task as it was leased, and those that were reported since."""
        return self._fold.note or {}

    def check(self) -> None:
        """See `engine.api.Sink`. The lease may be over: the next report will tell."""

    def say(self, word: Say | ArtifactChunk, weight: int = 0) -> Awaitable[None] | None:
        """See `engine.api.Sink`. The server has the word when it has been awaited."""
        if self.replay.repeats and self.replay.drops(present_branch(), word):
            return None
        return self._report(word)

    async def _report(self, word: Say | ArtifactChunk) -> None:
        async with self._turn:
            event: Event
            if isinstance(word, Say):
                message, progress = None, word.progress
                if word.parts:
                    message = wire.WorkerMessage(word.parts)
                update = wire.StatusReport(
                    self.lease,
                    message=message,
                    progress=None if progress is None else wire.Steps(*progress),
                    metadata=word.metadata,
                    usage=self._take_usage(),
                    title=self._take_title(),
                )
                await self._tell_report("update", update)
                said = self._message(word.parts) if word.parts else None
                at = None if progress is None else Progress(*progress)
                event = StatusChanged(TaskState.WORKING, self.head.created_at, said, at)
            else:
                await self._send_title()
                chunk = wire.ArtifactReport(
                    self.lease,
                    wire.encode_artifact(word.artifact),
                    append=word.append,
                    last_chunk=word.last_chunk,
                    usage=self._take_usage(),
                )
                await self._tell_report("artifact", chunk)
                event = word
            self._add(event)

    def mark(self, word: Working | Waiting | Note | Usage) -> None:
        """See `engine.api.Sink`. Tokens and a title go with the next report, other notes with the next question."""
        match word:
            case Usage():
                if not (self.replay.repeats and self.replay.precedes(present_branch())):
                    self._used = (self._used or Usage()) + word
            case Note(note) if TITLE_NOTE in note:
                if not (self.replay.repeats and self.replay.precedes(present_branch())):
                    self._title = note[TITLE_NOTE]
                    self._add(Noted(note))
            case Note(note):
                self._notes |= note
                self._add(Noted(note))
            case _:
                pass  # the server has said so since the task was leased

    async def ask(self, word: Ask) -> Message:
        """See `engine.api.Sink`."""
        with self._places.tell("question", question_name(word.parts), word.place) as (place, _):
            with self._comparing():
                recorded = self.replay.answer(word.parts, place)
            if recorded is not None:
                return recorded
            answer = await self._put_question(word, place)
            self.replay = self.replay.keep_word(place, answer)
            return answer

    @contextmanager
    def _comparing(self) -> Iterator[None]:
        """Have the task end if the agent does not repeat in the block what is recorded."""
        try:
            yield
        except ReplayMismatch as mismatch:
            self.imposed = self.imposed or mismatched(self.head, mismatch)
            raise

    async def _put_question(self, word: Ask, place: str) -> Message:
        async with self._turn:
            await self._send_usage()
            self._questions += 1
            wait_s = min(self.expires_s / 2, wire.WAIT_S_MAX)
            note, self._notes = self._notes or None, {}
            question = wire.AskRequest(
                self.lease,
                wire.WorkerMessage(word.parts),
                word.auth,
                self._questions,
                wait_s,
                note,
                place,
            )
            while True:
                reply = await self.tell("ask", question, wire.AskReply, wait_s)
                if reply is not None and reply.answer is not None:
                    self._answered_with[reply.answer.message_id] = reply.metadata
                    self._note_headers(reply.headers)
                    self._heard = reply.answer.message_id
                    return reply.answer

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """See `engine.api.Sink`. `hear` gets each artifact only when it is whole."""
        with self._places.tell("delegation", order.agent, "" if order.number else None) as (place, number):
            number = order.number or number
            with self._comparing():
                if self.replay.delegated(number, order.agent, place) is None and self.replay.repeats:
                    self.replay.forget_passed(child_of(self.head.id, number))
            return await self._give_order(order, number, hear)

    async def _give_order(self, order: Delegation, number: int, hear: Hear | None) -> Delegated:
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
            delegation=number,
            wait_s=wait_s,
        )
        while True:
            reply = await self.tell("delegate", told, wire.DelegateReply, wait_s)
            if reply is not None and (came := reply.outcome) is not None:
                break
        self._heard = came.task_id or self._heard
        usage = None if came.usage is None else came.usage.usage()
        delegated = Delegated(
            told.delegation, came.agent, came.task_id, came.state, came.timestamp, came.message, came.artifacts, usage
        )
        if hear is not None:
            for artifact in delegated.artifacts:
                await hear(ArtifactChunk(artifact, last_chunk=True))
        return delegated

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """See `engine.api.Sink`."""
        with self._places.tell("step", word.name, key=word.key) as (place, _):
            with self._comparing():
                recorded = self.replay.stepped(word, place)
            if recorded is not None and recorded.form != ELSEWHERE:
                return recorded
            key = step_key(self.head.id, place)
            if word.soon and recorded is None:  # it costs less to make it than to ask
                return await self._record_step(word, place, await execute(key), 0)
            found = await self._begin_step(word, place)
            if isinstance(found, Stepped):
                return found
            began_s = time.monotonic()
            if (done := found) is None:
                with executing_step(ExecutedStep(word.name, key)):
                    done = await execute(key)
            return await self._record_step(word, place, done, round((time.monotonic() - began_s) * 1000))

    async def _begin_step(self, word: Step, place: str) -> Stepped | StepDone | None:
        """The recorded outcome of a step, or the one that the caller decides on; None if it is to be executed."""
        uncertain = 0 if self._traits.step_uncertain == "ask" else None
        async with self._turn:
            await self._send_title()
        while True:
            told = wire.StepRequest(
                self.lease,
                word.name,
                place=place,
                key=word.key,
                at_most_once=word.at_most_once,
                uncertain=uncertain,
            )
            if word.at_most_once:
                async with self._turn:  # its beginning is written
                    reply = await self.tell("step", told, wire.StepReply)
            else:
                reply = await self.tell("step", told, wire.StepReply)
            assert reply is not None
            if reply.run:
                return None
            if not reply.uncertain:
                return _outcome_of(word, place, reply)
            for turn in range((uncertain or 0) + 1, reply.uncertain + 1):
                if (done := await ask_about_step(word.name, f"{place}?{turn}", self.ask)) is not None:
                    return done
            uncertain = reply.uncertain

    async def _record_step(self, word: Step, place: str, done: StepDone, took_ms: int) -> Stepped:
        failure = None if done.failure is None else wire.StepFault(done.failure.type, done.failure.text)
        async with self._turn:
            await self._send_title()
            told = wire.StepResult(
                self.lease,
                word.name,
                place=place,
                key=word.key,
                parts=done.result if failure is None else None,
                form=done.form,
                failure=failure,
                attempts=done.attempts,
                took_ms=took_ms,
                usage=self._take_usage(),
            )
            await self.tell("step-result", told, wire.EmptyReply)
        now = timestamp(round(time.time() * 1000))
        stepped = Stepped(
            word.name, word.key, now, now, Placed(place), done.attempts, done.form, done.result, done.failure
        )
        self.replay = self.replay.keep_word(place, stepped)
        return stepped

    async def sleep(self, word: Sleep) -> None:
        """See `engine.api.Sink`.

        A sleep of more than `KEPT_SLEEP_S`, while nothing else of the agent is at work, ends the lease. The task comes
        to a worker again when it wakes.
        """
        with self._places.tell("sleep", "sleep") as (place, _):
            with self._comparing():
                recorded = self.replay.slept(place)
            if recorded is not None and recorded.over:
                return
            branch = present_branch()
            keeps = branch is None or not branch.alone
            if word.for_ms is not None and word.for_ms <= KEPT_SLEEP_S * 1000:
                keeps = True
            told = wire.SleepRequest(
                self.lease,
                place=place,
                seconds=None if word.for_ms is None else word.for_ms / 1000,
                until=None if word.until_ms is None else EPOCH + timedelta(milliseconds=word.until_ms),
                wake_on_message=word.wake_on_message,
                keep=keeps,
            )
            while True:
                async with self._turn:
                    await self._send_usage()
                    reply = await self.tell("sleep", told, wire.SleepReply)
                assert reply is not None
                if reply.over:
                    return
                if not keeps:
                    self.over = True
                    raise asyncio.CancelledError("the task sleeps")
                if not word.wake_on_message:
                    await asyncio.sleep(reply.left_s)
                    return
                await asyncio.sleep(min(reply.left_s, HEAR_S))

    async def patched(self, name: str) -> bool:
        """See `engine.api.Sink`. A change that the task is to know is recorded as a step."""
        refuse_within_step("patched", name)
        async with self._patching:
            if name not in self._patches:
                known = self.replay.knows_patch(name, present_branch())
                if known is None:
                    await self._record_step(Step(PATCHED, name), f"{PATCHED}:{name}", StepDone(), 0)
                self._patches[name] = known is not False
        return self._patches[name]

    async def written(self) -> None:
        """See `engine.api.Sink`. The server writes what it is given."""

    def landing(self, done: "asyncio.Future[None]") -> None:
        """See `engine.api.Sink`. No write is under way here."""
        if not done.done():
            done.set_result(None)

    async def state(self, kind: StateKind, *, wide: bool = False, shared: bool = False) -> ServedSpace | None:
        """See `engine.api.Sink`. A server of an earlier version keeps none for workers."""
        if not (self._keeps_state and self._traits.keeps(kind)):
            return None
        if not wide:
            return ServedSpace(self, self.lease, kind, "conversation")
        return ServedSpace(self, self.lease, kind, "all" if shared or self._traits.memory == "shared" else "caller")

    async def tell_state(self, request: wire.StateRequest) -> wire.StateReply:
        """See `served_state.TellState`."""
        reply = await self.tell("state", request, wire.StateReply)
        assert reply is not None, "the server answers with content"
        return reply

    async def past(self, *, context: bool = False) -> "ServerSink":
        """See `engine.api.Sink`."""
        return self

    # -- engine.api.Past -----------------------------------------------------------------------------------------------

    async def references(self, head: TaskHead, task_ids: Sequence[str]) -> tuple[Record, ...]:
        """See `engine.api.Past`. The server knows which tasks the message names."""
        found = await self.tell("references", wire.PastRequest(self.lease), wire.ReferencesReply)
        return () if found is None else tuple(_record(_head(self.head, task), task) for task in found.tasks)

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """See `engine.api.Past`. It came with the answer."""
        return self._answered_with.get(message.message_id)

    async def messages(self, head: TaskHead, limit: int) -> tuple[Message, ...]:
        """See `engine.api.Past`."""
        found = await self.tell("history", wire.PastRequest(self.lease, limit), wire.HistoryReply)
        return () if found is None else found.messages

    async def note(self, head: TaskHead) -> dict[str, str]:
        """See `engine.api.Past`. Notes of earlier tasks are not known here."""
        return {}

    async def read(self, part: Part) -> bytes:
        """See `engine.api.Past`. The bytes are fetched from here."""
        return await read_here(part)

    # -- for the worker ------------------------------------------------------------------------------------------------

    async def end(self, word: End) -> None:
        """Report how the task ended."""
        async with self._turn:
            await self._send_title()
            self.ending = True
            said = wire.WorkerMessage(word.parts) if word.parts else None
            if word.state is TaskState.COMPLETED and said is None:
                completion = wire.CompletionReport(self.lease, usage=self._take_usage())
                await self.tell("complete", completion, wire.EmptyReply)
            else:
                update = wire.StatusReport(
                    self.lease,
                    state=word.state.value,
                    message=said,
                    usage=self._take_usage(),
                    reason=word.reason,
                )
                await self.tell("update", update, wire.EmptyReply)

    def settle(self, end: End) -> End:
        """The end of the task: that of the agent, unless it has not repeated what is recorded."""
        if self.imposed is None and self.replay.active:
            self.imposed = mismatched(self.head, self.replay.left())
        return self.imposed or end

    async def tell(self, action: str, body: Struct, into: type[T], wait_s: float = 0.0) -> T | None:
        """Make a call under the lease, repeated until it is answered.

        Raises CallRefused, or CancelledError if the lease is over.
        """
        self.confirm(body)
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

    def confirm(self, body: Struct) -> None:
        """Say in a request what the server has confirmed, so that a failover which loses it ends the lease."""
        if isinstance(body, wire.Confirming):
            body.confirmed, body.heard = self._confirmed, self._heard

    async def _send_usage(self) -> None:
        """Report the tokens, and the title, that no report has taken along."""
        if self._used is not None or self._title is not None:
            update = wire.StatusReport(self.lease, usage=self._take_usage(), title=self._take_title())
            await self._tell_report("update", update)

    async def _send_title(self) -> None:
        """Report the title, with the tokens until then, before a report that takes none along."""
        if self._title is not None:
            await self._send_usage()

    def _take_title(self) -> str | None:
        title, self._title = self._title, None
        return title

    async def _tell_report(self, action: str, report: wire.StatusReport | wire.ArtifactReport) -> None:
        """Make a report under the next number."""
        self._numbers += 1
        report.number = self._numbers
        await self.tell(action, report, wire.EmptyReply)
        self._confirmed = report.number

    def _take_usage(self) -> wire.WorkerTokens | None:
        used, self._used = self._used, None
        if used is None:
            return None
        models = tuple(
            wire.WorkerModelTokens(
                each.model,
                each.input_tokens,
                each.output_tokens,
                each.total_tokens,
                each.cached_tokens,
                each.upstream,
                each.uncertain,
            )
            for each in used.models
        )
        return wire.WorkerTokens(used.input_tokens, used.output_tokens, used.total_tokens, models, used.cached_tokens)

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
        place_tasks(asyncio.get_running_loop())
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
        version = self._agent.traits.steps_version
        request = wire.TakeRequest(self._name, wait_s=wire.WAIT_S_MAX, replays=True, log=True, steps_version=version)
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
        sink = ServerSink(self._server, delivery, self._agent.traits)
        bounds = Bounds(delivery.max_text)
        run = Run(sink.head, delivery.message, sink, bounds, traceparent=delivery.traceparent)
        doing = asyncio.create_task(self._do(run, sink))
        beating = asyncio.create_task(self._beat(sink))
        try:
            await asyncio.wait((doing, beating), return_when=asyncio.FIRST_COMPLETED)
            if sink.ending:
                await asyncio.wait((doing,), timeout=CALL_S)
        finally:
            doing.cancel()
            await asyncio.wait((doing,), timeout=self._leave_s)
            beating.cancel()
            await asyncio.wait((beating,))
            if not doing.done() or doing.cancelled():
                await self._give_back(sink)

    async def _do(self, run: Run, sink: ServerSink) -> None:
        begin_first_branch()
        try:
            await sink.recall()
            await self._agent.run(run)
        except Reject as reject:
            await self._end(sink, sink.imposed or End(TaskState.REJECTED, _text(str(reject))))
        except Ended as ended:
            await self._end(sink, sink.settle(End(ended.state, ended.parts, ended.reason)))
        except (Exception, SystemExit, BaseExceptionGroup, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (sink.over or task is None or task.cancelling()):
                raise
            reference = new_id()[-12:]
            if sink.imposed is None:
                log.error(
                    "agent %s raised in task %s (reference %s)",
                    self._server.agent,
                    run.head.id,
                    reference,
                    exc_info=error,
                )
            text = _text(f"The agent failed (reference {reference}).")
            await self._end(sink, sink.imposed or End(TaskState.FAILED, text))
        else:
            await self._end(sink, sink.settle(End(TaskState.COMPLETED)))

    async def _end(self, sink: ServerSink, word: End) -> None:
        try:
            await sink.end(word)
        except CallRefused as refused:
            log.warning("task %s: its end was refused: %s", sink.head.id, refused)

    async def _beat(self, sink: ServerSink) -> None:
        """Keep the lease. Returns when the task is canceled or lost."""
        wait_s = min(sink.expires_s * self._server.beat_part, wire.WAIT_S_MAX)
        request = wire.HeartbeatRequest(sink.lease, wait_s, answers=1 << 30)  # answers come by `ask` instead
        clock = asyncio.get_running_loop().time
        heard = clock()
        while True:
            began = clock()
            try:
                pulse = await self._server.call("heartbeat", request, wire.HeartbeatReply, wait_s, self._server.beat_s)
            except (EgressError, CallRefused) as error:
                if sink.ending:
                    return
                if isinstance(error, CallRefused) and not error.temporary:
                    log.warning("task %s is lost: %s", sink.head.id, error)
                    return
                if clock() - heard > sink.expires_s:
                    log.warning("task %s is lost: the server cannot be reached: %s", sink.head.id, error)
                    return
            else:
                heard = clock()
                if pulse is None or pulse.cancel:
                    sink.stop(canceled=pulse is not None)
                    log.info("task %s is canceled", sink.head.id)
                    return
            await asyncio.sleep(max(0.0, BEAT_S_MIN - (clock() - began)))

    async def _give_back(self, sink: ServerSink) -> None:
        """Let another worker have the task at once. The server refuses this for one that was canceled or lost."""
        try:
            async with asyncio.timeout(GIVE_BACK_S):
                await self._server.call("release", wire.ReleaseRequest(sink.lease), wire.EmptyReply)
        except (EgressError, CallRefused, TimeoutError):
            return


def _outcome_of(word: Step, place: str, reply: wire.StepReply) -> Stepped:
    """The recorded outcome of a step, as the server answers."""
    now = timestamp(round(time.time() * 1000))
    failure = None if reply.failure is None else StepFailure(reply.failure.type, reply.failure.text)
    parts, form = reply.parts or (), reply.form
    if reply.parts is None and failure is None:
        parts, form = (Part(data=reply.result),), JSON_FORM
    return Stepped(word.name, word.key, now, now, Placed(place), reply.attempts, form, parts, failure)


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
