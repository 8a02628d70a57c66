"""The lanes: each way an operation can be asked for, as pure functions from an operation to a request.

An operation is a name and its params as A2A 1.0 writes them; a lane spells both in its version and binding.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from msgspec import Struct

from tests.spec.proto import V03, V03_PROTO, V1
from tests.spec.schema import Schema

Json = dict[str, Any]


class Asked(Struct, frozen=True):
    """The request on the wire; `body` None sends none."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: Json | None


class Lane(Struct, frozen=True):
    """A version over a binding below a mount. `mount` has the agent's id for `{id}`; `tenant` sends it as a param.

    Over gRPC the mount is not a path: see `grpc_lane`.
    """

    name: str
    version: str
    rpc: bool
    mount: str
    tenant: bool = False
    grpc: bool = False

    @property
    def schema(self) -> Schema:
        """The shape of its answers."""
        if self.version == "1.0":
            return V1
        return V03 if self.rpc else V03_PROTO

    @property
    def default_only(self) -> bool:
        """Whether only the default agent is there."""
        return "{id}" not in self.mount and not self.tenant

    def path(self, agent: str) -> str:
        """The mount of an agent."""
        return self.mount.format(id=agent)


RPC_1 = Lane("1.0 rpc", "1.0", True, "/agents/{id}")
REST_1 = Lane("1.0 rest", "1.0", False, "/agents/{id}")
RPC_03 = Lane("0.3 rpc", "0.3", True, "/agents/{id}")
REST_03 = Lane("0.3 rest", "0.3", False, "/agents/{id}/v1")

GRPC_1 = Lane("1.0 grpc", "1.0", False, "/agents/{id}", grpc=True)
GRPC_03 = Lane("0.3 grpc", "0.3", False, "/agents/{id}", grpc=True)

LANES = (RPC_1, REST_1, RPC_03, REST_03)
"""Both versions over both bindings, where every agent is reached."""


def lane_id(lane: Lane) -> str:
    """The name of a lane in the name of a test."""
    return lane.name.replace(" ", "-")


WITH_GRPC = (*LANES, GRPC_1, GRPC_03)
"""These and gRPC, in both versions."""

over_grpc = pytest.mark.parametrize("lane", WITH_GRPC, ids=lane_id)
"""Runs a test in these lanes and over gRPC in both versions."""

over_grpc_1 = pytest.mark.parametrize("lane", [*LANES, GRPC_1], ids=lane_id)
"""The same without gRPC in 0.3, whose proto has no such operation or field."""

EVERYWHERE = (
    *LANES,
    Lane("1.0 rpc at the root", "1.0", True, "/"),
    Lane("1.0 rest at the root", "1.0", False, ""),
    Lane("1.0 rpc by tenant", "1.0", True, "/", tenant=True),
    Lane("1.0 rest below the tenant", "1.0", False, "/{id}"),
    Lane("0.3 rpc at the root", "0.3", True, "/"),
    Lane("0.3 rest at the root", "0.3", False, "/v1"),
)
"""The same on every mount."""

METHODS = {
    "send": ("SendMessage", "message/send"),
    "stream": ("SendStreamingMessage", "message/stream"),
    "get": ("GetTask", "tasks/get"),
    "list": ("ListTasks", "tasks/list"),
    "cancel": ("CancelTask", "tasks/cancel"),
    "subscribe": ("SubscribeToTask", "tasks/resubscribe"),
    "set_push": ("CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set"),
    "get_push": ("GetTaskPushNotificationConfig", "tasks/pushNotificationConfig/get"),
    "list_push": ("ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/list"),
    "delete_push": ("DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete"),
    "extended_card": ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"),
}
"""A2A 1.0 §5.3 and §9.4; A2A 0.3 §3.5.6 and §7."""

ROUTES = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "get": ("GET", "/tasks/{id}"),
    "list": ("GET", "/tasks"),
    "cancel": ("POST", "/tasks/{id}:cancel"),
    "subscribe": ("GET", "/tasks/{id}:subscribe"),
    "set_push": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "get_push": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "list_push": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "delete_push": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "extended_card": ("GET", "/extendedAgentCard"),
}
"""A2A 1.0 §11.3; 0.3 has the same below `/v1`, but for the card."""

ANSWERS = {
    "send": "SendMessageResponse",
    "get": "Task",
    "cancel": "Task",
    "list": "ListTasksResponse",
    "set_push": "TaskPushNotificationConfig",
    "get_push": "TaskPushNotificationConfig",
    "list_push": "PushConfigs",
    "delete_push": "Empty",
}
"""The messages that unary operations are answered with."""


def asked(lane: Lane, op: str, params: Json, agent: str) -> Asked:
    """The request of an operation in a lane. The JSON-RPC id is 7."""
    headers = {"A2A-Version": "1.0"} if lane.version == "1.0" else {}
    given = params if lane.version == "1.0" else spelled_03(lane, op, params)
    if lane.rpc:
        if lane.tenant:
            given = {"tenant": agent, **given}
        body = {"jsonrpc": "2.0", "id": 7, "method": METHODS[op][lane.version != "1.0"], "params": given}
        return Asked("POST", lane.path(agent), headers, body)
    verb, route = ROUTES[op]
    if op == "extended_card" and lane.version == "0.3":
        route = "/card"
    variables = {name: given[name] for name in ("id", "taskId") if f"{{{name}}}" in route}
    path = lane.path(agent) + route.format(**{name: quote(str(value), safe="") for name, value in variables.items()})
    rest = {name: value for name, value in given.items() if name not in variables}
    if verb == "POST":
        return Asked(verb, path, headers, rest)
    query = urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in rest.items()})
    return Asked(verb, f"{path}?{query}" if query else path, headers, None)


def spelled_03(lane: Lane, op: str, params: Json) -> Json:
    given = dict(params)
    match op:
        case "send" | "stream":
            if isinstance(given.get("message"), dict):
                given["message"] = (_message_03 if lane.rpc else _message_03_proto)(given["message"])
            configuration = dict(given.get("configuration", {}))
            configuration["blocking"] = not configuration.pop("returnImmediately", False)
            if "taskPushNotificationConfig" in configuration:
                configuration["pushNotificationConfig"] = configuration.pop("taskPushNotificationConfig")
            given["configuration"] = configuration
        case "list" if "status" in given:
            given["status"] = given["status"].removeprefix("TASK_STATE_").lower().replace("_", "-")
        case "set_push":
            config = {name: value for name, value in given.items() if name != "taskId"}
            return {"taskId": given["taskId"], "pushNotificationConfig": config} if lane.rpc else _set_push(given)
        case "get_push" | "delete_push" if lane.rpc:
            return {"id": given["taskId"], "pushNotificationConfigId": given["id"]}
        case "list_push" if lane.rpc:
            return {"id": given["taskId"]}
        case _:
            pass
    return given


def _set_push(given: Json) -> Json:
    config = {name: value for name, value in given.items() if name != "taskId"}
    return {
        "taskId": given["taskId"],
        "parent": f"tasks/{given['taskId']}",
        "config": {"pushNotificationConfig": config},
    }


def _message_03(message: Json) -> Json:
    spelled = {**message, "kind": "message"}
    if "role" in message:
        spelled["role"] = message["role"].removeprefix("ROLE_").lower()
    if "parts" in message:
        spelled["parts"] = [_part_03(part) for part in message["parts"]]
    return spelled


def _part_03(part: Json) -> Json:
    file = {"mimeType": part.get("mediaType"), "name": part.get("filename")}
    if "raw" in part:
        return {"kind": "file", "file": _there({**file, "bytes": part["raw"]})}
    if "url" in part:
        return {"kind": "file", "file": _there({**file, "uri": part["url"]})}
    return {"kind": "text" if "text" in part else "data", **part}


def _message_03_proto(message: Json) -> Json:
    spelled = {name: value for name, value in message.items() if name != "parts"}
    if "parts" in message:
        spelled["content"] = [_part_03_proto(part) for part in message["parts"]]
    return spelled


def _part_03_proto(part: Json) -> Json:
    file = {"mimeType": part.get("mediaType"), "name": part.get("filename")}
    if "raw" in part:
        return {"file": _there({**file, "fileWithBytes": part["raw"]})}
    if "url" in part:
        return {"file": _there({**file, "fileWithUri": part["url"]})}
    return {"data": {"data": part["data"]}} if "data" in part else part


def _there(members: Json) -> Json:
    return {name: value for name, value in members.items() if value is not None}


Part = tuple[str, Any, str | None, str | None]
"""Kind, content, media type, file name."""


class TaskView(Struct, frozen=True):
    """A task, the same for all lanes; `state` as `input-required`."""

    id: str
    context_id: str
    state: str
    timestamp: str
    said: str
    artifacts: tuple[tuple[Part, ...], ...] | None
    history: tuple[str, ...] | None
    raw: Json

    @property
    def text(self) -> str:
        """All text of the artifacts."""
        return "".join(part[1] for artifact in self.artifacts or () for part in artifact if part[0] == "text")


def task_view(raw: Json) -> TaskView:
    """The task that an answer of any lane holds."""
    status = raw["status"]
    artifacts, history = raw.get("artifacts"), raw.get("history")
    return TaskView(
        raw["id"],
        raw["contextId"],
        state_view(status["state"]),
        status["timestamp"],
        text_view(status.get("message", {})),
        None if artifacts is None else tuple(parts_view(artifact) for artifact in artifacts),
        None if history is None else tuple(text_view(message) for message in history),
        raw,
    )


def state_view(state: str) -> str:
    """`TASK_STATE_CANCELLED` is `canceled`."""
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-").replace("cancelled", "canceled")


def parts_view(holder: Json) -> tuple[Part, ...]:
    """The parts of a message or an artifact."""
    return tuple(_part_view(part) for part in holder.get("parts") or holder.get("content") or [])


def text_view(holder: Json) -> str:
    """Their text."""
    return "".join(part[1] for part in parts_view(holder) if part[0] == "text")


def _part_view(part: Json) -> Part:
    file = part.get("file", part)
    media_type, name = file.get("mediaType", file.get("mimeType")), file.get("filename", file.get("name"))
    for key, content, read in _CONTENTS:
        if key in file:
            return (content, read(file[key]), media_type, name)
    data = part["data"]
    wrapped = "kind" not in part and isinstance(data, dict) and data.keys() == {"data"}
    return ("data", data["data"] if wrapped else data, media_type, name)


def _same(value: Any) -> Any:
    return value


_CONTENTS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("text", "text", _same),
    ("raw", "file", base64.b64decode),
    ("bytes", "file", base64.b64decode),
    ("fileWithBytes", "file", base64.b64decode),
    ("url", "file", _same),
    ("uri", "file", _same),
    ("fileWithUri", "file", _same),
)


def encoded(body: Json) -> bytes:
    """The bytes of a body."""
    return msgspec.json.encode(body)
