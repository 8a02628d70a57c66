"""From a path to its endpoint: a table of the fixed paths, and a parser for paths that contain an id.

Invariant: pure and total: any bytes give a Route or raise NotFound. Segments are split before they are
percent-decoded, so that an id may contain any character.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Literal
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from dragoman.config import RESERVED_AGENT_IDS
from dragoman.dialects.mounts import SERVED, Mount
from dragoman.model.errors import NotFound

EndpointName = Literal[
    "rpc",
    "rest",
    "card",
    "agents",
    "health",
    "ready",
    "metrics",
    "chat",
    "models",
    "mcp",
    "workers",
    "files",
    "evoai-health",
    "jwks",
]

Methods = Mapping[str, str]
NOTHING: Mapping[str, str] = MappingProxyType({})


class Route(Struct, frozen=True):
    """The destination of a request. `mount` is the path under which `agent` is reached: `/`, `/agents/echo`, `/a2a` …

    `agent` is the name in the path; there may be no such agent. `methods` are the HTTP methods allowed; for `rest` each
    maps to its A2A 1.0 method (§11.3). `ids` are the ids in the path. `legacy` marks the paths below `/v1`, for 0.3's
    HTTP+JSON; `vendor` marks paths that only the mount's own system has.
    """

    endpoint: EndpointName
    methods: Methods
    mount: str = "/"
    agent: str = ""
    ids: Mapping[str, str] = NOTHING
    legacy: bool = False
    vendor: bool = False


READ: Methods = MappingProxyType({"GET": "", "HEAD": ""})
CALL: Methods = MappingProxyType({"POST": ""})
# MCP 2025-11-25, Transports: GET opens a stream for messages outside of calls.
TOOLS: Methods = MappingProxyType({"POST": "", "GET": "", "DELETE": ""})

SEND: Methods = MappingProxyType({"POST": "SendMessage"})
STREAM: Methods = MappingProxyType({"POST": "SendStreamingMessage"})
LIST: Methods = MappingProxyType({"GET": "ListTasks", "HEAD": "ListTasks"})
EXTENDED_CARD: Methods = MappingProxyType({"GET": "GetExtendedAgentCard", "HEAD": "GetExtendedAgentCard"})
TASK: Methods = MappingProxyType({"GET": "GetTask", "HEAD": "GetTask"})
CANCEL: Methods = MappingProxyType({"POST": "CancelTask"})
# A2A 1.0 says GET in one place (§11.3.2) and POST in another (the proto). There are official clients of both kinds.
SUBSCRIBE: Methods = MappingProxyType({"GET": "SubscribeToTask", "POST": "SubscribeToTask"})
PUSH_CONFIGS: Methods = MappingProxyType(
    {"GET": "ListTaskPushNotificationConfigs", "POST": "CreateTaskPushNotificationConfig"}
)
PUSH_CONFIG: Methods = MappingProxyType(
    {"GET": "GetTaskPushNotificationConfig", "DELETE": "DeleteTaskPushNotificationConfig"}
)

FIXED: Mapping[tuple[str, ...], Methods] = MappingProxyType(
    {("message:send",): SEND, ("message:stream",): STREAM, ("tasks",): LIST, ("extendedAgentCard",): EXTENDED_CARD}
)
# A2A 0.3 §3.5.6: the extended card is GET /v1/card.
FIXED_LEGACY: Mapping[tuple[str, ...], Methods] = MappingProxyType(
    {("message:send",): SEND, ("message:stream",): STREAM, ("tasks",): LIST, ("card",): EXTENDED_CARD}
)
# protoAgent's aliases: POST and GET of `pushNotificationConfig` register and list, GET of a task is tasks/get.
ALIAS_PUSH: Methods = MappingProxyType(
    {"POST": "CreateTaskPushNotificationConfig", "GET": "ListTaskPushNotificationConfigs"}
)
FOLLOW: Methods = MappingProxyType({"GET": "SubscribeToTask"})
ACTIONS = ((":cancel", CANCEL), (":subscribe", SUBSCRIBE))
CARDS = frozenset({"agent-card.json", "agent.json"})
EVOAI = ("api", "v1", "a2a")
ALL_MOUNTS = frozenset(Mount)
WORKER_ACTIONS = frozenset(
    {
        "lease",
        "heartbeat",
        "update",
        "artifact",
        "ask",
        "delegate",
        "complete",
        "fail",
        "release",
        "history",
        "references",
    }
)

SERVER: Mapping[tuple[str, ...], Route] = MappingProxyType(
    {
        ("health",): Route("health", READ),
        ("healthz",): Route("health", READ),
        ("ready",): Route("ready", READ),
        ("metrics",): Route("metrics", READ),
        ("agents",): Route("agents", READ),
        (".well-known", "jwks.json"): Route("jwks", READ),
        ("v1", "chat", "completions"): Route("chat", CALL),
        ("v1", "models"): Route("models", READ),
        ("mcp",): Route("mcp", TOOLS),
        (*EVOAI, "health"): Route("evoai-health", READ),
    }
)
"""Paths of the server itself."""

ONLY_WITH: Mapping[str, frozenset[Mount]] = MappingProxyType(
    {"agents": frozenset({Mount.AGENT}), "evoai-health": frozenset({Mount.EVOAI}), "mcp": ALL_MOUNTS}
)
"""Endpoints of the server that exist only with certain mounts."""


class Routes:
    """All paths of a server that serves `agents` under `mounts`. `default` answers where the path names no agent."""

    def __init__(self, agents: Iterable[str], default: str, mounts: Collection[Mount] = ALL_MOUNTS) -> None:
        self._agents = frozenset(agents)
        self._default = default
        self._mounts = frozenset(mounts)
        self.where = (
            "the agent cards name the endpoints, GET /agents lists the agents"
            if Mount.AGENT in self._mounts
            else "the agent card names the endpoints: GET /.well-known/agent-card.json"
        )
        """Tells a caller where to find the paths that exist; part of error texts."""
        self.not_here = f"no such path here: {self.where}"
        self._exact: dict[bytes, Route] = {}
        below = [(), *FIXED, *((".well-known", card) for card in CARDS), *(("v1", *path) for path in FIXED_LEGACY)]
        stems = [(), ("a2a",), *((*stem, agent) for agent in self._agents for stem in ((), ("agents",), EVOAI))]
        fixed = [*SERVER, *((*stem, *path) for stem in stems for path in below)]
        for segments in fixed:
            try:
                self._exact[("/" + "/".join(segments)).encode()] = self._find(list(segments))
            except NotFound:  # such as /a2a/message:send, which protoAgent does not have
                continue

    def find(self, raw_path: bytes) -> Route:
        """Find the route of a path as it was on the wire. Raises NotFound."""
        found = self._exact.get(raw_path)
        if found is not None:
            return found
        segments = [unquote_to_bytes(segment).decode("utf-8", "replace") for segment in raw_path.split(b"/")]
        if segments[0] or len(segments) == 1:
            raise NotFound("no such path here: paths begin with /")
        if not segments[-1]:
            segments.pop()  # ignore one trailing slash: some clients add it to interface URLs
        return self._find(segments[1:])

    def _find(self, segments: list[str]) -> Route:
        own = SERVER.get(tuple(segments))
        if own is not None and ONLY_WITH.get(own.endpoint, frozenset()) <= self._mounts:
            return own
        match segments:
            case ["v1", "models", model] if model:
                return Route("models", READ, ids={"id": model})
            case ["files", task_id, digest]:
                return Route("files", READ, ids={"task_id": task_id, "digest": digest})
            case ["workers", agent, action] if agent and action in WORKER_ACTIONS:
                return Route("workers", CALL, "/workers", agent, {"action": action})
            case ["agents", agent, *rest] if agent:
                return self._find_below(Mount.AGENT, f"/agents/{agent}", agent, rest)
            case ["a2a", *rest]:
                return self._find_below(Mount.PROTOAGENT, "/a2a", self._default, rest)
            case ["api", "v1", "a2a", agent, *rest] if agent:
                return self._find_below(Mount.EVOAI, f"/api/v1/a2a/{agent}", agent, rest)
            case [agent, *rest] if agent and agent not in RESERVED_AGENT_IDS:
                return self._find_below(Mount.TENANT, f"/{agent}", agent, rest)
            case _:
                return self._find_below(Mount.ROOT, "/", self._default, segments)

    def _find_below(self, mount: Mount, path: str, agent: str, rest: list[str]) -> Route:
        match rest:
            case [".well-known", name] if name in CARDS and (mount in self._mounts or mount is Mount.ROOT):
                return Route("card", READ, path, agent)
            case _ if mount not in self._mounts:
                raise NotFound(self.not_here)
            case []:
                return Route("rpc", CALL, path, agent)
            case ["stream"] if mount is Mount.TENANT:
                return Route("rest", FOLLOW, path, agent, vendor=True)
            case ["tasks", task_id] if mount is Mount.PROTOAGENT:
                return Route("rest", TASK, path, agent, {"id": task_id}, vendor=True)
            case ["tasks", task_id, "pushNotificationConfig"] if mount is Mount.PROTOAGENT:
                return Route("rest", ALIAS_PUSH, path, agent, {"task_id": task_id}, vendor=True)
            case ["v1", *further] if "0.3" in SERVED[mount].rest:
                methods, ids = FIXED_LEGACY.get(tuple(further)), NOTHING
                if methods is None:
                    methods, ids = self._task(further)
                return Route("rest", methods, path, agent, ids, legacy=True)
            case [*further] if "1.0" in SERVED[mount].rest:
                methods, ids = FIXED.get(tuple(further)), NOTHING
                if methods is None:
                    methods, ids = self._task(further)
                return Route("rest", methods, path, agent, ids)
            case _:
                raise NotFound(self.not_here)

    def _task(self, rest: list[str]) -> tuple[Methods, Mapping[str, str]]:
        match rest:
            case ["tasks", named]:
                for suffix, methods in ACTIONS:
                    if named.endswith(suffix):
                        return methods, {"id": named.removesuffix(suffix)}
                return TASK, {"id": named}
            case ["tasks", task_id, "pushNotificationConfigs"]:
                return PUSH_CONFIGS, {"task_id": task_id}
            case ["tasks", task_id, "pushNotificationConfigs", config_id]:
                return PUSH_CONFIG, {"task_id": task_id, "id": config_id}
            case _:
                raise NotFound(self.not_here)
