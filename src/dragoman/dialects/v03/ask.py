"""Encodes the operations of an A2A 0.3 client: JSON-RPC (A2A 0.3 §7), and HTTP+JSON below `/v1` (§3.5.6).

Over HTTP+JSON bodies are protobuf JSON, which both official servers read. The Python one refuses unknown fields, so
`referenceTaskIds` is not sent there.

Invariant: nothing is written that is not in 0.3, except options that a caller sets only for a server that knows them:
`skills`, a webhook's `secret` and `events`, the parameters of `tasks/list`. 0.3 has no tenants: each agent has its own
URL.
"""

from typing import Any, NoReturn

from dragoman.dialects.client.encode import Json, encoded, moment, named, no_earlier, present, query, segment
from dragoman.dialects.tongue import RestCall, RpcCall
from dragoman.dialects.v03 import proto
from dragoman.dialects.v03.encode import STATES, message
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
)

NAME = "A2A 0.3"


def rpc(operation: Operation) -> RpcCall:
    """Encode a JSON-RPC call. Raises UnsupportedOperation if 0.3 cannot express it, InvalidParams for broken text."""
    match operation:
        case StreamMessage():
            return RpcCall("message/stream", _send(operation))
        case SendMessage():
            return RpcCall("message/send", _send(operation))
        case GetTask():
            return _call("tasks/get", id=operation.id, historyLength=operation.history_length)
        case ListTasks():
            return _call("tasks/list", **_list(operation))
        case CancelTask():
            return _call("tasks/cancel", id=operation.id, metadata=operation.metadata)
        case Subscribe():
            return _call("tasks/resubscribe", id=operation.id)
        case CreatePushConfig(config=config):
            return _call(
                "tasks/pushNotificationConfig/set", taskId=config.task_id, pushNotificationConfig=_webhook(config)
            )
        case GetPushConfig():
            return _call(
                "tasks/pushNotificationConfig/get", id=operation.task_id, pushNotificationConfigId=operation.id
            )
        case ListPushConfigs():
            return _call("tasks/pushNotificationConfig/list", id=operation.task_id)
        case DeletePushConfig():
            return _call(
                "tasks/pushNotificationConfig/delete", id=operation.task_id, pushNotificationConfigId=_id(operation)
            )
        case GetExtendedCard():
            return RpcCall("agent/getAuthenticatedExtendedCard", b"{}")
        case _:
            _lacks(operation)


def rest(operation: Operation) -> RestCall:
    """Encode an HTTP+JSON call. Raises as `rpc` does."""
    return _rest(operation, _ONCE)


def rest_twice(operation: Operation) -> RestCall:
    """Encode a call for the official Python servers, which expect file bytes in base64 twice (a2a-sdk 0.3.26)."""
    return _rest(operation, _TWICE)


_ONCE = proto.ProtoJson(proto.once)
_TWICE = proto.ProtoJson(proto.twice)


def _rest(operation: Operation, written: proto.ProtoJson) -> RestCall:
    match operation:
        case StreamMessage():
            return RestCall("POST", "/v1/message:stream", _proto_send(operation, written))
        case SendMessage():
            return RestCall("POST", "/v1/message:send", _proto_send(operation, written))
        case GetTask():
            return RestCall("GET", _task(operation.id) + query(historyLength=operation.history_length))
        case ListTasks():
            return RestCall("GET", "/v1/tasks" + query(**_list(operation)))
        case CancelTask():
            return RestCall("POST", f"{_task(operation.id)}:cancel", b"{}")
        case Subscribe():
            return RestCall("GET", f"{_task(operation.id)}:subscribe")
        case CreatePushConfig(config=config):
            return RestCall("POST", _webhooks(config.task_id), _proto_webhook(config))
        case GetPushConfig() | DeletePushConfig():
            verb = "GET" if isinstance(operation, GetPushConfig) else "DELETE"
            return RestCall(verb, f"{_webhooks(operation.task_id)}/{segment(_id(operation), 'id')}")
        case ListPushConfigs():
            return RestCall("GET", _webhooks(operation.task_id))
        case GetExtendedCard():
            return RestCall("GET", "/v1/card")
        case _:
            _lacks(operation)


def _send(sent: SendMessage) -> bytes:
    """Encode a send. `blocking` is always written, because 0.3 leaves its default to the server."""
    no_earlier(sent, NAME)
    configuration: Json = {}
    if sent.return_immediately or not isinstance(sent, StreamMessage):
        configuration["blocking"] = not sent.return_immediately
    if sent.accepted_output_modes:
        configuration["acceptedOutputModes"] = sent.accepted_output_modes
    if sent.history_length is not None:
        configuration["historyLength"] = sent.history_length
    if sent.push_config is not None:
        configuration["pushNotificationConfig"] = _webhook(sent.push_config)
    if sent.skills:
        configuration["skills"] = sent.skills
    params: Json = {"message": message(sent.message)}
    if configuration:
        params["configuration"] = configuration
    metadata = named(sent)
    if metadata is not None:
        params["metadata"] = metadata
    return encoded(params)


def _proto_send(sent: SendMessage, written: proto.ProtoJson) -> bytes:
    """Encode a SendMessageRequest of 0.3's proto. Members absent from `configuration` are false, `blocking` too."""
    no_earlier(sent, NAME)
    configuration: Json = {"blocking": not sent.return_immediately}
    if sent.accepted_output_modes:
        configuration["acceptedOutputModes"] = sent.accepted_output_modes
    if sent.history_length is not None:
        configuration["historyLength"] = sent.history_length
    if sent.push_config is not None:
        configuration["pushNotification"] = _webhook(sent.push_config)
    params: Json = {"message": written.message(sent.message), "configuration": configuration}
    metadata = named(sent)
    if metadata is not None:
        params["metadata"] = metadata
    return encoded(params)


def _list(asked: ListTasks) -> Json:
    if asked.offset and not asked.page_token:
        raise UnsupportedOperation(f"{NAME} has no offset: page with page_token")
    return {
        "contextId": asked.context_id,
        "status": None if asked.state is None else STATES[asked.state],
        "pageSize": asked.page_size,
        "pageToken": asked.page_token,
        "historyLength": asked.history_length,
        "statusTimestampAfter": None if asked.status_after_ms is None else moment(asked.status_after_ms),
        "includeArtifacts": asked.include_artifacts or None,
    }


def _webhook(config: PushConfig) -> Json:
    """Encode a PushNotificationConfig (A2A 0.3 §6.8), with its secrets."""
    body = present({"id": config.id, "url": config.url, "token": config.token, "secret": config.secret})
    if config.scheme or config.credentials:
        body["authentication"] = present(
            {"schemes": [config.scheme or "Bearer"], "credentials": config.credentials or None}
        )
    if config.events:
        body["events"] = config.events
    return body


def _proto_webhook(config: PushConfig) -> bytes:
    """Encode a CreateTaskPushNotificationConfigRequest of 0.3's proto."""
    parent = f"tasks/{config.task_id}"
    inner = {"name": f"{parent}/pushNotificationConfigs/{config.id}", "pushNotificationConfig": _webhook(config)}
    return encoded(present({"parent": parent, "configId": config.id, "config": inner}))


def _id(operation: GetPushConfig | DeletePushConfig) -> str:
    if not operation.id:
        raise UnsupportedOperation(f"{NAME} reaches a push configuration here by its id only: list them to find it")
    return operation.id


def _task(task_id: str) -> str:
    return f"/v1/tasks/{segment(task_id, 'id')}"


def _webhooks(task_id: str) -> str:
    return f"/v1/tasks/{segment(task_id, 'taskId')}/pushNotificationConfigs"


def _call(method: str, **params: Any) -> RpcCall:
    return RpcCall(method, encoded(present(params)))


def _lacks(operation: Operation) -> NoReturn:
    raise UnsupportedOperation(f"{NAME} has no {type(operation).__name__}: it belongs to BeeOS")
