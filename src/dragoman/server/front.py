"""Assembly of the application that callers meet: endpoints, cards, limits and authentication.

Invariant: a card matches what the server does, because both are made from one configuration. The set of agents of an
application never changes; a reload makes another one. The profile of an agent on another server may change.
"""

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial

from dragoman import __version__
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.auth.authenticator import Authenticator
from dragoman.auth.proxies import TrustedProxies
from dragoman.auth.sessions import OperatorSessions
from dragoman.auth.signatures import SigningRoom
from dragoman.bindings.admin import Admin
from dragoman.bindings.app import App
from dragoman.bindings.backend import Elsewhere
from dragoman.bindings.callers import Callers
from dragoman.bindings.calls import Reception
from dragoman.bindings.cards import Cards, GrpcAddress
from dragoman.bindings.console import Console, Pages, ProviderDoor
from dragoman.bindings.cors import Cors, Origins
from dragoman.bindings.files import FileDoor
from dragoman.bindings.home import Home
from dragoman.bindings.limits import make_limits
from dragoman.bindings.mcp import Mcp, Sessions
from dragoman.bindings.monitoring import Health, Metrics
from dragoman.bindings.openai import OpenAi
from dragoman.bindings.openapi import Description
from dragoman.bindings.openapi.operations import ServedPaths
from dragoman.bindings.remote import RemoteAgents
from dragoman.bindings.request import Request
from dragoman.bindings.streams import Streams
from dragoman.bindings.traffic import Traffic
from dragoman.bindings.workers import Workers
from dragoman.config import Config
from dragoman.dialects.extensions import DEDUPES, EVENT_IDS
from dragoman.dialects.resolve import MOUNTS, SYSTEMS
from dragoman.dialects.system import ROOT, Mount
from dragoman.dialects.systems import load_profile, load_system
from dragoman.engine.api import Runner
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.administration import Administration
from dragoman.engine.handlers.audit import Trail
from dragoman.model.card import AgentExtension
from dragoman.model.errors import A2AError
from dragoman.model.ids import Clock
from dragoman.server.callers import hosts_of
from dragoman.server.facts import ServedAgents
from dragoman.store.audit import AuditEntry


def make_app(
    config: Config,
    a2a: Handler,
    handler: Handler,
    runners: Mapping[str, Runner],
    authenticator: Authenticator,
    signing: SigningRoom,
    trail: Trail,
    health: Health,
    metrics: Metrics | None,
    clock: Clock,
    leaving: dict[str, WorkerAgent],
    streams: Streams,
    sessions: Sessions,
    files: FileDoor | None,
    elsewhere: Elsewhere | None,
    administration: Administration,
    traffic: Traffic | None,
    operators: OperatorSessions | None,
    remote: RemoteAgents | None,
    provider: ProviderDoor | None,
) -> App:
    """Make the application. `a2a` answers A2A calls; `handler` answers chat completions, MCP and workers.

    Workers may finish the tasks of agents that are `leaving`. `streams` and `sessions` are shared by all applications
    of the server. So are the sessions of `operators`, the agents `remote` that they try, and the `provider` by which
    they sign in; None: there is no console, or no provider. `elsewhere` knows the agents of other replicas, if there
    are any. `traffic` notes what becomes of requests.
    """
    default = config.default or next(iter(runners))
    mounts = _mounts(config)
    workers: dict[str, WorkerAgent] = {
        agent_id: runner for agent_id, runner in runners.items() if isinstance(runner, WorkerAgent)
    }
    bounds = make_limits(
        config.max_body_bytes,
        config.max_depth,
        config.max_parts,
        body_pause_s=config.body_pause_s,
        max_text=config.max_text,
        max_values=config.max_values,
        max_unread_bytes=config.max_unread_bytes,
        max_page_bytes=config.max_page_bytes,
    )
    origins = Origins(config.cors_origins, config.public_url)
    callers = Callers(authenticator, hosts_of(config), _refusal_recorder(trail, clock, runners), runners, origins)
    forwards = any(map(_forwards, runners.values()))
    base = None if files is None else partial(Request.base_url, public_url=config.public_url)
    extensions = _extensions(config)
    proxies = TrustedProxies(config.trusted_proxies) if config.trusted_proxies else None
    reception = Reception(runners, callers, bounds, forwards, base, extensions, proxies)
    cards = Cards(
        runners,
        config.public_url,
        config.card_max_age_s,
        authenticator=authenticator,
        signing=signing if config.sign_cards else None,
        keys=signing if config.sign_cards or config.push_jwt else None,
        root="/" if ROOT in mounts else mounts[0].path,
        protocols=("jsonrpc",) if config.tasks else (),
        history=config.tasks and config.profile is not None and load_profile(config.profile).history,
        tasks=config.tasks,
        pushes=config.push,
        tenants=any(mount.catches_all for mount in mounts),
        extensions=extensions,
        grpc=GrpcAddress(config.grpc_port, config.grpc_public_url) if config.grpc_port else None,
    )
    return App(
        a2a,
        reception,
        default,
        cards=cards,
        health=health,
        home=Home(runners, default, mounts, config.public_url, console=operators is not None),
        cors=Cors(config.cors_origins) if config.cors_origins else None,
        mounts=mounts,
        openai=OpenAi(handler, reception, default, clock) if ROOT in mounts else None,
        mcp=_mcp(config, handler, reception, clock, sessions) if config.profile is None else None,
        metrics=metrics,
        workers=Workers(handler, ChainMap(workers, leaving), bounds) if workers or leaving else None,
        streams=streams,
        files=files,
        elsewhere=elsewhere,
        admin=Admin(administration, bounds, ServedAgents(runners), remote)
        if config.tasks and config.profile is None
        else None,
        traffic=traffic,
        console=None
        if operators is None
        else Console(_pages(), operators, callers, bounds, config.public_url, provider),
        description=_description(config, default) if config.profile is None else None,
    )


@cache
def _pages() -> Pages:
    """The console's files: read once, whatever is reloaded."""
    return Pages.load()


def _description(config: Config, default: str) -> Description:
    keys = config.sign_cards or config.push_jwt
    return Description(ServedPaths(default, metrics=config.metrics, keys=keys))


def _mounts(config: Config) -> tuple[Mount, ...]:
    """The mounts of the server: all, or only that of the system that it poses as."""
    if config.profile is None:
        return MOUNTS
    mount = load_system(config.profile).mount
    assert mount is not None
    return (mount,)


def _extensions(config: Config) -> Mapping[Mount, tuple[AgentExtension, ...]]:
    """The extensions of each mount; a server that makes no tasks has none."""
    if not config.tasks:
        return {}
    ours: tuple[AgentExtension, ...] = (DEDUPES,) if config.profile is None else ()
    if config.grpc_port:
        ours = (*ours, EVENT_IDS)
    listed: dict[Mount, tuple[AgentExtension, ...]] = {mount: ours for mount in MOUNTS if not mount.fixed}
    for system in SYSTEMS:
        if system.mount is not None and system.extensions:
            listed[system.mount] = system.extensions
    return listed


def _mcp(config: Config, handler: Handler, reception: Reception, clock: Clock, sessions: Sessions) -> Mcp:
    return Mcp(
        handler,
        reception,
        clock,
        sessions,
        version=__version__,
        wait_s=config.blocking_timeout_s,
    )


def _forwards(runner: Runner) -> bool:
    return isinstance(runner, UpstreamAgent) and runner.forwards


def _refusal_recorder(trail: Trail, clock: Clock, agents: Collection[str]) -> Callable[[Request, A2AError, str], None]:
    """Return a function that records refused callers in the audit trail, by the path: no body has been read yet.

    An unknown agent is not named, because a stranger would choose what is stored, and how much.
    """

    def note(request: Request, error: A2AError, agent: str) -> None:
        route = request.route
        entry = AuditEntry(
            at_ms=clock.now_ms(),
            principal=request.principal.id,
            action=route.methods.get(request.method) or route.endpoint,
            agent=agent if agent in agents else "",
            allowed=False,
            reason=type(error).__name__,
            peer=request.peer,
        )
        trail.note(entry)

    return note
