"""Which endpoint a path means: a table of the paths that are fixed, and a parse of those that hold an id.

Invariant: pure, and total: any bytes give a Route or raise NotFound. Segments are split before they are
percent-decoded, so that an id may hold anything.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from dragoman.config import RESERVED_AGENT_IDS
from dragoman.model.errors import NotFound

EndpointName = Literal["rpc", "rest", "card", "agents", "health", "ready"]

Methods = Mapping[str, str]
NOTHING: Mapping[str, str] = MappingProxyType({})


class Route(Struct, frozen=True):
    """Where a request goes. `mount` is the path under which `agent` is reached: `/`, `/agents/echo`, `/echo`.

    `agent` is as the path names it: nobody has looked yet whether there is such an agent. `methods` are the HTTP
    methods allowed, and for `rest` what they mean: the A2A 1.0 method (§11.3). `ids` are those in the path. `legacy`
    marks the paths below `/v1`, where 0.3's HTTP+JSON lives.
    """

    endpoint: EndpointName
    methods: Methods
    mount: str = "/"
    agent: str = ""
    ids: Mapping[str, str] = NOTHING
    legacy: bool = False


READ: Methods = MappingProxyType({"GET": "", "HEAD": ""})
CALL: Methods = MappingProxyType({"POST": ""})

SEND: Methods = MappingProxyType({"POST": "SendMessage"})
STREAM: Methods = MappingProxyType({"POST": "SendStreamingMessage"})
LIST: Methods = MappingProxyType({"GET": "ListTasks", "HEAD": "ListTasks"})
EXTENDED_CARD: Methods = MappingProxyType({"GET": "GetExtendedAgentCard", "HEAD": "GetExtendedAgentCard"})
TASK: Methods = MappingProxyType({"GET": "GetTask", "HEAD": "GetTask"})
CANCEL: Methods = MappingProxyType({"POST": "CancelTask"})
# A2A 1.0 says GET in one place (§11.3.2) and POST in another (the proto); there are official clients of each kind.
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
ACTIONS = ((":cancel", CANCEL), (":subscribe", SUBSCRIBE))
CARDS = frozenset({"agent-card.json", "agent.json"})


class Routes:
    """All paths of a server that serves `agents`; `default` answers at the root."""

    def __init__(self, agents: Iterable[str], default: str) -> None:
        self._agents = frozenset(agents)
        self._default = default
        self._exact: dict[bytes, Route] = {}
        below = [(), *FIXED, *((".well-known", card) for card in CARDS), *(("v1", *path) for path in FIXED_LEGACY)]
        mounts = [(), *(("agents", agent) for agent in self._agents), *((agent,) for agent in self._agents)]
        for segments in [
            ("agents",),
            ("health",),
            ("ready",),
            *((*mount, *path) for mount in mounts for path in below),
        ]:
            try:
                self._exact[("/" + "/".join(segments)).encode()] = self._find(list(segments))
            except NotFound:  # as POST /{id}, which is nothing of A2A
                continue

    def find(self, raw_path: bytes) -> Route:
        """The route of a path as it came on the wire. Raises NotFound."""
        found = self._exact.get(raw_path)
        if found is not None:
            return found
        segments = [unquote_to_bytes(segment).decode("utf-8", "replace") for segment in raw_path.split(b"/")]
        if segments[0] or len(segments) == 1:
            raise NotFound("no such path here: paths begin with /")
        if not segments[-1]:
            segments.pop()  # one trailing slash, which clients add to interface URLs, means nothing
        return self._find(segments[1:])

    def _find(self, segments: list[str]) -> Route:
        match segments:
            case ["health"]:
                return Route("health", READ)
            case ["ready"]:
                return Route("ready", READ)
            case ["agents"]:
                return Route("agents", READ)
            case ["agents", agent, *rest] if agent:
                return self._below(f"/agents/{agent}", agent, rest)
            case [agent, *rest] if agent and rest and agent not in RESERVED_AGENT_IDS:
                return self._below(f"/{agent}", agent, rest, tenant=True)
            case _:
                return self._below("/", self._default, segments)

    def _below(self, mount: str, agent: str, rest: list[str], *, tenant: bool = False) -> Route:
        match rest:
            case [] if not tenant:
                return Route("rpc", CALL, mount, agent)
            case [".well-known", name] if name in CARDS:
                return Route("card", READ, mount, agent)
            case ["v1", *further] if not tenant:
                methods, ids = FIXED_LEGACY.get(tuple(further)), NOTHING
                if methods is None:
                    methods, ids = _task(further)
                return Route("rest", methods, mount, agent, ids, legacy=True)
            case [*further]:
                methods, ids = FIXED.get(tuple(further)), NOTHING
                if methods is None:
                    methods, ids = _task(further)
                return Route("rest", methods, mount, agent, ids)


def _task(rest: list[str]) -> tuple[Methods, Mapping[str, str]]:
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
            raise NotFound("no such path here: the agent cards name the endpoints, GET /agents lists the agents")
