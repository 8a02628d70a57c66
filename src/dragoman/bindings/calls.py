"""The parts of a call besides its operation: the agent, the extensions, the trace. Shared by all bindings.

Invariant: a tenant is an agent id in every binding; below an agent's own mount it is empty or that agent (DESIGN §4).
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from dragoman.bindings.callers import Callers
from dragoman.bindings.http import Header, Request
from dragoman.bindings.limits import Limits
from dragoman.bindings.offload import LARGE_BYTES
from dragoman.bindings.stream import seen
from dragoman.dialects import cards
from dragoman.dialects.api import Dialect
from dragoman.dialects.json_bounds import check_sent
from dragoman.dialects.mounts import Mount
from dragoman.dialects.resolve import mount_of
from dragoman.engine.handler import Handler
from dragoman.model.card import VERSIONS, AgentExtension, Profile
from dragoman.model.errors import AgentNotFound, ExtensionSupportRequired, InvalidParams, VersionNotSupported
from dragoman.model.operations import Call, Operation, SendMessage, Shown, StreamMessage, Subscribe, task_id_of
from dragoman.model.principal import Principal

Op = TypeVar("Op", bound=Operation)

EXTENSION_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")
"""The header's name in 1.0 (§3.2.6), and its name in 0.3."""

SHOWN = ("authorization", "x-api-key")
"""Headers that are forwarded to upstreams configured to receive them."""

WHOLE = ("/", "/a2a")
"""Mounts whose path names no agent: messages there go to the server as a whole."""

TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{1,100})?", re.ASCII)


class Reception(Struct, frozen=True):
    """The means by which a binding turns a request into a call: the agents, who may call them, and the limits.

    `forwards`: at least one agent forwards its callers' credentials, and any other agent may delegate a task to it.
    `base` returns the URL under which a request reached the server, for links in answers; None: answers have no links.
    `extensions` are those of each mount, in addition to the agents' own.
    """

    profiles: Mapping[str, Profile]
    callers: Callers
    limits: Limits
    forwards: bool = False
    base: Callable[[Request], str] | None = None
    extensions: Mapping[Mount, tuple[AgentExtension, ...]] = {}

    def listed(self, mount: str, agent: str) -> tuple[AgentExtension, ...]:
        """The extensions on the card of that agent at that mount."""
        return cards.extensions(self.profiles[agent], self.extensions.get(mount_of(mount), ()))


def version(request: Request) -> str | None:
    """The `A2A-Version` the caller names, in the header or the query (A2A 1.0 §3.6.1); None if it names none."""
    named = request.text(b"a2a-version")
    if named is None and request.scope["query_string"]:
        return request.query().get("A2A-Version")
    return named


async def call_of(
    request: Request, operation: Operation, dialect: Dialect, reception: Reception, handler: Handler
) -> Call:
    """Make a call of the operation.

    Raises Unauthorized or Forbidden for an agent that the caller may not use, AgentNotFound or InvalidParams for a
    tenant that is not this mount's, VersionNotSupported for an agent that is not served in the call's version,
    ExtensionSupportRequired if the agent requires an extension that the caller has not declared (A2A 1.0 §3.3.4),
    InvalidParams for parts that are too many or too long (`checked` has checked those of a large body), or for a
    malformed `Last-Event-ID`.
    """
    profiles, limits = reception.profiles, reception.limits
    agent = await _resolve_agent(request, operation, profiles, handler)
    reception.callers.admit(request, agent)
    if dialect.name in VERSIONS and dialect.name not in profiles[agent].versions:
        raise VersionNotSupported(dialect.name, profiles[agent].versions)
    if request.size < LARGE_BYTES and isinstance(operation, SendMessage):
        check_sent(operation, limits.max_parts, limits.max_text)
    declared: tuple[str, ...] = ()
    for name in EXTENSION_HEADERS:
        declared += request.values(name)
    after = request.text(b"last-event-id") or None
    if isinstance(operation, SendMessage | Subscribe):
        for extension in profiles[agent].extensions:  # a mount's extensions are never required
            if extension.required and extension.uri not in declared:
                raise ExtensionSupportRequired(extension.uri)
    if isinstance(operation, StreamMessage | Subscribe):
        if after is None:
            after = _last_seen(request, operation)
        seen(after)
    return Call(
        operation=operation,
        principal=request.principal,
        agent=agent,
        dialect=dialect.name,
        mount=request.route.mount,
        manners=dialect.manners,
        folds=bool(dialect.folds),
        extensions=declared,
        idempotency_key=request.text(b"idempotency-key") or None,
        after=after,
        traceparent=_traceparent(request),
        peer=request.peer,
        shown=_credentials(request) if reception.forwards else None,
        base="" if reception.base is None else reception.base(request),
        size=request.size,
        room=request.reserve,
    )


def checked(decoding: Callable[[], Op], limits: Limits) -> Op:
    """Run `decoding`, and check its result against the limits.

    Used for bodies of `LARGE_BYTES` and more, which `call_of` does not check. Raises InvalidParams for parts that are
    too many or too long.
    """
    operation = decoding()
    if isinstance(operation, SendMessage):
        check_sent(operation, limits.max_parts, limits.max_text)
    return operation


def _credentials(request: Request) -> Shown | None:
    """The caller's credentials, as request headers."""
    shown = {name: value for name in SHOWN if (value := request.text(name.encode()))}
    return Shown(shown) if shown else None


def _last_seen(request: Request, operation: StreamMessage | Subscribe) -> str | None:
    """The last event seen, from the query or the params, for clients that cannot set a header."""
    if request.scope["query_string"]:
        query = request.query()
        if (named := query.get("since", query.get("fromSeq"))) is not None:
            return named
    return operation.after if isinstance(operation, Subscribe) else None


def _traceparent(request: Request) -> str | None:
    """The trace that the caller continues (W3C Trace Context §3.2); a malformed header is ignored (§4.3)."""
    sent = request.text(b"traceparent")
    return sent if sent is not None and TRACEPARENT.fullmatch(sent) else None


async def _resolve_agent(
    request: Request, operation: Operation, profiles: Mapping[str, Profile], handler: Handler
) -> str:
    route, tenant = request.route, operation.tenant
    if tenant == route.agent:
        return route.agent
    if tenant:
        if route.mount != "/":
            raise InvalidParams("tenant", f"must be empty or {route.agent!r} below {route.mount}")
        if tenant not in profiles:
            raise AgentNotFound(tenant)
        return tenant
    if route.mount not in WHOLE or len(profiles) == 1:
        return route.agent
    if task_id := task_id_of(operation):
        return await whose(request, task_id, handler)
    if isinstance(operation, SendMessage) and operation.skill is not None:
        return _resolve_skill(operation.skill, route.agent, request.principal, profiles)
    return route.agent


async def whose(request: Request, task_id: str, handler: Handler) -> str:
    """The agent for a call about a task, if the call names no tenant.

    At a mount whose path names no agent, this is the agent that owns the task, if this caller made the task there. A
    message with a skill may have gone to another agent than the default one, and its caller only knows this URL.
    """
    agent, mount = None, request.route.mount
    if mount in WHOLE:
        agent = await handler.agent_of(task_id, request.principal, mount)
    return agent or request.route.agent


def _resolve_skill(skill: str, default: str, principal: Principal, profiles: Mapping[str, Profile]) -> str:
    """The agent for a message with a skill, sent to the server as a whole: the default, unless only another has it.

    Raises InvalidParams if the default agent lacks the skill and several others have it.
    """
    mine = profiles[default]
    if any(known.id == skill for known in (*mine.skills, *mine.extended_skills)):
        return default
    able = [
        agent
        for agent, profile in profiles.items()
        if principal.reaches(agent) and any(known.id == skill for known in profile.skills)
    ]
    if len(able) > 1:
        raise InvalidParams("metadata.skill", f"several agents have it: send to one of them: {', '.join(able)}")
    return able[0] if able else default


def activated(request: Request, call: Call, dialect: Dialect, reception: Reception) -> list[Header]:
    """The header with the active extensions: the requested ones that the card lists (A2A 1.0 §3.2.6).

    The card is the one of the call's agent at the request's mount. The dialect determines the header's name.
    """
    if not call.extensions:
        return []
    listed = (each.uri for each in reception.listed(request.route.mount, call.agent))
    active = ", ".join(uri for uri in listed if uri in call.extensions)
    return [(dialect.extensions_header, active.encode())] if active else []
