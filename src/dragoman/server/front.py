"""The side of a server that callers meet: the application for a set of agents, around the parts that reloads keep.

Invariant: a card matches what the server does, because both are made from one configuration. The set of agents of an
application never changes; a reload makes another one. The profile of an agent on another server may change.
"""

from collections import ChainMap
from collections.abc import Mapping
from functools import partial

from dragoman.agents.kinds import worker_agents
from dragoman.auth.proxies import TrustedProxies
from dragoman.bindings.admin import Admin
from dragoman.bindings.app import App
from dragoman.bindings.callers import CallerRefusals, Callers
from dragoman.bindings.calls import Backend, Reception
from dragoman.bindings.cards import Cards, CardSettings, GrpcAddress
from dragoman.bindings.catalog import Catalog, CatalogSettings
from dragoman.bindings.cors import Cors, Origins
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint, PageSessions
from dragoman.bindings.home import Home
from dragoman.bindings.limits import Limits, make_limits
from dragoman.bindings.openai import ChatSettings, OpenAi
from dragoman.bindings.openapi import Description
from dragoman.bindings.openapi.operations import ServedPaths
from dragoman.bindings.request import Request
from dragoman.bindings.responses import Responses
from dragoman.bindings.routes import EndpointName
from dragoman.bindings.workers import WorkerBinding
from dragoman.config import Config
from dragoman.dialects.extensions import DEDUPES, EVENT_IDS
from dragoman.dialects.registry import load_profile, load_system
from dragoman.dialects.resolve import MOUNTS, SYSTEMS
from dragoman.dialects.system import AGENT, ROOT, Mount
from dragoman.engine.api import Runner
from dragoman.model.card import AgentExtension, Described
from dragoman.server.assembly import Assembly
from dragoman.server.callers import hosts_of
from dragoman.server.facts import ServedAgents


def make_app(assembly: Assembly, config: Config, runners: Mapping[str, Runner], removed: frozenset[str]) -> App:
    """Make the application for these agents. Sessions of MCP are told that their tools have changed.

    Those that are `removed` answer about their tasks, and stand in no list.
    """
    opened, added = assembly.opened, assembly.opened.added
    # an added agent answers at the root only if the configuration says so, whatever the order of the records
    default = config.default or next((name for name, runner in runners.items() if not added.has_made(runner)), "")
    mounts, reception = _mounts(config), _make_reception(assembly, config, runners, removed)
    listed = reception.listed
    if assembly.mcp is not None:
        assembly.mcp.serve(listed)
    pages = None if assembly.console is None else assembly.console.make_pages(reception, config.public_url)
    optional = _make_optional(assembly, config, runners, reception, default, pages)
    cards = Cards(
        listed,
        _card_settings(config, mounts, reception.extensions),
        opened.authenticator,
        opened.signing,
        reception.callers,
    )
    elsewhere = assembly.engine.operations.check_elsewhere if opened.store.replicas.shared else None
    return App(
        Backend(assembly.a2a, reception, cards, assembly.streams, default, elsewhere, assembly.traffic),
        assembly.health,
        Home(listed, default, mounts, config.public_url, console=pages is not None),
        cors=_make_cors(config, reception),
        mounts=mounts,
        optional=optional if pages is None else {**optional, **pages.endpoints},
        sessions=pages,
        leaving=assembly.leaving,
    )


def _make_optional(
    assembly: Assembly,
    config: Config,
    runners: Mapping[str, Runner],
    reception: Reception,
    default: str,
    sessions: PageSessions | None,
) -> Endpoints:
    """Make the parts that the configuration asks for. A server that poses as another system has that one's."""
    handler, bounds, callers, stops = assembly.agents, reception.limits, reception.callers, assembly.stops
    plain, clock = config.profile is None, assembly.opened.store.clock
    found = dict[EndpointName, HttpEndpoint]()
    served = worker_agents(runners.values())
    if served or assembly.leaving:
        found |= WorkerBinding(handler, ChainMap(served, assembly.leaving), bounds, stops).endpoints(callers)
    if assembly.metrics is not None:
        found |= assembly.metrics.endpoints(callers)
    if assembly.opened.files.door is not None:
        found |= assembly.opened.files.door.endpoints
    if ROOT in _mounts(config):
        found |= OpenAi(handler, reception, default, clock, _chat_settings(config)).endpoints
        found |= Responses(handler, reception, default, clock).endpoints
    found |= _make_catalog(assembly, config, reception.listed, callers, default).endpoints
    if plain:
        found |= _description(config, default, workers="workers" in found).endpoints
    if plain and assembly.mcp is not None:
        found |= assembly.mcp.endpoints(handler, reception, config)
        found |= assembly.mcp.make_card(assembly.opened.authenticator, config).endpoints
    if plain and config.tasks:
        facts = ServedAgents(runners, assembly.streams, assembly.engine.switches)
        remote = None if assembly.console is None else assembly.console.remote
        found |= Admin(assembly.administration, bounds, facts, remote, stops).endpoints(callers, sessions)
    return found


def _make_cors(config: Config, reception: Reception) -> Cors | None:
    """Make the CORS of configured origins; None without any. Their pages may send what agents and chats look for."""
    if not config.cors_origins:
        return None
    conversation = config.openai_conversation_header
    chat = () if conversation is None else (conversation.lower().encode(),)
    return Cors(config.cors_origins, (*chat, *sorted(reception.headers)))


def _chat_settings(config: Config) -> ChatSettings:
    header = config.openai_conversation_header
    return ChatSettings(
        question_mark=config.openai_question_mark,
        conversation_header=None if header is None else header.lower().encode(),
        reply_within_s=config.openai_reply_within_s,
    )


def _make_reception(
    assembly: Assembly, config: Config, runners: Mapping[str, Runner], removed: frozenset[str]
) -> Reception:
    opened = assembly.opened
    return Reception(
        runners,
        Callers(
            opened.authenticator,
            hosts_of(config, opened.parent),
            refusals=CallerRefusals(assembly.trail, opened.store.clock, runners),
            agents=runners,
            origins=Origins(config.cors_origins, config.public_url),
            parent=opened.parent if opened.parent is not None and opened.parent.authenticates else None,
        ),
        _make_limits(config),
        headers=frozenset(name.encode() for runner in runners.values() for name in runner.traits.header_names),
        base=None if opened.files.door is None else partial(Request.base_url, public_url=config.public_url),
        extensions=_extensions(config),
        proxies=TrustedProxies(config.trusted_proxies) if config.trusted_proxies else None,
        removed=removed,
    )


def _card_settings(
    config: Config, mounts: tuple[Mount, ...], extensions: Mapping[Mount, tuple[AgentExtension, ...]]
) -> CardSettings:
    return CardSettings(
        public_url=config.public_url,
        max_age_s=config.card_max_age_s,
        mounts=mounts,
        extensions=extensions,
        signed=config.sign_cards,
        shows_keys=config.sign_cards or config.push_jwt,
        history=config.profile is not None and load_profile(config.profile).history,
        tasks=config.tasks,
        pushes=config.push,
        grpc=GrpcAddress(config.grpc_port, config.grpc_public_url) if config.grpc_port else None,
    )


def _make_catalog(
    assembly: Assembly, config: Config, listed: Mapping[str, Described], callers: Callers, default: str
) -> Catalog:
    mounts = _mounts(config)
    settings = CatalogSettings(
        mount=AGENT if AGENT in mounts else mounts[0],
        default=default,
        public_url=config.public_url,
        max_age_s=config.card_max_age_s,
        mcp=config.profile is None and assembly.mcp is not None,
    )
    return Catalog(listed, settings, callers)


def _make_limits(config: Config) -> Limits:
    return make_limits(
        config.max_body_bytes,
        config.max_depth,
        config.max_parts,
        body_pause_s=config.body_pause_s,
        max_text=config.max_text,
        max_values=config.max_values,
        max_unread_bytes=config.max_unread_bytes,
        max_page_bytes=config.max_page_bytes,
    )


def _description(config: Config, default: str, *, workers: bool) -> Description:
    keys = config.sign_cards or config.push_jwt
    return Description(ServedPaths(default, metrics=config.metrics, keys=keys, workers=workers))


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
