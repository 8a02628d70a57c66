"""The worker API `POST /workers/{agent}/{action}`: workers take an agent's tasks and report on them.

Invariant: without a lease a worker can neither read nor change a task. A worker that waits while its key is stopped
learns nothing more.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from math import ceil
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from dragoman.agents.content import json_of_part, recorded_json
from dragoman.agents.python.memory import VALUE_BYTES_MAX, memory_bytes_max
from dragoman.agents.worker import wire
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.leased_memory import LeasedMemory
from dragoman.agents.worker.leased_state import LeasedSpace
from dragoman.agents.worker.leases import StepStanding
from dragoman.agents.worker.words import ToldSleep, ToldStep, artifacts_of, sound_parts
from dragoman.bindings.callers import Callers
from dragoman.bindings.calls import decode_body
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint
from dragoman.bindings.http import HttpRequest, HttpResponse, error_response, json_response, read_json, unless_gone
from dragoman.bindings.limits import Limits
from dragoman.config import steps_version_fault
from dragoman.dialects import json_bounds, json_fields
from dragoman.dialects.v1.errors import encode_http_error, http_status
from dragoman.engine.handler import Handler
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.rules import VERSION_NOTE
from dragoman.engine.words import (
    FAILURE_CHARACTERS,
    JSON_FORM,
    SLEEP_MS_MAX,
    Ask,
    Delegation,
    Note,
    Say,
    Sleep,
    Step,
    StepDone,
)
from dragoman.model.errors import A2AError, InvalidParams, LeaseLost, Unauthorized, UnsupportedOperation
from dragoman.model.events import ArtifactChunk, Delegated, StepFailure
from dragoman.model.headers import TaskHeaders
from dragoman.model.ids import timestamp
from dragoman.model.operations import NOTHING_CONFIRMED, Call, CompleteTask, Confirmed, UpdateStatus
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, Task, TaskState, Usage
from dragoman.model.title import TITLE_NOTE, title_line
from dragoman.store.api import StateChanged, StateFull
from dragoman.store.state import StateEntry, StatePut

W = TypeVar("W", bound=Struct)

WorkerAction = Callable[[WorkerAgent, HttpRequest, Any], Awaitable[HttpResponse]]
"""Answers a call whose body is a wire struct."""

DIALECT = "worker"
"""The dialect of the calls made here. No task is ever made here."""

SERVER_NOTES = frozenset({".delivered", ".reported", ".used", VERSION_NOTE, TITLE_NOTE})
"""The notes that the server makes about workers, or that earlier versions of it made, and the title, which is no note
for them."""

NO_CONTENT = HttpResponse(204, [], b"")


class WorkerBinding:
    """The endpoint of all agents that workers serve. `agents` is by id, and may change at any time.

    `stops` has the keys that an operator stopped.
    """

    def __init__(
        self, handler: Handler, agents: Mapping[str, WorkerAgent], limits: Limits, stops: KeyStops | None = None
    ) -> None:
        self._handler = handler
        self._stops = stops
        self._agents = agents
        self._limits = limits
        self._actions: Mapping[str, WorkerAction] = {
            "lease": self._lease,
            "heartbeat": self._heartbeat,
            "update": self._update,
            "artifact": self._artifact,
            "ask": self._ask,
            "delegate": self._delegate,
            "step": self._step,
            "step-result": self._step_result,
            "sleep": self._sleep,
            "memory": self._memory,
            "state": self._state,
            "complete": self._complete,
            "fail": self._fail,
            "release": self._release,
            "history": self._history,
            "references": self._references,
            "log": self._log,
        }

    def endpoints(self, callers: Callers) -> Endpoints:
        """Its endpoint, for the workers among the callers."""
        return {"workers": HttpEndpoint(self.answer, self.refuse, admit=callers.admit_worker)}

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one call. The caller must have been admitted as a worker; the route's `ids` name the action.

        Raises A2AError.
        """
        agent_id, limits = request.route.agent, self._limits
        try:
            agent = self._agents[agent_id]
        except KeyError:
            unserved = f'{agent_id} is not served by workers: declare it with run = "worker"'
            raise UnsupportedOperation(unserved) from None
        name = request.route.ids["action"]  # the routes have refused any other
        body = await read_json(request, limits)
        self._check_key(request)
        decode = partial(_decode, body, wire.ACTIONS[name].request, limits.max_depth, limits.max_values)
        answer = await self._actions[name](agent, request, await decode_body(request, limits, decode))
        try:
            self._check_key(request)  # it may have waited for a minute
        except Unauthorized:
            if answer.refused is not None:
                answer.refused()
            raise
        return answer

    def refuse(self, request: HttpRequest, error: A2AError) -> HttpResponse:
        """Encode an error, as A2A 1.0 does over HTTP+JSON (§11.6)."""
        return error_response(error, http_status(error), b"application/json", encode_http_error(error))

    def _check_key(self, request: HttpRequest) -> None:
        """Raises Unauthorized if an operator has stopped the key that was sent."""
        if self._stops is not None:
            self._stops.check(request.principal.key)

    # -- tasks -------------------------------------------------------------------------------------------------------

    async def _lease(self, agent: WorkerAgent, request: HttpRequest, asked: wire.TakeRequest) -> HttpResponse:
        if asked.steps_version and (fault := steps_version_fault(asked.steps_version)):
            raise InvalidParams("steps_version", fault)
        taking = agent.leases.take(
            asked.worker, asked.wait_s, replays=asked.replays and not asked.log, steps_version=asked.steps_version
        )
        taken = await unless_gone(taking, request) if asked.wait_s else await taking
        if taken is None:
            return NO_CONTENT
        token, head = taken.lease.token, taken.head
        history = await agent.leases.tasks.past.messages(head, asked.history) if asked.history else ()
        delivered = _json(
            wire.LeasedTask(
                lease=token,
                expires_s=agent.leases.lease_s,
                task=_task(taken.record),
                message=taken.message,
                history=history,
                skill=head.skill,
                skills=head.skills,
                extensions=head.extensions,
                metadata=head.metadata,
                principal=head.owner,
                traceparent=taken.traceparent,
                lineage=taken.lineage,
                note=_worker_note(taken.record.note),
                max_text=agent.leases.tasks.bounds.max_text,
                recorded=taken.record.seq if asked.log and taken.lease.delivery > 1 else UNSET,
                keeps_state=True if asked.log else UNSET,
                headers=_headers(agent, taken.headers),
            )
        )
        return replace(delivered, refused=partial(agent.leases.cache.refuse, token))

    async def _heartbeat(self, agent: WorkerAgent, request: HttpRequest, asked: wire.HeartbeatRequest) -> HttpResponse:
        beat = await agent.leases.beat(asked.lease, asked.wait_s, asked.answers)
        headers = await _request_headers(agent, asked.lease) if beat.answers else UNSET
        return _json(wire.HeartbeatReply(beat.cancel, agent.leases.lease_s, beat.answers, headers))

    async def _release(self, agent: WorkerAgent, request: HttpRequest, asked: wire.ReleaseRequest) -> HttpResponse:
        await agent.leases.release(asked.lease)
        return NO_CONTENT

    async def _history(self, agent: WorkerAgent, request: HttpRequest, asked: wire.PastRequest) -> HttpResponse:
        head, _ = await agent.leases.task(asked.lease)
        return _json(wire.HistoryReply(await agent.leases.tasks.past.messages(head, asked.limit)))

    async def _references(self, agent: WorkerAgent, request: HttpRequest, asked: wire.PastRequest) -> HttpResponse:
        head, message = await agent.leases.task(asked.lease)
        records = await agent.leases.tasks.past.references(head, message.reference_task_ids)
        return _json(wire.ReferencesReply(tuple(_task(record) for record in records)))

    async def _log(self, agent: WorkerAgent, request: HttpRequest, asked: wire.LogRequest) -> HttpResponse:
        events, seq = await agent.leases.read_log(asked.lease, asked.after, artifacts=asked.artifacts)
        shown = tuple([wire.RecordedEvent(logged.seq, logged.event) for logged in events])
        return _json(wire.LogReply(shown, seq))

    # -- reports -----------------------------------------------------------------------------------------------------

    async def _update(self, agent: WorkerAgent, request: HttpRequest, said: wire.StatusReport) -> HttpResponse:
        parts = sound_parts(wire.parts_in(said.message), "message")
        state = wire.STATES.get(said.state)
        if state not in TERMINAL:
            _check_numbers(said)
        if said.title is not None:
            await _name_task(agent, said.lease, said.title, _confirmed(said))
        if state is TaskState.WORKING:
            steps = None if said.progress is None else (said.progress.current, said.progress.total)
            word = Say(parts, steps, said.metadata)
            await agent.leases.say(
                said.lease, word, usage=_usage(said.usage), number=said.number, confirmed=_confirmed(said)
            )
            return _json(wire.EmptyReply())
        if state is None or state not in TERMINAL | INTERRUPTED:
            raise InvalidParams("state", "must be working, input-required, auth-required, or one that ends the task")
        await _count_tokens(agent, said)
        task_id = await agent.leases.find_task(said.lease)
        report = UpdateStatus(
            id=task_id,
            state=state,
            parts=parts,
            lease=said.lease,
            reason=said.reason,
            number=said.number if state in INTERRUPTED else 0,  # an end needs none: it is the last report
            confirmed=_confirmed(said),
        )
        return await self._send_report(request, report)

    async def _artifact(self, agent: WorkerAgent, request: HttpRequest, said: wire.ArtifactReport) -> HttpResponse:
        _check_numbers(said)
        if not said.artifact.artifact_id and said.append:
            raise InvalidParams("artifact.artifactId", "is needed to append to it")
        artifact = said.artifact.artifact()
        weight = agent.leases.tasks.bounds.weigh_plain(artifact)
        if not weight:
            (artifact,) = artifacts_of((artifact,))
        last_chunk = not said.append if said.last_chunk is None else said.last_chunk
        word = ArtifactChunk(artifact, said.append, last_chunk)
        await agent.leases.say(
            said.lease,
            word,
            usage=_usage(said.usage),
            number=said.number,
            weight=weight,
            confirmed=_confirmed(said),
        )
        return _json(wire.ArtifactReply(artifact.artifact_id))

    async def _ask(self, agent: WorkerAgent, request: HttpRequest, asked: wire.AskRequest) -> HttpResponse:
        parts = sound_parts(wire.parts_in(asked.message), "message")
        if not parts:
            raise InvalidParams("message", "is required: say what you want to know")
        question = Ask(parts, asked.auth, note=asked.note, place=asked.place)
        answer = await agent.leases.ask(
            asked.lease, question, asked.question, asked.wait_s, confirmed=_confirmed(asked)
        )
        if answer is None:
            return _json(wire.AskReply(answer, agent.leases.lease_s))
        metadata = await agent.leases.request_metadata(asked.lease, answer)
        headers = await _request_headers(agent, asked.lease)
        return _json(wire.AskReply(answer, agent.leases.lease_s, metadata, headers))

    async def _delegate(self, agent: WorkerAgent, request: HttpRequest, asked: wire.DelegateRequest) -> HttpResponse:
        order = Delegation(
            agent=asked.agent,
            parts=sound_parts(wire.parts_in(asked.message), "message"),
            skill=asked.skill,
            context_id=asked.context_id,
            timeout_s=asked.timeout_s,
            progress=asked.progress,
            asks=asked.asks,
            detach=asked.detach,
            number=asked.delegation,
        )
        delegated = await agent.leases.delegate(asked.lease, order, asked.wait_s, confirmed=_confirmed(asked))
        outcome = None if delegated is None else _outcome(delegated)
        return _json(wire.DelegateReply(outcome, agent.leases.lease_s))

    async def _step(self, agent: WorkerAgent, request: HttpRequest, told: wire.StepRequest) -> HttpResponse:
        step = Step(told.name, told.key, told.at_most_once)
        word = ToldStep(step, _step_place(told), told.number, uncertain=told.uncertain)
        return _json(_step_reply(await agent.leases.step(told.lease, word, confirmed=_confirmed(told))))

    async def _step_result(self, agent: WorkerAgent, request: HttpRequest, told: wire.StepResult) -> HttpResponse:
        word = ToldStep(
            Step(told.name, told.key), _step_place(told), told.number, done=_step_done(told), took_ms=told.took_ms
        )
        standing = await agent.leases.step(told.lease, word, _usage(told.usage), confirmed=_confirmed(told))
        reply = _step_reply(standing)
        if reply.parts is not None and any(part.raw is not None for part in reply.parts):
            reply.parts = None  # it has just sent them
        return _json(reply)

    async def _sleep(self, agent: WorkerAgent, request: HttpRequest, told: wire.SleepRequest) -> HttpResponse:
        if (told.seconds is None) == (told.until is None):
            raise InvalidParams("seconds", "give either seconds or until")
        for_ms = None if told.seconds is None else ceil(told.seconds * 1000)
        until_ms = None
        if told.until is not None:
            if told.until.tzinfo is None:
                raise InvalidParams("until", "has no time zone: end it with Z, or an offset")
            until_ms = ceil(told.until.timestamp() * 1000)
            if until_ms - agent.leases.tasks.clock.now_ms() > SLEEP_MS_MAX:
                raise InvalidParams("until", "is too late: a task sleeps for ten years at most")
        sleep = Sleep(for_ms=for_ms, until_ms=until_ms, wake_on_message=told.wake_on_message)
        word = ToldSleep(sleep, _step_place(told), told.number, keeps=told.keep)
        standing = await agent.leases.sleep(told.lease, word, confirmed=_confirmed(told))
        left_ms = standing.left_ms
        return _json(wire.SleepReply(timestamp(standing.wakes_ms), over=left_ms == 0, left_s=left_ms / 1000))

    async def _memory(self, agent: WorkerAgent, request: HttpRequest, asked: wire.MemoryRequest) -> HttpResponse:
        wide, shared = _reach(asked.of)
        async with agent.leases.open_state(asked.lease, "memory", wide=wide, shared=shared) as space:
            place = _step_place(asked)
            memory = LeasedMemory(agent.leases, asked.lease, space, place, asked.number, _confirmed(asked))
            return _json(await memory.answer(asked))

    async def _state(self, agent: WorkerAgent, request: HttpRequest, asked: wire.StateRequest) -> HttpResponse:
        wide, shared = _reach(asked.of)
        async with agent.leases.open_state(asked.lease, asked.kind, wide=wide, shared=shared) as space:
            try:
                return _json(await _use_state(space, asked, wide=wide))
            except StateChanged as changed:
                return _json(wire.StateReply(changed=wire.ChangedState(changed.key, changed.version)))
            except StateFull as full:
                return _json(wire.StateReply(full=wire.FullState(full.max_bytes, full.needed)))
            except ValueError as error:
                raise InvalidParams("state", str(error)) from error

    async def _complete(self, agent: WorkerAgent, request: HttpRequest, said: wire.CompletionReport) -> HttpResponse:
        await _count_tokens(agent, said)
        artifacts = tuple(given.artifact() for given in said.artifacts)
        task_id = await agent.leases.find_task(said.lease)
        report = CompleteTask(id=task_id, artifacts=artifacts, lease=said.lease, confirmed=_confirmed(said))
        return await self._send_report(request, report)

    async def _fail(self, agent: WorkerAgent, request: HttpRequest, said: wire.FailureReport) -> HttpResponse:
        await _count_tokens(agent, said)
        parts = sound_parts(wire.parts_in(said.message), "message")
        task_id = await agent.leases.find_task(said.lease)
        report = UpdateStatus(
            id=task_id,
            state=TaskState.FAILED,
            parts=parts,
            lease=said.lease,
            reason=said.reason,
            confirmed=_confirmed(said),
        )
        return await self._send_report(request, report)

    async def _send_report(self, request: HttpRequest, report: CompleteTask | UpdateStatus) -> HttpResponse:
        """Send a report through the handler, as BeeOS' methods do. It returns once the report is committed."""
        agent = request.route.agent
        call = Call(
            operation=report,
            principal=request.principal,
            agent=agent,
            dialect=DIALECT,
            mount="/workers",
            peer=request.peer,
        )
        record = await self._handler.call(call)
        assert isinstance(record, Record)
        return _json(_task(record))


@cache
def _decoder(into: type[W]) -> msgspec.json.Decoder[W]:
    """The decoder of a wire struct. Making one takes four times as long as using it."""
    return msgspec.json.Decoder(into)


def _decode(body: bytes, into: type[W], max_depth: int, max_values: int) -> W:
    json_bounds.check(body, max_depth, max_values)
    decoder: msgspec.json.Decoder[W] = _decoder(into)
    return json_fields.read(decoder, body)


def _confirmed(said: wire.Confirming) -> Confirmed:
    """Return the words and answers that the worker knows to be committed."""
    return Confirmed(said.confirmed, said.heard) if said.confirmed or said.heard else NOTHING_CONFIRMED


def _check_numbers(said: wire.StatusReport | wire.ArtifactReport) -> None:
    """Raises InvalidParams for a report that confirms itself: its lease would end, and that of the next worker."""
    if 0 < said.number <= said.confirmed:
        raise InvalidParams("confirmed", "must be lower than number: it is the newest number that was answered before")


async def _count_tokens(
    agent: WorkerAgent, said: wire.StatusReport | wire.CompletionReport | wire.FailureReport
) -> None:
    """Count the tokens of a report before the report itself. A repeated final report counts nothing."""
    if said.usage is not None:
        try:
            await agent.leases.say(said.lease, Say(), usage=_usage(said.usage), confirmed=_confirmed(said))
        except LeaseLost:  # a repeated report, or one that is refused next
            pass


async def _name_task(agent: WorkerAgent, token: str, title: str, confirmed: Confirmed) -> None:
    """Give the task of a lease its title, before the report that brings it. Raises InvalidParams."""
    line = title_line(title)
    if not line:
        raise InvalidParams("title", "has nothing that can be seen")
    with suppress(LeaseLost):  # a repeated report, or one that is refused next
        await agent.leases.say(token, Note({TITLE_NOTE: line}), confirmed=confirmed)


def _step_place(told: wire.StepRequest | wire.StepResult | wire.SleepRequest | wire.MemoryRequest) -> str:
    """Where a later worker finds the step again. Raises InvalidParams."""
    if told.number and told.place:
        raise InvalidParams("number", "goes without a place: a step has one of both")
    if not (told.number or told.place):
        raise InvalidParams("number", "is missing: count the steps of the lease, from 1")
    return told.place or str(told.number)


def _reach(of: wire.StateReach) -> tuple[bool, bool]:
    """Whether the state is wider than the conversation, and whether all callers share it."""
    return of != "conversation", of == "all"


async def _use_state(space: LeasedSpace, asked: wire.StateRequest, *, wide: bool) -> wire.StateReply:
    """Read or write the state. Raises StateChanged, StateFull, or ValueError for a key or value that is not allowed."""
    now_ms = space.now_ms()
    if (write := asked.write) is not None:
        max_bytes = write.max_bytes
        if asked.kind == "memory":  # of which each value and the whole are bounded
            max_bytes = min(max_bytes or memory_bytes_max(wide=wide), memory_bytes_max(wide=wide))
            if large := next((put.key for put in write.puts if len(put.value) > VALUE_BYTES_MAX), None):
                raise ValueError(f"memory {large!r}: use a value of at most {VALUE_BYTES_MAX} bytes")
        version = await space.write_entries(
            puts=[StatePut(put.key, put.value, put.left_ms and now_ms + put.left_ms) for put in write.puts],
            deletes=write.deletes,
            prefixes=write.prefixes,
            if_versions=write.if_versions,
            act=write.act,
            max_bytes=max_bytes,
        )
        return wire.StateReply(version=version)
    if (listing := asked.list) is not None:
        found, more = await space.list_some(listing.prefix, listing.limit, listing.after, descending=listing.descending)
        return wire.StateReply(_state_values(found, now_ms), more=more)
    found, left = await space.get_some(asked.get)
    return wire.StateReply(_state_values(found, now_ms), left)


def _state_values(entries: Iterable[StateEntry], now_ms: int) -> tuple[wire.StateValue, ...]:
    return tuple(
        [
            wire.StateValue(each.key, each.value, each.expires_ms and max(1, each.expires_ms - now_ms), each.version)
            for each in entries
        ]
    )


def _step_done(told: wire.StepResult) -> StepDone:
    """The outcome that a worker gives. Raises InvalidParams unless it is one."""
    given = (told.result is not UNSET, told.parts is not None, told.failure is not None)
    if sum(given) != 1:
        raise InvalidParams("result", "give one of result, parts and failure")
    if told.failure is not None:
        failure = StepFailure(told.failure.type[:FAILURE_CHARACTERS], told.failure.text[:FAILURE_CHARACTERS])
        return StepDone(failure=failure, attempts=told.attempts)
    if told.parts is not None:
        return StepDone(sound_parts(told.parts, "parts"), told.form, attempts=told.attempts)
    return StepDone((recorded_json(told.result),), JSON_FORM, attempts=told.attempts)


def _step_reply(standing: StepStanding) -> wire.StepReply:
    recorded = standing.recorded
    if recorded is None:
        return wire.StepReply(standing.key, run=not standing.uncertain, uncertain=standing.uncertain)
    reply = wire.StepReply(standing.key, attempts=recorded.attempts)
    if recorded.failure is not None:
        reply.failure = wire.StepFault(recorded.failure.type, recorded.failure.text)
    elif recorded.form == JSON_FORM:
        reply.result = json_of_part(recorded.result[0])
    else:
        reply.parts, reply.form = recorded.result, recorded.form
    return reply


def _headers(agent: WorkerAgent, kept: TaskHeaders | None) -> dict[str, dict[str, str]] | UnsetType:
    """The headers that an agent is given, by message; nothing if it is given none."""
    if not agent.traits.header_names:
        return UNSET
    given = agent.traits.choose_headers(kept)
    return {} if given is None else given.by_message()


async def _request_headers(agent: WorkerAgent, token: str) -> dict[str, dict[str, str]] | UnsetType:
    """As `_headers`, for the task of a lease. Raises LeaseLost or Unavailable."""
    return _headers(agent, await agent.leases.request_headers(token)) if agent.traits.header_names else UNSET


def _worker_note(note: Mapping[str, str] | None) -> dict[str, str] | None:
    """The notes of earlier workers, without those that the server made about them."""
    return {name: text for name, text in (note or {}).items() if name not in SERVER_NOTES} or None


def _usage(tokens: wire.WorkerTokens | None) -> Usage | None:
    return None if tokens is None else tokens.usage()


def _outcome(delegated: Delegated) -> wire.DelegationOutcome:
    used = delegated.usage
    tokens = None
    if used is not None:
        numbers = used.input_tokens, used.output_tokens, used.total_tokens
        tokens = wire.WorkerTokens(*numbers, cached=used.cached_tokens)
    return wire.DelegationOutcome(
        agent=delegated.agent,
        task_id=delegated.task_id,
        state=delegated.state,
        timestamp=delegated.timestamp,
        message=delegated.message,
        artifacts=delegated.artifacts,
        usage=tokens,
    )


def _task(record: Record) -> Task:
    return Task(
        id=record.head.id,
        context_id=record.head.context_id,
        status=record.status,
        artifacts=record.artifacts,
        history=record.history,
        metadata=record.head.metadata,
    )


def _json(value: Any) -> HttpResponse:
    return json_response(200, msgspec.json.encode(value))
