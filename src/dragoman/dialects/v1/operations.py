"""The operations of A2A 1.0 (§5.3): methods of JSON-RPC (§9.4), procedures of gRPC (§10.3), paths of HTTP+JSON (§11.3).

Invariant: see `dialects.operations`.
"""

from dragoman.dialects.operations import FieldKind, FieldRow, OperationRow, make_table
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
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.principal import Scope

HISTORY_LENGTH = FieldRow(
    "history_length", FieldKind.COUNT, description="How many of the newest messages to return. Absent: all. 0: none."
)
PAGE_TOKEN = FieldRow("page_token", description="`nextPageToken` of the page before.")

LIST_FIELDS = (
    FieldRow("context_id"),
    FieldRow("state", FieldKind.STATE, "status"),
    FieldRow("page_size", FieldKind.COUNT, least=1, most=100),  # A2A 1.0 §3.1.4
    PAGE_TOKEN,
    HISTORY_LENGTH,
    FieldRow(
        "status_after_ms",
        FieldKind.TIME,
        "status_timestamp_after",
        description="Such as `2026-11-20T07:00:00.000Z`, inclusive.",
    ),
    FieldRow("include_artifacts", FieldKind.FLAG),
)

CONFIGURATION = (
    FieldRow("accepted_output_modes", FieldKind.TEXTS, description="Media types. Absent: any."),
    FieldRow("push_config", FieldKind.WEBHOOK, "task_push_notification_config"),
    HISTORY_LENGTH,
    FieldRow("return_immediately", FieldKind.FLAG, description="Answer as soon as the task is stored."),
)
"""The fields of a send that come in its SendMessageConfiguration (A2A 1.0 §3.2.2)."""

_TENANT = FieldRow("tenant")
_ID = FieldRow("id", required=True)
_TASK_ID = FieldRow("task_id", required=True)
_METADATA = FieldRow("metadata", FieldKind.OBJECT)
_AFTER = FieldRow("after", FieldKind.SEQ, "from_seq", description="The id of the last event that was seen.")

_TASK = "/tasks/{id}"
_WEBHOOKS = "/tasks/{task_id}/pushNotificationConfigs"
_WEBHOOK = _WEBHOOKS + "/{id}"


def _row(
    scope: Scope,
    operation: type[Operation],
    name: str,
    verb: str,
    path: str,
    *fields: FieldRow,
    also: tuple[str, ...] = (),
) -> OperationRow:
    """Return a row of 1.0, where every request has a tenant, and JSON-RPC and gRPC have the same names."""
    return OperationRow(operation, name, name, verb, path, (_TENANT, *fields), also, scope)


TABLE = make_table(
    _row(Scope.SEND, SendMessage, "SendMessage", "POST", "/message:send"),
    _row(Scope.SEND, StreamMessage, "SendStreamingMessage", "POST", "/message:stream"),
    _row(Scope.READ, GetTask, "GetTask", "GET", _TASK, _ID, HISTORY_LENGTH, also=("HEAD",)),
    _row(Scope.READ, ListTasks, "ListTasks", "GET", "/tasks", *LIST_FIELDS, also=("HEAD",)),
    _row(Scope.CANCEL, CancelTask, "CancelTask", "POST", f"{_TASK}:cancel", _ID, _METADATA),
    # A2A 1.0 says GET in one place (§11.3.2) and POST in another (the proto). There are official clients of both kinds.
    _row(Scope.READ, Subscribe, "SubscribeToTask", "GET", f"{_TASK}:subscribe", _ID, _AFTER, also=("POST",)),
    _row(Scope.PUSH, CreatePushConfig, "CreateTaskPushNotificationConfig", "POST", _WEBHOOKS),
    _row(Scope.PUSH, GetPushConfig, "GetTaskPushNotificationConfig", "GET", _WEBHOOK, _TASK_ID, _ID),
    _row(
        Scope.PUSH,
        ListPushConfigs,
        "ListTaskPushNotificationConfigs",
        "GET",
        _WEBHOOKS,
        _TASK_ID,
        FieldRow("page_size", FieldKind.COUNT),
        PAGE_TOKEN,
    ),
    _row(Scope.PUSH, DeletePushConfig, "DeleteTaskPushNotificationConfig", "DELETE", _WEBHOOK, _TASK_ID, _ID),
    _row(Scope.CARD, GetExtendedCard, "GetExtendedAgentCard", "GET", "/extendedAgentCard", also=("HEAD",)),
)
"""The operations of 1.0."""
