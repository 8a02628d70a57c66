"""The lanes over gRPC: an operation as a message of the official types, and the answer as its protobuf JSON.

In 1.0 `tenant` names the agent; in 0.3 the metadata does. Protobuf has no null and no wrong types, so whatever a test
sends must fit into the message.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as v03
from a2a.types import a2a_pb2 as v1
from google.protobuf import empty_pb2, json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode, aio
from msgspec import Struct
from multidict import CIMultiDict

from dragoman.dialects.extensions import EVENT_ID
from tests.spec import lanes
from tests.spec.failures import INNARDS, Failure
from tests.spec.lanes import Json, Lane

SERVICES = {"1.0": "lf.a2a.v1.A2AService", "0.3": "a2a.v1.A2AService"}

_TASK_OF = {"get", "cancel", "subscribe"}
_METHODS_03 = {
    "send": "SendMessage",
    "stream": "SendStreamingMessage",
    "get": "GetTask",
    "cancel": "CancelTask",
    "subscribe": "TaskSubscription",
    "set_push": "CreateTaskPushNotificationConfig",
    "get_push": "GetTaskPushNotificationConfig",
    "list_push": "ListTaskPushNotificationConfig",
    "delete_push": "DeleteTaskPushNotificationConfig",
    "extended_card": "GetAgentCard",
}


class Called(Struct, frozen=True):
    """A call: the procedure, its message, the type of the answer, and its metadata."""

    path: str
    request: Message
    answer: type[Message]
    metadata: tuple[tuple[str, str], ...]


def called(lane: Lane, op: str, params: Json, agent: str, headers: Mapping[str, str] | None) -> Called:
    """The call of an operation."""
    metadata = {name.lower(): value for name, value in (headers or {}).items()}
    if lane.version == "1.0":
        package, method, body = v1, lanes.METHODS[op][0], {"tenant": agent, **params}
        metadata = {"a2a-version": "1.0", **metadata}
    else:
        package, method, body = v03, _METHODS_03[op], _spelled_03(lane, op, params)
        metadata = {"x-dragoman-agent": agent, **metadata}
    service = package.DESCRIPTOR.services_by_name["A2AService"].methods_by_name[method]
    request = json_format.ParseDict(body, getattr(package, service.input_type.name)())
    answer = getattr(package, service.output_type.name, empty_pb2.Empty)
    return Called(f"/{SERVICES[lane.version]}/{method}", request, answer, tuple(metadata.items()))


def with_ids(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers of a stream whose items shall have ids, unless a test declares extensions of its own."""
    sent = {name.lower(): value for name, value in (headers or {}).items()}
    return sent if any(name.endswith("a2a-extensions") for name in sent) else {**sent, "a2a-extensions": EVENT_ID}


def _spelled_03(lane: Lane, op: str, params: Json) -> Json:
    given = lanes.spelled_03(lane, op, params)
    config = given.pop("configuration", None) if op in ("send", "stream") else None
    if config is not None:
        if "pushNotificationConfig" in config:
            config["pushNotification"] = _push_03(config.pop("pushNotificationConfig"))
        given["configuration"] = config
    if op in _TASK_OF:
        given["name"] = f"tasks/{given.pop('id')}"
    if op in ("get_push", "delete_push"):
        given = {"name": f"tasks/{given['taskId']}/pushNotificationConfigs/{given['id']}"}
    if op == "list_push":
        given = {"parent": f"tasks/{given['taskId']}"}
    if op == "set_push":
        inner = _push_03(given["config"]["pushNotificationConfig"])
        given = {
            "parent": given["parent"],
            "configId": inner.get("id", ""),
            "config": {"pushNotificationConfig": inner},
        }
    return given


def _push_03(config: Json) -> Json:
    authentication = config.get("authentication")
    if authentication is None or "scheme" not in authentication:
        return config
    rest = {name: value for name, value in authentication.items() if name != "scheme"}
    return {**config, "authentication": {"schemes": [authentication["scheme"]], **rest}}


def shown(message: Message) -> Json:
    """The protobuf JSON of an answer, with time stamps as A2A 1.0 §5.6.1 has them."""
    told: Json = json_format.MessageToDict(message)
    return _stamped(told)


def whole(lane: Lane, kind: str, told: Json) -> Json:
    """The same with the members that protobuf JSON leaves out because they are false or empty."""
    if kind == "ListTasksResponse":
        return {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0, **told}
    if lane is lanes.GRPC_03 and "statusUpdate" in told:
        return {"statusUpdate": {"final": False, **told["statusUpdate"]}}
    return told


def _stamped(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _milliseconds(each) if name == "timestamp" and isinstance(each, str) else _stamped(each)
            for name, each in value.items()
        }
    return [_stamped(each) for each in value] if isinstance(value, list) else value


def _milliseconds(text: str) -> str:
    return text if "." in text else text.replace("Z", ".000Z")


def failure(lane: Lane, error: aio.AioRpcError) -> Failure:
    """Read a status, by the letter of the lane: the ErrorInfo of A2A 1.0 §10.6; in 0.3 also `Name: text`."""
    told = error.details() or ""
    assert not INNARDS.search(told.partition(": ")[2] if lane.version == "0.3" else told), told
    assert error.code() not in (StatusCode.OK, StatusCode.UNKNOWN), error
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    number = error.code().value[0]
    assert (status.code, status.message) == (number, told), "the details contradict the status"
    info, violations = error_details_pb2.ErrorInfo(), {}
    assert status.details[0].Unpack(info)
    assert info.domain == "a2a-protocol.org"
    for detail in status.details:
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            violations = {each.field: each.description for each in bad.field_violations}
    return Failure(None, number, told, info.reason, dict(info.metadata), violations)


class Reading(Struct):
    """An open call of a stream: its messages in protobuf JSON, and how it failed before the first, if it did."""

    call: Any
    failed: Failure | None
    headers: Mapping[str, Any]
    first: "asyncio.Task[Any] | None"

    async def next(self) -> Json | None:
        """The next message; None at the end."""
        if self.first is not None:
            message, self.first = await self.first, None
        else:
            message = await self.call.read()
        return None if message is aio.EOF else shown(message)


async def answered(
    channel: aio.Channel, lane: Lane, made: Called
) -> tuple[Json | None, Mapping[str, Any], Failure | None]:
    """The answer to a unary call, with its metadata: the message, or the failure."""
    procedure = channel.unary_unary(
        made.path, request_serializer=type(made.request).SerializeToString, response_deserializer=made.answer.FromString
    )
    call = procedure(made.request, metadata=made.metadata)
    try:
        message = await call
    except aio.AioRpcError as error:
        return None, {}, failure(lane, error)
    return shown(message), CIMultiDict(list(await call.initial_metadata() or ())), None


@asynccontextmanager
async def reading(channel: aio.Channel, lane: Lane, made: Called) -> AsyncIterator[Reading]:
    """An open stream, once the server has accepted or refused it."""
    procedure = channel.unary_stream(
        made.path, request_serializer=type(made.request).SerializeToString, response_deserializer=made.answer.FromString
    )
    call = procedure(made.request, metadata=made.metadata)
    first = asyncio.ensure_future(call.read())
    try:
        headers = CIMultiDict(list(await call.initial_metadata() or ()))
        failed = None
        if call.done():
            try:
                await asyncio.wait([first])
                first.result()
            except aio.AioRpcError as error:
                failed = failure(lane, error)
        yield Reading(call, failed, headers, first)
    finally:
        call.cancel()
        first.cancel()
        await asyncio.wait([first])
        if not first.cancelled():
            first.exception()
