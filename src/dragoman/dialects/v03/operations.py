"""The operations of A2A 0.3: methods of JSON-RPC (A2A 0.3 §7), procedures of gRPC, paths of HTTP+JSON (§3.5.6).

Invariant: see `dialects.operations`. `tasks/list`, which 0.3 only planned, has the fields of 1.0.
"""

from dragoman.dialects.operations import FieldKind, FieldRow, OperationRow, make_table
from dragoman.dialects.v1.operations import HISTORY_LENGTH, LIST_FIELDS
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    SendMessage,
    StreamMessage,
    Subscribe,
)

_ID = FieldRow("id", required=True)
_TASK_ID = FieldRow("task_id", proto="id", required=True)
_CONFIG_ID = FieldRow("id", proto="push_notification_config_id")
_METADATA = FieldRow("metadata", FieldKind.OBJECT)

_TASK = "/v1/tasks/{id}"
_WEBHOOKS = "/v1/tasks/{task_id}/pushNotificationConfigs"
_WEBHOOK = _WEBHOOKS + "/{id}"
_PUSH = "tasks/pushNotificationConfig"

TABLE = make_table(
    OperationRow(SendMessage, "message/send", "SendMessage", "POST", "/v1/message:send"),
    OperationRow(StreamMessage, "message/stream", "SendStreamingMessage", "POST", "/v1/message:stream"),
    OperationRow(GetTask, "tasks/get", "GetTask", "GET", _TASK, (_ID, HISTORY_LENGTH), ("HEAD",)),
    OperationRow(ListTasks, "tasks/list", "", "GET", "/v1/tasks", LIST_FIELDS, ("HEAD",)),
    OperationRow(CancelTask, "tasks/cancel", "CancelTask", "POST", f"{_TASK}:cancel", (_ID, _METADATA)),
    OperationRow(Subscribe, "tasks/resubscribe", "TaskSubscription", "GET", f"{_TASK}:subscribe", (_ID,), ("POST",)),
    OperationRow(CreatePushConfig, f"{_PUSH}/set", "CreateTaskPushNotificationConfig", "POST", _WEBHOOKS),
    OperationRow(
        GetPushConfig, f"{_PUSH}/get", "GetTaskPushNotificationConfig", "GET", _WEBHOOK, (_TASK_ID, _CONFIG_ID)
    ),
    OperationRow(ListPushConfigs, f"{_PUSH}/list", "ListTaskPushNotificationConfig", "GET", _WEBHOOKS, (_TASK_ID,)),
    OperationRow(
        DeletePushConfig,
        f"{_PUSH}/delete",
        "DeleteTaskPushNotificationConfig",
        "DELETE",
        _WEBHOOK,
        (_TASK_ID, _CONFIG_ID),
    ),
    OperationRow(
        GetExtendedCard, "agent/getAuthenticatedExtendedCard", "GetAgentCard", "GET", "/v1/card", also=("HEAD",)
    ),
)
"""The operations of 0.3."""
