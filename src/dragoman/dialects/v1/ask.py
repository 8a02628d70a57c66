"""Encodes the operations of an A2A 1.0 client: JSON-RPC (§9.4) and HTTP+JSON (§11.3).

Invariant: nothing is written that is not in the 1.0 proto, except a webhook's `secret` and `events`, which a caller
sets only if the server is one of ours. The skill goes into `metadata.skill`.
"""

from typing import Any, NoReturn

from msgspec import Struct

from dragoman.dialects.client.encode import Json, encoded, moment, named, no_earlier, present, query, segment
from dragoman.dialects.tongue import RestCall, RpcCall
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.message import Message
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

NAME = "A2A 1.0"


class _Authentication(Struct, frozen=True, omit_defaults=True):
    scheme: str
    credentials: str | None = None


class _PushConfig(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """TaskPushNotificationConfig (A2A 1.0 §4.3.1), with its secrets."""

    url: str
    id: str = ""
    task_id: str = ""
    token: str | None = None
    authentication: _Authentication | None = None
    tenant: str = ""
    secret: str | None = None
    events: tuple[str, ...] = ()


class _Configuration(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """SendMessageConfiguration (A2A 1.0 §3.2.2)."""

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: _PushConfig | None = None
    history_length: int | None = None
    return_immediately: bool = False


class _Send(Struct, frozen=True, omit_defaults=True):
    """SendMessageRequest (A2A 1.0 §3.2.1)."""

    message: Message
    configuration: _Configuration | None = None
    metadata: Json | None = None
    tenant: str = ""


def rpc(operation: Operation) -> RpcCall:
    """Encode a JSON-RPC call. Raises UnsupportedOperation if 1.0 cannot express it, InvalidParams for broken text."""
    match operation:
        case StreamMessage():
            return RpcCall("SendStreamingMessage", _send(operation, operation.tenant))
        case SendMessage():
            return RpcCall("SendMessage", _send(operation, operation.tenant))
        case GetTask():
            return _call("GetTask", tenant=operation.tenant, id=operation.id, historyLength=operation.history_length)
        case ListTasks():
            return _call("ListTasks", tenant=operation.tenant, **_list(operation))
        case CancelTask():
            return _call("CancelTask", tenant=operation.tenant, id=operation.id, metadata=operation.metadata)
        case Subscribe():
            return _call("SubscribeToTask", tenant=operation.tenant, id=operation.id)
        case CreatePushConfig():
            return RpcCall("CreateTaskPushNotificationConfig", encoded(_webhook(operation)))
        case GetPushConfig():
            return _call("GetTaskPushNotificationConfig", **_of_webhook(operation))
        case ListPushConfigs():
            return _call("ListTaskPushNotificationConfigs", **_of_webhooks(operation))
        case DeletePushConfig():
            return _call("DeleteTaskPushNotificationConfig", **_of_webhook(operation))
        case GetExtendedCard():
            return _call("GetExtendedAgentCard", tenant=operation.tenant)
        case _:
            _lacks(operation)


def rest(operation: Operation) -> RestCall:
    """Encode an HTTP+JSON call; a tenant is the first segment of its path (A2A 1.0 §11.3). Raises as `rpc` does.

    Subscriptions use GET, as in the proto file; if a server accepts only POST, the client falls back to that.
    """
    call = _rest(operation)
    if not operation.tenant:
        return call
    return RestCall(call.verb, "/" + segment(operation.tenant, "tenant") + call.path, call.body)


def _rest(operation: Operation) -> RestCall:
    match operation:
        case StreamMessage():
            return RestCall("POST", "/message:stream", _send(operation, ""))
        case SendMessage():
            return RestCall("POST", "/message:send", _send(operation, ""))
        case GetTask():
            return RestCall("GET", _task(operation.id) + query(historyLength=operation.history_length))
        case ListTasks():
            return RestCall("GET", "/tasks" + query(**_list(operation)))
        case CancelTask():
            body = {} if operation.metadata is None else {"metadata": operation.metadata}
            return RestCall("POST", f"{_task(operation.id)}:cancel", encoded(body))
        case Subscribe():
            return RestCall("GET", f"{_task(operation.id)}:subscribe")
        case CreatePushConfig(config=config):
            return RestCall("POST", _webhooks(config.task_id), encoded(_webhook(operation)))
        case GetPushConfig():
            asked = _of_webhook(operation)
            return RestCall("GET", f"{_webhooks(asked['taskId'])}/{segment(asked['id'], 'id')}")
        case ListPushConfigs():
            page = query(pageSize=operation.page_size or None, pageToken=operation.page_token)
            return RestCall("GET", _webhooks(operation.task_id) + page)
        case DeletePushConfig():
            asked = _of_webhook(operation)
            return RestCall("DELETE", f"{_webhooks(asked['taskId'])}/{segment(asked['id'], 'id')}")
        case GetExtendedCard():
            return RestCall("GET", "/extendedAgentCard")
        case _:
            _lacks(operation)


def _send(sent: SendMessage, tenant: str) -> bytes:
    no_earlier(sent, NAME)
    configuration = None
    if sent.return_immediately or sent.accepted_output_modes or sent.push_config or sent.history_length is not None:
        configuration = _Configuration(
            sent.accepted_output_modes,
            None if sent.push_config is None else _config(sent.push_config, ""),
            sent.history_length,
            sent.return_immediately,
        )
    return encoded(_Send(sent.message, configuration, named(sent), tenant))


def _list(asked: ListTasks) -> Json:
    if asked.offset and not asked.page_token:
        raise UnsupportedOperation(f"{NAME} has no offset: page with page_token")
    return {
        "contextId": asked.context_id,
        "status": asked.state,
        "pageSize": asked.page_size,
        "pageToken": asked.page_token,
        "historyLength": asked.history_length,
        "statusTimestampAfter": None if asked.status_after_ms is None else moment(asked.status_after_ms),
        "includeArtifacts": asked.include_artifacts or None,
    }


def _config(config: PushConfig, tenant: str) -> _PushConfig:
    authentication = None
    if config.scheme or config.credentials:
        authentication = _Authentication(config.scheme or "Bearer", config.credentials)
    return _PushConfig(
        config.url, config.id, config.task_id, config.token, authentication, tenant, config.secret, config.events
    )


def _webhook(operation: CreatePushConfig) -> _PushConfig:
    return _config(operation.config, operation.tenant)


def _of_webhook(operation: GetPushConfig | DeletePushConfig) -> Json:
    if not operation.id:
        raise UnsupportedOperation(f"{NAME} reaches a push configuration by its id only: list them to find it")
    return {"tenant": operation.tenant, "taskId": operation.task_id, "id": operation.id}


def _of_webhooks(operation: ListPushConfigs) -> Json:
    return {
        "tenant": operation.tenant,
        "taskId": operation.task_id,
        "pageSize": operation.page_size or None,
        "pageToken": operation.page_token,
    }


def _task(task_id: str) -> str:
    return f"/tasks/{segment(task_id, 'id')}"


def _webhooks(task_id: str) -> str:
    return f"/tasks/{segment(task_id, 'taskId')}/pushNotificationConfigs"


def _call(method: str, **params: Any) -> RpcCall:
    return RpcCall(method, encoded(present(params)))


def _lacks(operation: Operation) -> NoReturn:
    raise UnsupportedOperation(f"{NAME} has no {type(operation).__name__}: it belongs to BeeOS")
