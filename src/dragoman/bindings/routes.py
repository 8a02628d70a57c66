"""From a path to its endpoint: a table of the fixed paths, and a parser for paths that contain an id.

Invariant: pure and total: any bytes give a Route or raise NotFound. Segments are split before they are
percent-decoded, so that an id may contain any character.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Literal
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.worker.wire import ACTIONS
from dragoman.config import RESERVED_AGENT_IDS
from dragoman.dialects.operations import OperationTable
from dragoman.dialects.resolve import CLOSEST_FIRST, MOUNTS, SYSTEMS
from dragoman.dialects.system import AGENT, ROOT, Mount, OwnPath
from dragoman.dialects.v03.operations import TABLE as V03
from dragoman.dialects.v1.operations import TABLE as V1
from dragoman.model.errors import NotFound

EndpointName = Literal[
    "rpc",
    "rest",
    "card",
    "catalog",
    "server_card",
    "agents",
    "health",
    "ready",
    "metrics",
    "chat",
    "models",
    "responses",
    "response",
    "response-cancel",
    "response-items",
    "conversations",
    "conversation",
    "conversation-items",
    "unsupported",
    "mcp",
    "workers",
    "files",
    "jwks",
    "grpc",
    "admin",
    "console",
    "openapi",
    "docs",
]

Methods = Mapping[str, str]
NOTHING: Mapping[str, str] = MappingProxyType({})


NOTHING_ELSE: Mapping[str, "Route"] = MappingProxyType({})


class Route(Struct, frozen=True):
    """The destination of a request. `mount` is the path under which `agent` is reached: `/`, `/agents/echo`, `/a2a` …

    `kind` is that mount's kind. `agent` is the name in the path; there may be no such agent. `methods` are the HTTP
    methods allowed; for `rest` each maps to its A2A 1.0 method (§11.3). `ids` are the ids in the path. `legacy` marks
    the paths below `/v1`, for 0.3's HTTP+JSON. `own` is the path if only one system has it, and `others` are the routes
    of the HTTP methods for which the path means something else. `segments` are those of a path below `/admin/v1` or
    `/console`.
    """

    endpoint: EndpointName
    methods: Methods
    mount: str = "/"
    agent: str = ""
    ids: Mapping[str, str] = NOTHING
    legacy: bool = False
    kind: Mount = ROOT
    own: OwnPath | None = None
    others: Mapping[str, "Route"] = NOTHING_ELSE
    segments: tuple[str, ...] = ()


NOWHERE = Route("rest", NOTHING)
"""The route of a request before it is found."""

READ: Methods = MappingProxyType({"GET": "", "HEAD": ""})
CALL: Methods = MappingProxyType({"POST": ""})
READ_OR_DELETE: Methods = MappingProxyType({**READ, "DELETE": ""})
ANY_METHOD: Methods = MappingProxyType(dict.fromkeys(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"), ""))
# MCP 2025-11-25, Transports: GET opens a stream for messages outside of calls.
TOOLS: Methods = MappingProxyType({"POST": "", "GET": "", "DELETE": ""})

ADMIN: Methods = MappingProxyType({"GET": "", "HEAD": "", "POST": "", "PATCH": "", "DELETE": ""})
"""The methods of the admin API, which knows those of each of its paths itself."""

CONSOLE: Methods = MappingProxyType({"GET": "", "HEAD": "", "POST": "", "DELETE": ""})
"""The methods of the console: pages are read, sessions are begun and ended."""


def _routes_of(table: OperationTable) -> Mapping[tuple[str, ...], Methods]:
    """The paths of a version's HTTP+JSON by segments, and for each HTTP method the name of the operation in 1.0."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in table.values():
        methods = found.setdefault(row.segments, {})
        methods |= dict.fromkeys((row.verb, *row.also), V1[row.operation].method)
    return dict(sorted(found.items(), key=lambda each: each[0][-1] == "{id}"))  # which fits `7:cancel`, too


REST = _routes_of(V1)
REST_LEGACY = _routes_of(V03)
"""The paths of HTTP+JSON in 1.0 and in 0.3."""

CARDS = frozenset({"agent-card.json", "agent.json"})
WORKER_ACTIONS = frozenset(ACTIONS)

SERVER: Mapping[tuple[str, ...], Route] = MappingProxyType(
    {
        ("health",): Route("health", READ),
        ("healthz",): Route("health", READ),
        ("ready",): Route("ready", READ),
        ("metrics",): Route("metrics", READ),
        ("agents",): Route("agents", READ),
        (".well-known", "jwks.json"): Route("jwks", READ),
        (".well-known", "ai-catalog.json"): Route("catalog", READ),
        ("v1", "chat", "completions"): Route("chat", CALL),
        ("v1", "models"): Route("models", READ),
        ("v1", "responses"): Route("responses", CALL),
        ("v1", "conversations"): Route("conversations", CALL),
        ("mcp",): Route("mcp", TOOLS),
        ("mcp", "server-card"): Route("server_card", READ),
        ("openapi.json",): Route("openapi", READ),
        ("docs",): Route("docs", READ),
        **{system.health_path: Route("health", READ) for system in SYSTEMS if system.health_path},
    }
)
"""Paths of the server itself."""

OPENAI_PATHS: Mapping[tuple[str, ...], Route] = MappingProxyType(
    {
        ("v1", "models", "{id}"): Route("models", READ),
        ("v1", "responses", "{id}"): Route("response", READ_OR_DELETE),
        ("v1", "responses", "{id}", "cancel"): Route("response-cancel", CALL),
        ("v1", "responses", "{id}", "input_items"): Route("response-items", READ),
        ("v1", "conversations", "{id}"): Route("conversation", READ_OR_DELETE),
        ("v1", "conversations", "{id}", "items"): Route("conversation-items", READ),
    }
)
"""Paths with an id that OpenAI's API has."""

AS_WRITTEN = frozenset({b"/ready", b"/metrics"})
"""Paths that proxies keep from strangers by comparing bytes: a trailing slash or an escape would get past them."""

ONLY_WITH: Mapping[tuple[str, ...], frozenset[Mount]] = MappingProxyType(
    {
        ("agents",): frozenset({AGENT}),
        ("mcp",): frozenset(MOUNTS),
        ("mcp", "server-card"): frozenset(MOUNTS),
        ("openapi.json",): frozenset(MOUNTS),
        ("docs",): frozenset(MOUNTS),
        **{system.health_path: frozenset({system.mount}) for system in SYSTEMS if system.health_path and system.mount},
    }
)
"""Paths of the server that exist only with certain mounts."""

OWN_PATHS: Mapping[Mount, tuple[tuple[tuple[str, ...], OwnPath], ...]] = MappingProxyType(
    {
        mount: tuple(
            (tuple(own.path.split("/")), own) for system in SYSTEMS for own in system.paths if mount in own.mounts
        )
        for mount in MOUNTS
    }
)
"""The paths below each mount that only one system has, by segments."""


class Routes:
    """All paths of a server that serves `agents` under `mounts`. `default` answers where the path names no agent."""

    def __init__(self, agents: Iterable[str], default: str, mounts: Collection[Mount] = MOUNTS) -> None:
        self._agents = frozenset(agents)
        self._default = default
        self._mounts = frozenset(mounts)
        self.where = (
            "the agent cards name the endpoints, GET /agents lists the agents"
            if AGENT in self._mounts
            else "the agent card names the endpoints: GET /.well-known/agent-card.json"
        )
        """Tells a caller where to find the paths that exist; part of error texts."""
        self.not_here = f"no such path here: {self.where}"
        self.exact: dict[bytes, Route] = {}
        """Routes of paths as they are on the wire: all those that name neither an agent nor an id, and those of agents
        that were called. `find` adds these, as there may be a thousand agents, and each change of one makes the routes
        anew. An agent has a fixed number of paths without an id, and one for each action of its workers.
        """
        rest = [path for path in (*REST, *REST_LEGACY) if "{" not in "".join(path)]
        below = [(), *rest, *((".well-known", card) for card in CARDS)]
        fixed = [*SERVER]
        for mount in MOUNTS:
            if not mount.names_agents:
                fixed += [(*mount.stem, *path) for path in (*below, *(path for path, _ in OWN_PATHS[mount]))]
        for segments in fixed:
            try:
                self.exact[("/" + "/".join(segments)).encode()] = self._find(list(segments))
            except NotFound:  # such as /a2a/message:send, which protoAgent does not have
                continue

    def find(self, raw_path: bytes) -> Route:
        """Find the route of a path as it was on the wire. Raises NotFound."""
        found = self.exact.get(raw_path)
        if found is not None:
            return found
        segments = [unquote_to_bytes(segment).decode("utf-8", "replace") for segment in raw_path.split(b"/")]
        if segments[0] or len(segments) == 1:
            raise NotFound("no such path here: paths begin with /")
        if not segments[-1]:
            segments.pop()  # ignore one trailing slash: some clients add it to interface URLs
        spelled = "/".join(segments).encode()
        if spelled in AS_WRITTEN:
            raise NotFound("no such path here")
        route = self._find(segments[1:])
        kept = route.endpoint == "workers" or not (route.ids or route.segments)
        if kept and route.agent in self._agents and spelled == raw_path:
            self.exact[raw_path] = route
        return route

    def _find(self, segments: list[str]) -> Route:
        own = SERVER.get(tuple(segments))
        if own is not None and ONLY_WITH.get(tuple(segments), frozenset()) <= self._mounts:
            return own
        if segments[:1] == ["v1"]:
            return self._find_versioned(segments)
        match segments:
            case ["admin", "v1", *below]:
                return Route("admin", ADMIN, segments=tuple(below))
            case ["console", *below]:
                return Route("console", CONSOLE, segments=tuple(below))
            case ["files", task_id, digest]:
                return Route("files", READ, ids={"task_id": task_id, "digest": digest})
            case ["workers", agent, action] if agent:
                if action not in WORKER_ACTIONS:
                    raise NotFound(f"workers have no such action: there are {', '.join(sorted(WORKER_ACTIONS))}")
                return Route("workers", CALL, "/workers", agent, {"action": action})
        for mount in CLOSEST_FIRST:
            if not mount.names_agents:
                if segments[: len(mount.stem)] == [*mount.stem] and mount is not ROOT:
                    return self._find_below(mount, mount.path, self._default, segments[len(mount.stem) :])
                continue
            before, rest = segments[: len(mount.stem)], segments[len(mount.stem) :]
            if before != [*mount.stem] or not rest or not rest[0]:
                continue
            agent = rest[0]
            if mount.catches_all and not self._looks_like_agent(agent, segments):
                continue
            return self._find_below(mount, mount.path.replace("{id}", agent), agent, rest[1:])
        return self._find_below(ROOT, "/", self._default, segments)

    def _find_versioned(self, segments: list[str]) -> Route:
        """Find the route of a path below `/v1`: of OpenAI's API, or of the HTTP+JSON of 0.3. Raises NotFound."""
        for pattern, route in OPENAI_PATHS.items():
            ids = _match(pattern, segments)
            if ids is not None and all(ids.values()):
                return replace(route, ids=ids)
        try:
            return self._find_below(ROOT, "/", self._default, segments)
        except NotFound:
            if ROOT not in self._mounts or len(segments) == 1:
                raise
            return Route("unsupported", ANY_METHOD)

    def _looks_like_agent(self, first: str, segments: list[str]) -> bool:
        """Whether a path belongs to the agent that its first segment names, and not to the root."""
        return first not in RESERVED_AGENT_IDS and (first in self._agents or _own_path(ROOT, segments) is None)

    def _find_below(self, mount: Mount, path: str, agent: str, rest: list[str]) -> Route:
        match rest:
            case [".well-known", name] if name in CARDS and (mount in self._mounts or mount is ROOT):
                return Route("card", READ, path, agent, kind=mount)
            case _ if mount not in self._mounts:
                raise NotFound(self.not_here)
            case []:
                return Route("rpc", CALL, path, agent, kind=mount)
        found = _own_path(mount, rest)
        if found is None or not self._mounts.issuperset(found[0].mounts):
            return self._find_rest(mount, path, agent, rest)
        own, ids = found
        others: Mapping[str, Route] = NOTHING_ELSE
        try:
            plain = self._find_rest(mount, path, agent, rest)
            others = {method: plain for method in plain.methods if method not in own.methods}
        except NotFound:
            pass  # nobody else has the path
        return Route(own.endpoint, own.methods, path, agent, ids, kind=mount, own=own, others=others)

    def _find_rest(self, mount: Mount, path: str, agent: str, rest: list[str]) -> Route:
        """Find the route of a path of the official HTTP+JSON. Raises NotFound."""
        legacy = rest[0] == "v1" and "0.3" in mount.rest
        if legacy or "1.0" in mount.rest:
            for segments, methods in (REST_LEGACY if legacy else REST).items():
                if (ids := _match(segments, rest)) is not None:
                    return Route("rest", methods, path, agent, ids, legacy=legacy, kind=mount)
        raise NotFound(self.not_here)


def _own_path(mount: Mount, rest: list[str]) -> tuple[OwnPath, Mapping[str, str]] | None:
    """Return the path that only one system has below the mount, and its ids; None if there is none."""
    for segments, own in OWN_PATHS[mount]:
        if (ids := _match(segments, rest)) is not None:
            return own, ids
    return None


def _match(pattern: tuple[str, ...], segments: list[str]) -> Mapping[str, str] | None:
    """Return the ids in the segments of a path; None if they do not fit the pattern."""
    if len(pattern) != len(segments):
        return None
    ids: dict[str, str] = {}
    for expected, segment in zip(pattern, segments, strict=True):
        name, is_id, action = expected.partition("}")
        if not is_id and expected == segment:
            continue
        if not is_id or not segment.endswith(action):
            return None
        ids[name[1:]] = segment.removesuffix(action)
    return ids
