"""The worker API `POST /workers/{agent}/{action}`: workers take an agent's tasks and report on them.

Invariant: without a lease a worker can neither read nor change a task. A worker that waits while its key is stopped
learns nothing more.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.worker import wire
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.words import artifacts_of, sound_parts
from dragoman.bindings.callers import Callers
from dragoman.bindings.calls import decode_body
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint
from dragoman.bindings.http import HttpRequest, HttpResponse, error_response, json_response, read_json, unless_gone
from dragoman.bindings.limits import Limits
from dragoman.dialects import json_bounds, json_fields
from dragoman.dialects.v1.errors import encode_http_error, http_status
from dragoman.engine.handler import Handler
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.words import Ask, Delegation, Say
from dragoman.model.errors import A2AError, InvalidParams, LeaseLost, Unauthorized, UnsupportedOperation
from dragoman.model.events import ArtifactChunk, Delegated
from dragoman.model.operations import Call, CompleteTask, UpdateStatus
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, Task, TaskState, Usage

W = TypeVar("W", bound=Struct)

WorkerAction = Callable[[WorkerAgent, HttpRequest, Any], Awaitable[HttpResponse]]
"""Answers a call whose body is a wire struct."""

DIALECT = "worker"
"""The dialect of the calls made here. No task is ever made here."""

SERVER_NOTES = frozenset({".delivered", ".reported", ".used"})
"""The notes that earlier versions of the server made about workers."""

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
        self._actions: Mapping[str, tuple[type[Struct], WorkerAction]] = {
            "lease": (wire.TakeRequest, self._lease),
            "heartbeat": (wire.HeartbeatRequest, self._heartbeat),
            "update": (wire.StatusReport, self._update),
            "artifact": (wire.ArtifactReport, self._artifact),
            "ask": (wire.AskRequest, self._ask),
            "delegate": (wire.DelegateRequest, self._delegate),
            "complete": (wire.CompletionReport, self._complete),
            "fail": (wire.FailureReport, self._fail),
            "release": (wire.ReleaseRequest, self._release),
            "history": (wire.PastRequest, self._history),
            "references": (wire.PastRequest, self._references),
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
        action = self._actions[request.route.ids["action"]]  # the routes have refused any other
        body = await read_json(request, limits)
        self._check_key(request)
        into, act = action
        decode = partial(_decode, body, into, limits.max_depth, limits.max_values)
        answer = await act(agent, request, await decode_body(request, limits, decode))
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
        taking = agent.leases.take(asked.worker, asked.wait_s, replays=asked.replays)
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
            )
        )
        return replace(delivered, refused=partial(agent.leases.cache.refuse, token))

    async def _heartbeat(self, agent: WorkerAgent, request: HttpRequest, asked: wire.HeartbeatRequest) -> HttpResponse:
        beat = await agent.leases.beat(asked.lease, asked.wait_s, asked.answers)
        return _json(wire.HeartbeatReply(beat.cancel, agent.leases.lease_s, beat.answers))

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

    # -- reports -----------------------------------------------------------------------------------------------------

    async def _update(self, agent: WorkerAgent, request: HttpRequest, said: wire.StatusReport) -> HttpResponse:
        parts = sound_parts(wire.parts_in(said.message), "message")
        state = wire.STATES.get(said.state)
        if state is TaskState.WORKING:
            steps = None if said.progress is None else (said.progress.current, said.progress.total)
            word = Say(parts, steps, said.metadata)
            await agent.leases.say(said.lease, word, usage=_usage(said.usage), number=said.number)
            return _json(wire.EmptyReply())
        if state is None or state not in TERMINAL | INTERRUPTED:
            raise InvalidParams("state", "must be working, input-required, auth-required, or one that ends the task")
        await _count_tokens(agent, said.lease, said.usage)
        task_id = await agent.leases.find_task(said.lease)
        return await self._send_report(request, UpdateStatus(id=task_id, state=state, parts=parts, lease=said.lease))

    async def _artifact(self, agent: WorkerAgent, request: HttpRequest, said: wire.ArtifactReport) -> HttpResponse:
        if not said.artifact.artifact_id and said.append:
            raise InvalidParams("artifact.artifactId", "is needed to append to it")
        artifact = said.artifact.artifact()
        weight = agent.leases.tasks.bounds.weigh_plain(artifact)
        if not weight:
            (artifact,) = artifacts_of((artifact,))
        last_chunk = not said.append if said.last_chunk is None else said.last_chunk
        word = ArtifactChunk(artifact, said.append, last_chunk)
        await agent.leases.say(said.lease, word, usage=_usage(said.usage), number=said.number, weight=weight)
        return _json({"artifact_id": artifact.artifact_id})

    async def _ask(self, agent: WorkerAgent, request: HttpRequest, asked: wire.AskRequest) -> HttpResponse:
        parts = sound_parts(wire.parts_in(asked.message), "message")
        if not parts:
            raise InvalidParams("message", "is required: say what you want to know")
        answer = await agent.leases.ask(
            asked.lease, Ask(parts, asked.auth, note=asked.note), asked.question, asked.wait_s
        )
        metadata: dict[str, Any] | None = None
        if answer is not None:
            metadata = await agent.leases.request_metadata(asked.lease, answer)
        return _json(wire.AskReply(answer, agent.leases.lease_s, metadata))

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
        delegated = await agent.leases.delegate(asked.lease, order, asked.wait_s)
        outcome = None if delegated is None else _outcome(delegated)
        return _json(wire.DelegateReply(outcome, agent.leases.lease_s))

    async def _complete(self, agent: WorkerAgent, request: HttpRequest, said: wire.CompletionReport) -> HttpResponse:
        await _count_tokens(agent, said.lease, said.usage)
        artifacts = tuple(given.artifact() for given in said.artifacts)
        report = CompleteTask(id=await agent.leases.find_task(said.lease), artifacts=artifacts, lease=said.lease)
        return await self._send_report(request, report)

    async def _fail(self, agent: WorkerAgent, request: HttpRequest, said: wire.FailureReport) -> HttpResponse:
        await _count_tokens(agent, said.lease, said.usage)
        parts = sound_parts(wire.parts_in(said.message), "message")
        task_id = await agent.leases.find_task(said.lease)
        report = UpdateStatus(id=task_id, state=TaskState.FAILED, parts=parts, lease=said.lease)
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


async def _count_tokens(agent: WorkerAgent, token: str, tokens: wire.WorkerTokens | None) -> None:
    """Count the tokens of a report before the report itself. A repeated final report counts nothing."""
    if tokens is not None:
        try:
            await agent.leases.say(token, Say(), usage=_usage(tokens))
        except LeaseLost:  # a repeated report, or one that is refused next
            pass


def _worker_note(note: Mapping[str, str] | None) -> dict[str, str] | None:
    """The notes of earlier workers, without those that earlier versions of the server made about them."""
    return {name: text for name, text in (note or {}).items() if name not in SERVER_NOTES} or None


def _usage(tokens: wire.WorkerTokens | None) -> Usage | None:
    return None if tokens is None else tokens.usage()


def _outcome(delegated: Delegated) -> wire.DelegationOutcome:
    used = delegated.usage
    tokens = None if used is None else wire.WorkerTokens(used.input_tokens, used.output_tokens, used.total_tokens)
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
