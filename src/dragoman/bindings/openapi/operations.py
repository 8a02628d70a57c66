"""The operations that `/openapi.json` describes: HTTP+JSON of A2A 1.0 (§11), and the server's own paths.

Invariant: every HTTP+JSON operation of `bindings/routes.py` is here under its A2A name, and its refusals have the
statuses of `dialects/v1/errors.py`. Paths that follow another API are not described: 0.3 and the vendors' dialects,
chat completions, MCP and workers.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dragoman.bindings.cards import AgentList
from dragoman.bindings.monitoring import Liveness, Readiness
from dragoman.bindings.openapi import shapes
from dragoman.bindings.openapi.document import (
    JSON,
    AnswerForms,
    DocumentInfo,
    ErrorAnswer,
    OperationForms,
    Schemas,
    make_document,
)
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

MESSAGES, TASKS, WEBHOOKS, CARDS, SERVER = "Messages", "Tasks", "Webhooks", "Cards", "Server"

TAGS = {
    MESSAGES: "Begin a task, or continue one.",
    TASKS: "Read, follow and cancel the caller's tasks.",
    WEBHOOKS: "Be called when a task changes.",
    CARDS: "What the agents can do, and where they are.",
    SERVER: "Whether the server is well.",
}

ABOUT = (
    "Agents over HTTP+JSON of the Agent2Agent (A2A) protocol, version 1.0 (§11). The paths of Messages, Tasks and "
    "Webhooks lead to the default agent; `/agents/{agent}` in front of them leads to another one. There the header "
    "`A2A-Version: 1.0` is needed. The same server speaks JSON-RPC, A2A 0.3 and other protocols at addresses that are "
    "not described here: the agent cards name them. A server without keys asks nobody who they are."
)

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


class ServedPaths(Struct, frozen=True):
    """The optional parts of a server, and its `default` agent, to which the paths at the root lead."""

    default: str
    metrics: bool = True
    keys: bool = True


def make_server_document(version: str, served: ServedPaths) -> dict[str, Any]:
    """The document of a server with these parts. `version` is that of the server."""
    usual = [{"url": "/", "description": f"The default agent, {served.default}."}]
    agent = {
        "url": "/agents/{agent}",
        "description": "Any agent, by its id.",
        "variables": {"agent": {"default": served.default}},
    }
    of_agents = {operation.path for operation in A2A}

    def servers(path: str) -> Sequence[Mapping[str, Any]] | None:
        return [*usual, agent] if path in of_agents else None

    info = DocumentInfo(
        title="Dragoman",
        version=version,
        description=ABOUT,
        security=[{}, {"apiKey": []}, {"bearer": []}],
        tags=TAGS,
        servers=servers,
        refine=_refine,
    )
    left_out = {*(() if served.metrics else ("getMetrics",)), *(() if served.keys else ("getKeys",))}
    described = tuple(each for each in (*A2A, *OWN) if each.name not in left_out)
    document = make_document(info, described)
    for query in {each.query for each in described if each.query is not None}:  # its fields are parameters
        del document["components"]["schemas"][query.__name__]
    return document


def _refine(schemas: Schemas) -> None:
    """Say what the structs' types cannot: what is never null, never on the wire, and exclusive."""
    for name, schema in schemas.items():
        if "description" in schema:  # the other paragraphs of a docstring speak to programmers
            schema["description"] = " ".join(schema["description"].partition("\n\n")[0].split())
        properties = schema.get("properties", {})
        for internal in shapes.INTERNAL.get(name, ()):
            del properties[internal]
        for field, described in properties.items():
            choices = [each for each in described.get("anyOf", ()) if each != {"type": "null"}]
            if described.get("default", choices) is None and len(choices) == 1:
                # Absent rather than null; a description beside a reference is allowed since OpenAPI 3.1.
                said = {key: value for key, value in described.items() if key not in ("anyOf", "default")}
                properties[field] = described = {**choices[0], **said}
            if described.get("default", schema) in ("", [], {}):
                del described["default"]  # nothing, which is the same as absent
        if name in shapes.ONE_OF:
            schema["oneOf"] = [{"required": [field]} for field in shapes.ONE_OF[name]]


def _refusals(kinds: Collection[type[A2AError]], content_type: str = A2A_JSON) -> dict[str, AnswerForms]:
    """The refusals by status, each with the reasons that its ErrorInfo may have."""
    by_status: dict[int, list[str]] = {}
    for kind in kinds:
        row = ERRORS[kind]
        reasons = by_status.setdefault(row.http_status, [])
        if row.reason not in reasons:
            reasons.append(row.reason)
    return {
        str(status): AnswerForms(description=f"Refused: {', '.join(reasons)}.", bodies={content_type: ErrorAnswer})
        for status, reasons in sorted(by_status.items())
    }


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


class JsonWebKeys(Struct, frozen=True):
    """Public keys (RFC 7517)."""

    keys: list[dict[str, Any]]


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


def _own(
    name: str,
    path: str,
    summary: str,
    tag: str,
    answers: Mapping[str, AnswerForms],
    *,
    query: type[Struct] | None = None,
    headers: Mapping[str, Mapping[str, Any]] = {},
    public: bool = True,
) -> OperationForms:
    return OperationForms(
        name=name,
        method="GET",
        path=path,
        summary=summary,
        tag=tag,
        query=query,
        headers=headers,
        public=public,
        answers={**answers, **_refusals([errors.InternalError])},
    )


UNCHANGED = AnswerForms(description="It still has the ETag of `If-None-Match`.")
CACHED: Mapping[str, Mapping[str, Any]] = {
    "If-None-Match": {"description": "The ETag of an earlier answer.", "schema": {"type": "string"}}
}

OWN: tuple[OperationForms, ...] = (
    _own(
        "getAgentCard",
        "/.well-known/agent-card.json",
        "Read the card of the default agent",
        CARDS,
        {
            "200": AnswerForms(
                description="The card. Unless `A2A-Version` names a version, it also has the fields of 0.3.",
                bodies={JSON: AgentCard},
                headers={"ETag": "Changes with the card."},
            ),
            "304": UNCHANGED,
            **_refusals([errors.AgentNotFound]),
        },
        headers={
            "A2A-Version": {
                "description": "The version whose card is wanted. Absent: one card for both.",
                "schema": {"type": "string", "enum": ["1.0"]},
            },
            **CACHED,
        },
    ),
    _own(
        "listAgents",
        "/agents",
        "List and search the agents",
        CARDS,
        {
            "200": AnswerForms(description="A page of agents.", bodies={JSON: AgentList}),
            "304": UNCHANGED,
            **_refusals([errors.InvalidParams]),
        },
        query=shapes.AgentQuery,
        headers=CACHED,
    ),
    _own(
        "getKeys",
        "/.well-known/jwks.json",
        "Read the keys that verify what this server signs",
        CARDS,
        {"200": AnswerForms(description="The keys.", bodies={JSON: JsonWebKeys})},
    ),
    _own(
        "getHealth",
        "/health",
        "Whether the process answers",
        SERVER,
        {"200": AnswerForms(description="It does.", bodies={JSON: Liveness})},
    ),
    _own(
        "getReadiness",
        "/ready",
        "Whether the server takes work",
        SERVER,
        {
            "200": AnswerForms(description="It does.", bodies={JSON: Readiness}),
            "503": AnswerForms(description="It does not, and says why.", bodies={JSON: Readiness}),
        },
    ),
    _own(
        "getMetrics",
        "/metrics",
        "Read the metrics, for Prometheus",
        SERVER,
        {
            "200": AnswerForms(
                description="Metrics.", bodies={"text/plain": None, "application/openmetrics-text": None}
            ),
            **_refusals([errors.Unauthorized, errors.Forbidden]),
        },
        public=False,
    ),
)
"""The server's own paths."""
