"""The table of dialects for `test_every_dialect.py`: a row says how one is spoken.

A new dialect is a row of `SPOKEN`; its vectors are read by `test_vendor_vectors.py` or `test_shown_vectors.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from dragoman.dialects import beeos, evoai, fasta2a, kaos, protoagent, python_a2a, v03, v1
from dragoman.dialects.api import Dialect

EVERYWHERE = (
    *("message", "messageId", "role", "parts", "kind", "type", "text", "file", "data", "bytes", "raw", "url", "uri"),
    *("metadata", "id", "taskId", "contextId", "sessionId", "configuration", "blocking", "historyLength", "status"),
    *("state", "name", "skill", "token", "authentication", "schemes", "pushNotificationConfig"),
)
"""Keys of which requests in most dialects consist."""

ROUTES = (
    *("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"),
    *("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"),
    *("DeleteTaskPushNotificationConfig", "GetExtendedAgentCard"),
)


class Row(Struct, frozen=True, kw_only=True):
    """A dialect over JSON-RPC: a method of it that sends a message, by the parameters `sent`, and some that it `lacks`.

    `keys` are those of its requests, beside `EVERYWHERE`; `values` are strings that mean something in them. `rest` are
    its dialects over HTTP+JSON, which have `routes`. `refused` are wrong parameters: method, parameters, and the field
    that the error names. `http_errors` says that an error of an operation is an error of HTTP, with a body of its own.
    """

    rpc: Dialect
    send: str
    sent: Mapping[str, Any]
    lacks: Sequence[str]
    keys: Sequence[str] = ()
    values: Sequence[str] = ("user", "agent", "text", "file", "data", "AA==", "https://example.com/h")
    rest: Sequence[Dialect] = ()
    routes: Sequence[str] = ROUTES
    refused: Sequence[tuple[str, Any, str]] = ()
    http_errors: bool = False


TYPED = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
PLAIN = {"role": "user", "parts": [{"text": "hi"}]}
X = {"text": "x"}

SPOKEN: dict[str, Row] = {
    "1.0": Row(
        rpc=v1.JSONRPC,
        send="SendMessage",
        sent={
            "message": {
                "messageId": "m",
                "role": "ROLE_USER",
                "parts": [{"text": "é"}, {"raw": "AA==", "filename": "n"}],
            },
            "configuration": {"returnImmediately": True, "historyLength": 2},
        },
        lacks=("", "message/send", "sendMessage", "Foo", "x" * 10_000),
        keys=("taskPushNotificationConfig", "task_id", "pageSize", "statusTimestampAfter", "tenant", "page_size"),
        values=("ROLE_USER", "QQ", "TASK_STATE_WORKING", "2026-01-01T00:00:00Z"),
        rest=(v1.REST,),
    ),
    "0.3": Row(
        rpc=v03.JSONRPC,
        send="message/send",
        sent={
            "message": {
                "kind": "message",
                "messageId": "m",
                "role": "user",
                "parts": [{"kind": "text", "text": "é"}, {"kind": "file", "file": {"bytes": "AA==", "name": "n"}}],
            },
            "configuration": {"blocking": True, "historyLength": 2},
        },
        lacks=("SendMessage", "tasks/send", "", "message/send "),
        keys=(
            *("message_id", "content", "pageSize", "statusTimestampAfter", "extensions", "config", "configId"),
            *("fileWithBytes", "value", "data_part_compat", "includeArtifacts"),
        ),
        values=("user", "ROLE_AGENT", "text", "file", "data", "AA==", "input-required", "2026-01-01T00:00:00Z"),
        rest=(v03.REST, v03.REST_TWICE),
    ),
    "beeos": Row(
        rpc=beeos.JSONRPC,
        send="SendMessage",
        sent={"message": PLAIN},
        lacks=("GetExtendedAgentCard", "tasks/send", "sendMessage", "", "tasks/get "),
        keys=("skills", "limit", "offset", "artifacts", "artifactId", "progress", "current", "total", "lease"),
        values=("user", "agent", "text", "file", "data", "AA==", "working", "input-required", "result", "\0"),
        refused=(
            ("SendMessage", {}, "message"),
            ("SendMessage", {"message": "hi"}, "message"),
            ("SendMessage", {"message": {"parts": [{"kind": "text", "text": "x"}]}}, "message.role"),
            ("SendMessage", {"message": {"role": "user"}}, "message.parts"),
            ("message/stream", {"message": {"role": "user", "parts": []}}, "message.parts"),
            ("SendMessage", {"message": {"role": "user", "messageId": 7, "parts": [X]}}, "message.messageId"),
            ("SendMessage", {"message": {"role": "user", "parts": [{"kind": "text"}]}}, "message.parts[0].text"),
            ("SendMessage", {"message": {"role": "user", "parts": [{"kind": "x"}]}}, "message.parts[0].kind"),
            ("SendMessage", {"message": {"role": "user", "parts": [X]}, "contextId": 7}, "contextId"),
            ("GetTask", {}, "id"),
            ("tasks/cancel", {"id": ""}, "id"),
            ("SubscribeToTask", {"id": 7}, "id"),
            ("ListTasks", {"limit": 0}, "limit"),
            ("ListTasks", {"limit": "many"}, "limit"),
            ("ListTasks", {"offset": -1}, "offset"),
            ("CompleteTask", {"artifacts": []}, "id"),
            ("CompleteTask", {"id": "t", "artifacts": {}}, "artifacts"),
            ("CompleteTask", {"id": "t", "artifacts": [{}]}, "artifacts[0].parts"),
            ("CompleteTask", {"id": "t", "lease": 7}, "lease"),
            ("CompleteTask", {"id": "t", "artifacts": [{"artifactId": "a\0", "parts": []}]}, "artifacts[0].artifactId"),
            ("CompleteTask", {"id": "t", "artifacts": [{"artifactId": "a"}, {"artifactId": "a"}]}, "artifacts"),
            ("UpdateStatus", {"id": "t"}, "status"),
            ("UpdateStatus", {"id": "t", "status": "working"}, "status"),
            ("UpdateStatus", {"id": "t", "status": {}}, "status.state"),
            ("UpdateStatus", {"id": "t", "status": {"state": "busy"}}, "status.state"),
            ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": 7}}, "status.message"),
            ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": {"a": 1}}}, "status.message"),
            ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": {"parts": []}}}, "status.message"),
            (
                "UpdateStatus",
                {"id": "t", "status": {"state": "working", "message": {"parts": 7}}},
                "status.message.parts",
            ),
            ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": ["hi"]}}, "status.message"),
            ("UpdateStatus", {"id": "t", "status": {"state": "working", "progress": 7}}, "status.progress"),
            ("UpdateStatus", {"id": "t", "status": {"state": "working", "progress": {"step": 1}}}, "status.progress"),
            ("SetPushNotificationConfig", {"taskId": "t"}, "pushNotificationConfig"),
            ("DeletePushNotificationConfig", {"id": "t"}, "pushNotificationConfigId"),
        ),
    ),
    "kaos": Row(
        rpc=kaos.JSONRPC,
        send="SendMessage",
        sent={"message": PLAIN},
        lacks=(
            "SendStreamingMessage",
            "SubscribeToTask",
            "message/send",
            "tasks/sendSubscribe",
            "tasks/resubscribe",
            "",
        ),
        keys=("mode", "budgets"),
        values=("user", "agent", "text", "file", "data", "AA==", "autonomous", "\0"),
        refused=(
            ("SendMessage", {}, "message"),
            ("SendMessage", {"message": {}}, "message"),
            ("SendMessage", {"message": "hi"}, "message"),
            ("SendMessage", {"message": {"role": "user"}}, "message.parts"),
            ("SendMessage", {"message": {"role": "user", "text": ""}}, "message.parts"),
            ("SendMessage", {"message": {"role": "user", "text": 7}}, "message.text"),
            ("tasks/send", {"message": {"role": "user", "parts": []}}, "message.parts"),
            ("SendMessage", {"message": {"role": "system", "parts": [X]}}, "message.role"),
            ("SendMessage", {"message": {"parts": [{"type": "text", "text": 7}]}}, "message.parts[0].text"),
            ("SendMessage", {"message": {"parts": [X]}, "sessionId": 7}, "sessionId"),
            ("SendMessage", {"message": {"parts": [X], "metadata": 7}}, "message.metadata"),
            ("SendMessage", {"message": {"parts": [X]}, "configuration": 7}, "configuration"),
            ("SendMessage", {"message": {"parts": [X]}, "configuration": {"mode": 7}}, "configuration.mode"),
            ("SendMessage", {"message": {"parts": [X]}, "configuration": {"budgets": 7}}, "configuration.budgets"),
            ("SendMessage", {"message": {"parts": [{"text": "x", "data": {}}]}}, "message.parts[0]"),
            ("GetTask", {}, "id"),
            ("tasks/cancel", {"id": 7}, "id"),
        ),
    ),
    "evoai": Row(
        rpc=evoai.JSONRPC,
        send="message/send",
        sent={"message": TYPED},
        lacks=("SendMessage", "tasks/list", "message/sendStream", ""),
        keys=("history", "config", "webhookUrl", "webhookAuthenticationInfo", "apiKey"),
        refused=(
            ("message/send", {}, "message"),
            ("message/send", {"message": {"role": "user"}}, "message.parts"),
            ("message/send", {"message": TYPED, "sessionId": 7}, "sessionId"),
            ("message/send", {"message": TYPED, "pushNotificationConfig": 7}, "pushNotificationConfig"),
            ("message/send", {"message": TYPED, "history": [{"role": "user"}]}, "history[0].parts"),
            ("tasks/get", {}, "id"),
            ("tasks/subscribe", {}, "taskId"),
            ("tasks/pushNotificationConfig/set", {"taskId": "t1"}, "pushNotificationConfig"),
            ("tasks/pushNotificationConfig/set", {"pushNotificationConfig": {"url": "x"}}, "taskId"),
            ("tasks/pushNotificationConfig/set", {"taskId": "t1", "config": {}}, "pushNotificationConfig.url"),
        ),
    ),
    "protoagent": Row(
        rpc=protoagent.JSONRPC,
        send="message/send",
        sent={"message": PLAIN},
        lacks=("SendMessage", "tasks/list", "tasks/send", ""),
        keys=("taskPushNotificationConfig", "credentials", "skillHint", "pushNotificationConfigId"),
        rest=(protoagent.REST,),
        routes=("GetTask", "CreateTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"),
        refused=(
            ("message/send", {}, "message"),
            ("message/send", {"message": {"role": "user"}}, "message.parts"),
            ("message/send", {"message": {"parts": [X]}}, "message.role"),
            ("message/send", {"message": PLAIN, "contextId": 7}, "contextId"),
            ("tasks/resubscribe", {}, "id"),
            (
                "tasks/pushNotificationConfig/set",
                {"taskId": "t1", "pushNotificationConfig": {}},
                "pushNotificationConfig.url",
            ),
        ),
    ),
    "fasta2a": Row(
        rpc=fasta2a.JSONRPC,
        send="message/send",
        sent={"message": {"message_id": "m", "role": "user", "parts": [{"text": "hi"}]}},
        lacks=("SendMessage", "tasks/list", "tasks/send", ""),
        keys=("message_id", "context_id", "task_id"),
    ),
    "python-a2a": Row(
        rpc=python_a2a.JSONRPC,
        send="tasks/send",
        sent={"id": "t", "message": {"role": "user", "content": {"type": "text", "text": "hi"}}},
        lacks=("SendMessage", "tasks/list", "message/send", ""),
        http_errors=True,
        keys=("message_id", "custom_fields", "conversation_id", "content", "messages", "parameters"),
        values=("user", "agent", "system", "text", "error", "function_call", "input-required", "AA==", "\0"),
    ),
    "python-a2a, messages": Row(
        rpc=python_a2a.MESSAGES,
        send="message",
        sent={"role": "user", "content": {"type": "text", "text": "hi"}},
        lacks=("SendMessage", "tasks/list", "message/send", ""),
        http_errors=True,
        keys=("message_id", "custom_fields", "conversation_id", "content", "messages", "parameters"),
        values=("user", "agent", "system", "text", "error", "function_call", "input-required", "AA==", "\0"),
    ),
}
