"""From a request to a call, and from its result to bytes: the parts and the steps that all bindings share.

Invariant: a tenant is an agent id in every binding; below an agent's own mount it is empty or that agent. A large
result has room in `Unread` before it is encoded, so that results that nobody reads do not pile up. The parts belong to
one set of agents, like the application that made them; a reload makes others.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dragoman.auth.proxies import TrustedProxies
from dragoman.bindings.caller_headers import read_headers
from dragoman.bindings.callers import Callers
from dragoman.bindings.cards import Cards
from dragoman.bindings.http import HttpRequest, read_json
from dragoman.bindings.limits import LARGE_BYTES, Limits
from dragoman.bindings.request import Parameters, Request
from dragoman.bindings.streams import Streams
from dragoman.bindings.traffic import Traffic
from dragoman.dialects import cards
from dragoman.dialects.json_bounds import check_sent, check_size
from dragoman.dialects.resolve import mount_of
from dragoman.dialects.system import Mount
from dragoman.engine.handler import Answered, Handler
from dragoman.model.card import VERSIONS, AgentExtension, Described
from dragoman.model.errors import (
    A2AError,
    AgentNotFound,
    ExtensionSupportRequired,
    InvalidParams,
    VersionNotSupported,
)
from dragoman.model.events import seq_and_frame
from dragoman.model.message import Part
from dragoman.model.operations import (
    Call,
    Manners,
    Operation,
    Result,
    SendMessage,
    StreamMessage,
    Subscribe,
    TaskPage,
    task_id_of,
)
from dragoman.model.principal import Principal
from dragoman.model.task import Record

T = TypeVar("T")

WITHOUT_AGENT = ("/", "/a2a")
"""Mounts whose path names no agent: messages there go to the server as a whole."""

FOLLOWED = (StreamMessage, Subscribe)
"""Operations that are answered with a stream."""

SENDS = frozenset({SendMessage, StreamMessage})
"""Operations that bring a message, to which headers belong."""

SUBSCRIBES = frozenset({Subscribe, StreamMessage})
"""Those of `FOLLOWED`. A look into a set takes a sixth of the time in which a value is found to be of no such type."""

EXTENDED = SENDS | SUBSCRIBES
"""Operations for which an agent may require extensions."""

HEAVY_BYTES = 512 * 1024
"""Results with at least this many bytes of texts and files are encoded on the thread: it takes 0.5 ms or more."""


class Reception(Struct, frozen=True):
    """The means by which a binding turns a request into a call: the agents, who may call them, and the limits.

    `headers` are the names, in lower case, of the headers that at least one agent is given: any other one may delegate
    a task to it.
    `base` returns the URL under which a request reached the server, for links in answers; None: answers have no links.
    `extensions` are those of each mount, in addition to the agents' own. `proxies` may name the client that a request
    is from; None: the peer of the socket is the client. Agents that are `removed` answer about their tasks alone.
    """

    agents: Mapping[str, Described]
    callers: Callers
    limits: Limits
    headers: frozenset[bytes] = frozenset()
    base: Callable[[Request], str] | None = None
    extensions: Mapping[Mount, tuple[AgentExtension, ...]] = {}
    proxies: TrustedProxies | None = None
    removed: frozenset[str] = frozenset()

    @property
    def listed(self) -> Mapping[str, Described]:
        """The agents that may be given new tasks."""
        if not self.removed:
            return self.agents
        return {agent_id: each for agent_id, each in self.agents.items() if agent_id not in self.removed}


Elsewhere = Callable[[str], Awaitable[None]]
"""Raises the A2AError about an agent that is not served here, but by other replicas, or was until lately.

Does nothing if the agent is unknown."""


class Backend(Struct, frozen=True):
    """The objects that answer a call, over any transport. `default` is the agent that answers at the root.

    `streams` is shared by all applications of the server, so that a reload keeps the count of open streams. `elsewhere`
    knows the agents of other replicas. `traffic` notes what becomes of requests.
    """

    handler: Handler
    reception: Reception
    cards: Cards
    streams: Streams
    default: str
    elsewhere: Elsewhere | None = None
    traffic: Traffic | None = None

    async def locate(self, error: A2AError) -> A2AError:
        """Return the error for the caller. An agent of other replicas is not unknown: a retry may reach one.

        One that was removed is: no replica gives it a new task.
        """
        if not isinstance(error, AgentNotFound) or self.elsewhere is None or error.agent in self.reception.removed:
            return error
        try:
            await self.elsewhere(error.agent)
        except A2AError as found:
            return found
        return error


# -- the call --------------------------------------------------------------------------------------------------------


async def make_call(
    reception: Reception,
    handler: Handler,
    request: Request,
    parameters: Parameters,
    operation: Operation,
    *,
    dialect: str,
    manners: Manners,
    folds: bool = False,
) -> Call:
    """Make a call of the operation, in a dialect with these manners; `folds` as in `Call`.

    Raises Unauthorized or Forbidden for an agent that the caller may not use, AgentNotFound or InvalidParams for a
    tenant that is not this mount's, VersionNotSupported for an agent that is not served in the call's version,
    ExtensionSupportRequired if the agent requires an extension that the caller has not declared (A2A 1.0 §3.3.4),
    InvalidParams for parts that are too many or too long, for a request with too much text, or for a malformed id of
    the last event seen.
    """
    agent = await _find_agent(reception, handler, request, operation)
    reception.callers.admit(request, agent)
    described = reception.agents.get(agent)
    if described is None:  # no agent answers at the root here
        raise AgentNotFound(agent)
    profile = described.profile
    if dialect in VERSIONS and dialect not in profile.versions:
        raise VersionNotSupported(dialect, profile.versions)
    limits, kind = reception.limits, type(operation)
    if request.size > limits.unchecked_bytes and isinstance(operation, SendMessage):
        if request.size < LARGE_BYTES:
            check_sent(operation, limits.max_parts, limits.max_text)
        else:  # `decode_body` has checked the parts
            check_size(operation, request.size, limits.max_text)
    after = parameters.after
    if kind in EXTENDED:
        for extension in profile.extensions:  # a mount's extensions are never required
            if extension.required and extension.uri not in parameters.extensions:
                raise ExtensionSupportRequired(extension.uri)
    if kind in SUBSCRIBES:
        if after is None and isinstance(operation, Subscribe):
            after = operation.after
        if after is not None:
            seq_and_frame(after)
    request.operation, request.agent, request.dialect_name = kind, agent, dialect
    shown = read_headers(request, reception.headers) if reception.headers and kind in SENDS else None
    call = Call(
        operation=operation,
        principal=request.principal,
        agent=agent,
        dialect=dialect,
        mount=request.route.mount,
        manners=manners,
        folds=folds,
        extensions=parameters.extensions,
        idempotency_key=parameters.idempotency_key,
        after=after,
        traceparent=parameters.traceparent,
        peer=request.peer,
        base="" if reception.base is None else reception.base(request),
        size=request.size,
        room=request.reserve,
    )  # of more than 15 named arguments CPython makes a dict first
    return call if shown is None else replace(call, shown=shown)


async def _find_agent(reception: Reception, handler: Handler, request: Request, operation: Operation) -> str:
    route, tenant, agents = request.route, operation.tenant, reception.agents
    if tenant == route.agent:
        return route.agent
    if tenant:
        if route.mount != "/":
            raise InvalidParams("tenant", f"must be empty or {route.agent!r} below {route.mount}")
        if tenant not in agents:
            raise AgentNotFound(tenant)
        return tenant
    if route.mount not in WITHOUT_AGENT:
        return route.agent
    if isinstance(operation, SendMessage) and not operation.message.task_id:
        if operation.skill is None or len(agents) == 1:
            return route.agent
        return _find_agent_with(operation.skill, route.agent, request.principal, agents)
    if len(agents) > 1 and (task_id := task_id_of(operation)):
        return await find_owner(task_id, request, handler)
    return route.agent


async def find_owner(task_id: str, request: Request, handler: Handler) -> str:
    """The agent for a call about a task, if the call names no tenant.

    At a mount whose path names no agent, this is the agent that owns the task, if this caller made the task there. A
    message with a skill may have gone to another agent than the default one, and its caller only knows this URL.
    """
    agent, mount = None, request.route.mount
    if mount in WITHOUT_AGENT:
        agent = await handler.agent_of(task_id, request.principal, mount)
    return agent or request.route.agent


def _find_agent_with(skill: str, default: str, principal: Principal, agents: Mapping[str, Described]) -> str:
    """The agent for a message with a skill, sent to the server as a whole: the default, unless only another has it.

    Raises InvalidParams if the default agent lacks the skill and several others have it.
    """
    mine = agents.get(default)
    if mine is not None and any(known.id == skill for known in (*mine.profile.skills, *mine.profile.extended_skills)):
        return default
    able = [
        agent
        for agent, described in agents.items()
        if principal.reaches(agent) and any(known.id == skill for known in described.profile.skills)
    ]
    if len(able) > 1:
        raise InvalidParams("metadata.skill", f"several agents have it: send to one of them: {', '.join(able)}")
    return able[0] if able else default


def active_extensions(reception: Reception, call: Call) -> str:
    """The requested extensions that are active: those on the card of the call's agent at its mount (A2A 1.0 §3.2.6).

    They are URIs, separated by commas; empty if none is active.
    """
    own = reception.extensions.get(mount_of(call.mount), ())
    listed = cards.extensions(reception.agents[call.agent].profile, own)
    return ", ".join(each.uri for each in listed if each.uri in call.extensions)


# -- large bodies and results ----------------------------------------------------------------------------------------


async def decode_body(request: Request, limits: Limits, decode: Callable[[], T]) -> T:
    """Run `decode` on the request's body, and check the parts of a message that it returns.

    A large body is decoded on the thread and counts as arriving until that is done. Raises Unavailable if too many
    bodies are arriving, InvalidParams for parts that are too many or too long, and whatever `decode` raises.
    """
    if request.size < LARGE_BYTES:
        return decode()
    limits.arriving.take(request.size)
    try:
        return await limits.offload.run(partial(_decode_and_check, decode, limits))
    finally:
        limits.arriving.release(request.size)


async def read_decoded(request: HttpRequest, limits: Limits, decode: Callable[[HttpRequest, bytes, Limits], T]) -> T:
    """Read the body of a POST and decode it, as `read_json` and `decode_body` do. The bytes are dropped then."""
    body = await read_json(request, limits)
    decoding = partial(decode, request, body, limits)
    del body
    return await decode_body(request, limits, decoding)


def _decode_and_check(decode: Callable[[], T], limits: Limits) -> T:
    decoded = decode()
    if isinstance(decoded, SendMessage):
        check_sent(decoded, limits.max_parts, limits.max_text)
    return decoded


async def encode_result(
    request: Request,
    limits: Limits,
    result: Answered | Result,
    encode: Callable[[], bytes],
    around: tuple[bytes, bytes] = (b"", b""),
    history_length: int | None = None,
) -> bytes:
    """Return `encode()` in its envelope; a large result is encoded on the thread.

    `history_length` is the caller's: room is reserved for the messages that it leaves. Raises TooManyRequests or
    Unavailable if there is no room for the result.
    """
    weight = weigh(result, history_length)
    before, after = around
    if weight < HEAVY_BYTES:
        return b"".join((before, encode(), after))
    if not request.reserved and not isinstance(result, TaskPage):  # a page has its room: see `Unread.begin_page`
        request.reserve(weight)
    return await limits.offload.run(lambda: b"".join((before, encode(), after)))


def weigh(result: Answered | Result, history_length: int | None = None) -> int:
    """Estimate the bytes of texts and files in a result with so many messages; data parts are not counted."""
    if type(result) is Record:
        return _weigh_record(result, history_length)
    if isinstance(result, TaskPage):
        return sum([_weigh_record(record, history_length) for record in result.records])
    return 0


def _weigh_record(record: Record, history_length: int | None) -> int:
    history, said = record.history, record.status.message
    if history_length is not None:
        history = history[max(len(history) - history_length, 0) :]
    weight = 0 if said is None else _weigh_parts(said.parts)
    for artifact in record.artifacts:
        weight += _weigh_parts(artifact.parts)
    for message in history:
        weight += _weigh_parts(message.parts)
    return weight


def _weigh_parts(parts: tuple[Part, ...]) -> int:
    weight = 0
    for part in parts:
        if part.text is not None:
            weight += len(part.text)
        elif part.raw is not None:
            weight += len(part.raw) * 4 // 3  # base64
    return weight
