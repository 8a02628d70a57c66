"""HTTP+JSON of A2A 1.0 (§11), as operations of the document.

Invariant: every operation of `bindings/routes.py` below a mount is here under its A2A name, and its refusals have the
statuses of `dialects/v1/errors.py`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from dragoman.bindings.openapi import shapes
from dragoman.bindings.openapi.document import JSON, AnswerForms, ErrorAnswer, OperationForms
from dragoman.bindings.openapi.refusals import describe_refusals
from dragoman.dialects.v1 import REST, encode
from dragoman.dialects.v1.errors import TABLE as ERRORS
from dragoman.dialects.v1.operations import TABLE
from dragoman.model import errors
from dragoman.model.card import AgentCard
from dragoman.model.errors import A2AError
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
from dragoman.model.task import Task

A2A_JSON = REST.content_type

MESSAGES, TASKS, WEBHOOKS, CARDS = "Messages", "Tasks", "Webhooks", "Cards"

TAGS = {
    MESSAGES: "Begin a task, or continue one.",
    TASKS: "Read, follow and cancel the caller's tasks.",
    WEBHOOKS: "Be called when a task changes.",
    CARDS: "What the agents can do, and where they are.",
}

VERSION: Mapping[str, Mapping[str, Any]] = {
    "A2A-Version": {
        "description": "Needed below `/agents/{agent}`, where no version means 0.3.",
        "schema": {"type": "string", "enum": ["1.0"]},
    },
    "A2A-Extensions": {
        "description": "The URIs of extensions that the caller uses, with commas between them.",
        "schema": {"type": "string"},
    },
}
RESUMES: Mapping[str, Mapping[str, Any]] = {
    "Last-Event-ID": {
        "description": "The id of the last event that was seen: the stream goes on after it.",
        "schema": {"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{1,9})?$"},
    }
}
REPEATS: Mapping[str, Mapping[str, Any]] = {
    "Idempotency-Key": {
        "description": "The same for a repeated call as for the first one; else the UUID of the message counts.",
        "schema": {"type": "string"},
    }
}

REFUSALS: tuple[type[A2AError], ...] = (
    errors.InvalidParams,
    errors.VersionNotSupported,
    errors.UnsupportedOperation,
    errors.Unauthorized,
    errors.Forbidden,
    errors.AgentNotFound,
    errors.TooManyRequests,
    errors.InternalError,
    errors.Unavailable,
)
"""The errors that any operation of A2A may be refused with."""

OF_BODIES = (
    errors.ParseError,
    errors.InvalidRequest,
    errors.RequestTimeout,
    errors.PayloadTooLarge,
    errors.UnsupportedMediaType,
)
OF_SENDS = (
    errors.TaskNotFound,
    errors.ContentTypeNotSupported,
    errors.ExtensionSupportRequired,
    errors.PushNotificationNotSupported,
    errors.InvalidAgentResponse,
    errors.AgentFailed,
)
OF_WEBHOOKS = (errors.TaskNotFound, errors.PushNotificationNotSupported)


def _refusals(kinds: Collection[type[A2AError]]) -> dict[str, AnswerForms]:
    return describe_refusals(kinds, encode_reason, ErrorAnswer, A2A_JSON)


def encode_reason(kind: type[A2AError]) -> tuple[int, str]:
    """The HTTP status of an error, and the reason in its ErrorInfo."""
    return ERRORS[kind].http_status, ERRORS[kind].reason


def _operation(
    kind: type[Operation],
    summary: str,
    tag: str,
    answer: type[Struct] | None,
    *,
    verb: str = "",
    body: type[Struct] | None = None,
    body_required: bool = True,
    event: type[Struct] | None = None,
    headers: Mapping[str, Mapping[str, Any]] = {},
    links: Mapping[str, Mapping[str, str]] = {},
    refused: tuple[type[A2AError], ...] = (),
) -> OperationForms:
    """An operation of HTTP+JSON; one without `answer` and `event` answers with an empty object.

    `verb` is given for a second HTTP method of the same operation.
    """
    row = TABLE[kind]
    if event is not None:
        done = AnswerForms(description="Events, each with a JSON object as its data.", events={"": event})
    else:
        done = AnswerForms(description="Done.", bodies={A2A_JSON: answer or Empty}, links=links)
    kinds = (*REFUSALS, *(OF_BODIES if body is not None else ()), *refused)
    return OperationForms(
        name=f"{row.method}By{verb.title()}" if verb else row.method,
        method=verb or row.verb,
        path=row.path,
        summary=summary,
        tag=tag,
        query=shapes.query_of(row) if body is None and not verb else None,
        headers={**VERSION, **headers},
        body=body,
        body_required=body_required,
        body_types=(JSON, A2A_JSON),
        answers={"200": done, **_refusals(kinds)},
    )


def _task_links(place: str) -> Mapping[str, Mapping[str, str]]:
    """The operations on the task whose id is at `place` in the answer."""
    on_tasks = ("GetTask", "CancelTask", "SubscribeToTask", "SubscribeToTaskByPost")
    on_webhooks = ("CreateTaskPushNotificationConfig", "ListTaskPushNotificationConfigs")
    at = f"$response.body#/{place}"
    return {**{name: {"id": at} for name in on_tasks}, **{name: {"task_id": at} for name in on_webhooks}}


WEBHOOK = {"task_id": "$response.body#/taskId", "id": "$response.body#/id"}


class Empty(Struct, frozen=True):
    """Nothing: google.protobuf.Empty."""


A2A: tuple[OperationForms, ...] = (
    _operation(
        SendMessage,
        "Send a message, and wait until the task ends or waits for its caller",
        MESSAGES,
        shapes.SendMessageResponse,
        body=shapes.SendMessageRequest,
        headers=REPEATS,
        links=_task_links("task/id"),
        refused=OF_SENDS,
    ),
    _operation(
        StreamMessage,
        "Send a message, and follow the task",
        MESSAGES,
        None,
        body=shapes.SendMessageRequest,
        event=shapes.StreamResponse,
        headers={**REPEATS, **RESUMES},
        refused=OF_SENDS,
    ),
    _operation(
        ListTasks,
        "List the caller's tasks, the newest first",
        TASKS,
        encode.ListTasksResponse,
        links=_task_links("tasks/0/id"),
    ),
    _operation(
        GetTask,
        "Read a task",
        TASKS,
        Task,
        refused=(errors.TaskNotFound,),
    ),
    _operation(
        CancelTask,
        "Cancel a task",
        TASKS,
        Task,
        body=shapes.CancelTaskRequest,
        body_required=False,
        refused=(errors.TaskNotFound, errors.TaskNotCancelable),
    ),
    *(
        _operation(
            Subscribe,
            summary,
            TASKS,
            None,
            verb=verb,
            event=shapes.StreamResponse,
            headers=RESUMES,
            refused=(errors.TaskNotFound, *((errors.UnsupportedMediaType,) if verb == "POST" else ())),
        )
        for verb, summary in (
            ("", "Follow a task that has not ended"),
            ("POST", "Follow a task that has not ended, as some clients ask"),
        )
    ),
    _operation(
        CreatePushConfig,
        "Register a webhook",
        WEBHOOKS,
        encode.TaskPushNotificationConfig,
        body=shapes.RequestWebhook,
        links=dict.fromkeys(("GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"), WEBHOOK),
        refused=OF_WEBHOOKS,
    ),
    _operation(
        ListPushConfigs,
        "List the webhooks of a task",
        WEBHOOKS,
        encode.ListTaskPushNotificationConfigsResponse,
        refused=OF_WEBHOOKS,
    ),
    _operation(
        GetPushConfig,
        "Read a webhook",
        WEBHOOKS,
        encode.TaskPushNotificationConfig,
        refused=OF_WEBHOOKS,
    ),
    _operation(
        DeletePushConfig,
        "Delete a webhook",
        WEBHOOKS,
        None,
        refused=OF_WEBHOOKS,
    ),
    _operation(
        GetExtendedCard,
        "Read the card for callers who have authenticated",
        CARDS,
        AgentCard,
        refused=(errors.ExtendedAgentCardNotConfigured,),
    ),
)
"""HTTP+JSON of A2A 1.0 (§11.3), below every mount that serves it."""
