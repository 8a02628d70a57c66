"""HTTP+JSON of A2A 0.3, as operations of the document: its protobuf JSON, as the official clients of 0.3 write it.

Also the task as JSON-RPC of 0.3 and its webhooks have it, where each object has its `kind`.

Invariant: every operation of `dialects/v03/operations.py` is here, and its refusals have the statuses of
`dialects/v03/errors.py`. The decoders read other spellings, too, which are left out: decode wide, describe exactly.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from dragoman.bindings.openapi import shapes
from dragoman.bindings.openapi.a2a import OF_BODIES, OF_SENDS, OF_WEBHOOKS, REFUSALS, REPEATS, RESUMES, Empty
from dragoman.bindings.openapi.document import JSON, AnswerForms, HeaderForms, OperationForms
from dragoman.bindings.openapi.refusals import describe_refusals
from dragoman.bindings.openapi.shapes import EventName, Id
from dragoman.dialects.push import MAX_TOKEN, SECRET_MAX, SECRET_MIN
from dragoman.dialects.v03.encode import STATES as TAGGED_STATES
from dragoman.dialects.v03.errors import TABLE as ERRORS
from dragoman.dialects.v03.operations import TABLE
from dragoman.dialects.v03.rest import STATES
from dragoman.dialects.v1.operations import TABLE as NEWER
from dragoman.model import errors
from dragoman.model.errors import A2AError
from dragoman.model.message import Role
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

OLDER = "A2A 0.3"

TAGS = {OLDER: "The same tasks for clients of A2A 0.3, in its protobuf JSON."}

NULLS = frozenset[str]()

StateV03 = Annotated[str, Meta(extra_json_schema={"enum": list(STATES.values())})]
TaggedState = Annotated[str, Meta(extra_json_schema={"enum": list(TAGGED_STATES.values())})]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]


# -- protobuf JSON -----------------------------------------------------------------------------------------------------


class FileV03(Struct, kw_only=True, rename="camel"):
    """A file: its bytes, or where it is."""

    file_with_bytes: Base64 | None = None
    file_with_uri: Annotated[str, Meta(min_length=1)] | None = None
    mime_type: str = ""
    name: str = ""


class DataV03(Struct):
    """A structured value."""

    data: dict[str, Any]


class PartV03(Struct, kw_only=True):
    """A piece of a message or an artifact: exactly one of a text, a file and a value."""

    text: str | None = None
    file: FileV03 | None = None
    data: DataV03 | None = None
    metadata: dict[str, Any] = {}


class MessageV03(Struct, kw_only=True, rename="camel"):
    """A message."""

    message_id: Id
    role: Role
    content: Annotated[tuple[PartV03, ...], Meta(min_length=1)]
    context_id: Annotated[str, Meta(max_length=1024)] = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}
    extensions: tuple[str, ...] = ()


class SaidV03(Struct, kw_only=True, rename="camel"):
    """A message as it was sent: one without content leaves that out."""

    message_id: str
    role: Role
    content: tuple[PartV03, ...] = ()
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}
    extensions: tuple[str, ...] = ()


class ArtifactV03(Struct, kw_only=True, rename="camel"):
    """A part of the output."""

    artifact_id: str
    name: str = ""
    description: str = ""
    parts: tuple[PartV03, ...] = ()
    metadata: dict[str, Any] = {}
    extensions: tuple[str, ...] = ()


class StatusV03(Struct, kw_only=True):
    """How a task stands."""

    state: StateV03
    message: SaidV03 | None = None
    timestamp: Time = ""


class TaskV03(Struct, kw_only=True, rename="camel"):
    """A task."""

    id: str
    context_id: str
    status: StatusV03
    artifacts: tuple[ArtifactV03, ...] = ()
    history: tuple[SaidV03, ...] = ()
    metadata: dict[str, Any] = {}


class StatusUpdateV03(Struct, kw_only=True, rename="camel"):
    """A new status. `final`: the stream ends with it."""

    task_id: str
    context_id: str
    status: StatusV03
    final: bool
    metadata: dict[str, Any] = {}


class ArtifactUpdateV03(Struct, kw_only=True, rename="camel"):
    """A piece of an artifact."""

    task_id: str
    context_id: str
    artifact: ArtifactV03
    append: bool
    last_chunk: bool


class SendAnswerV03(Struct, kw_only=True):
    """A task, or the message of an agent that makes none."""

    task: TaskV03 | None = None
    message: SaidV03 | None = None


class StreamAnswerV03(Struct, kw_only=True, rename="camel"):
    """One event of a stream."""

    task: TaskV03 | None = None
    message: SaidV03 | None = None
    status_update: StatusUpdateV03 | None = None
    artifact_update: ArtifactUpdateV03 | None = None


class TaskPageV03(Struct, kw_only=True, rename="camel"):
    """A page of tasks, as in 1.0: 0.3 only planned a list."""

    tasks: tuple[TaskV03, ...]
    next_page_token: str
    page_size: int
    total_size: int


class AuthenticationV03(Struct, kw_only=True):
    """How the server authenticates when it calls a webhook. The first scheme counts."""

    schemes: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    credentials: str = ""


class RequestWebhookV03(Struct, kw_only=True):
    """A webhook for a task. `secret` and `events` are this server's own."""

    url: Annotated[str, Meta(min_length=1)]
    id: str = ""
    token: Annotated[str, Meta(max_length=MAX_TOKEN)] = ""
    authentication: AuthenticationV03 | None = None
    secret: Annotated[str, Meta(min_length=SECRET_MIN, max_length=SECRET_MAX)] = ""
    events: tuple[EventName, ...] = ()


class WebhookV03(Struct, kw_only=True):
    """A webhook, without what nobody may read."""

    url: str
    id: str = ""
    token: str = ""
    authentication: AuthenticationV03 | None = None


class NamedWebhookV03(Struct, kw_only=True, rename="camel"):
    """A webhook with its name, which has the ids of the task and of the webhook."""

    name: str
    push_notification_config: WebhookV03


class WebhookListV03(Struct):
    """The webhooks of a task."""

    configs: tuple[NamedWebhookV03, ...]


class CreateWebhookRequestV03(Struct, kw_only=True, rename="camel"):
    """A webhook to register."""

    push_notification_config: RequestWebhookV03


class ConfigurationV03(Struct, kw_only=True, rename="camel"):
    """How the call is answered. Without a configuration the call waits for the end; in one, `blocking` is meant."""

    accepted_output_modes: tuple[str, ...] = ()
    blocking: bool = False
    history_length: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    push_notification: RequestWebhookV03 | None = None


class SendMessageRequestV03(Struct, kw_only=True):
    """A message, and how the call is answered."""

    message: MessageV03
    configuration: ConfigurationV03 | None = None
    metadata: Annotated[dict[str, Any], Meta(description="`skill` names the skill to run.")] = {}


class CardV03(Struct, kw_only=True, rename="camel"):
    """The card for callers who have authenticated; it has all members of 0.3."""

    name: str
    description: str
    url: str
    version: str
    protocol_version: str


class ErrorAnswerV03(Struct, kw_only=True):
    """The answer to a request that was refused. `code` is that of JSON-RPC."""

    type: str
    code: int
    message: str
    data: dict[str, Any]


# -- objects with a kind -----------------------------------------------------------------------------------------------


class TaggedText(Struct, tag_field="kind", tag="text", kw_only=True):
    """A text."""

    text: str
    metadata: dict[str, Any] = {}


class TaggedFileContent(Struct, kw_only=True, rename="camel"):
    """A file: its bytes, or where it is."""

    bytes: Base64 | None = None
    uri: str | None = None
    mime_type: str = ""
    name: str = ""


class TaggedFile(Struct, tag_field="kind", tag="file", kw_only=True):
    """A file."""

    file: TaggedFileContent
    metadata: dict[str, Any] = {}


class TaggedData(Struct, tag_field="kind", tag="data", kw_only=True):
    """A structured value."""

    data: dict[str, Any]
    metadata: dict[str, Any] = {}


TaggedPart = TaggedText | TaggedFile | TaggedData


class TaggedMessage(Struct, kw_only=True, rename="camel"):
    """A message of A2A 0.3 (§6.4)."""

    kind: Literal["message"]
    message_id: str
    role: Literal["user", "agent"]
    parts: tuple[TaggedPart, ...]
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class TaggedArtifact(Struct, kw_only=True, rename="camel"):
    """An artifact of A2A 0.3 (§6.7)."""

    artifact_id: str
    parts: tuple[TaggedPart, ...]
    name: str = ""
    description: str = ""
    metadata: dict[str, Any] = {}
    extensions: tuple[str, ...] = ()


class TaggedStatus(Struct, kw_only=True):
    """How a task stands (A2A 0.3 §6.2)."""

    state: TaggedState
    timestamp: Time
    message: TaggedMessage | None = None


class TaggedTask(Struct, kw_only=True, rename="camel"):
    """A task of A2A 0.3 (§6.1)."""

    kind: Literal["task"]
    id: str
    context_id: str
    status: TaggedStatus
    artifacts: tuple[TaggedArtifact, ...] = ()
    history: tuple[TaggedMessage, ...] = ()
    metadata: dict[str, Any] = {}


ONE_OF: dict[str, tuple[str, ...]] = {
    "FileV03": ("fileWithBytes", "fileWithUri"),
    "PartV03": ("text", "file", "data"),
    "SendAnswerV03": ("task", "message"),
    "StreamAnswerV03": ("task", "message", "statusUpdate", "artifactUpdate"),
    "TaggedFileContent": ("bytes", "uri"),
}
"""Structs of which exactly one of some fields is set, which their types cannot say."""


# -- operations --------------------------------------------------------------------------------------------------------

EXTENSIONS: HeaderForms = {
    "X-A2A-Extensions": {
        "description": "The URIs of extensions that the caller uses, with commas between them.",
        "schema": {"type": "string"},
    }
}


def _reason(kind: type[A2AError]) -> tuple[int, str]:
    row = ERRORS[kind]
    return row.status, row.name


def _operation(
    kind: type[Operation],
    summary: str,
    answer: type[Struct] | None,
    *,
    verb: str = "",
    body: type[Struct] | None = None,
    headers: HeaderForms | None = None,
    refused: tuple[type[A2AError], ...] = (),
) -> OperationForms:
    """An operation of 0.3. One that answers with events has `StreamAnswerV03`. `verb` is given for a second method."""
    row, name = TABLE[kind], NEWER[kind].method + "V03"
    if answer is StreamAnswerV03:
        done = AnswerForms(description="Events, each with a JSON object as its data.", events={"": answer})
    else:
        done = AnswerForms(description="Done.", bodies={JSON: answer or Empty})
    kinds = (*REFUSALS, *(OF_BODIES if body is not None else ()), *refused)
    return OperationForms(
        name=name + (f"By{verb.title()}" if verb else ""),
        method=verb or row.verb,
        path=row.path,
        summary=summary,
        tag=OLDER,
        query=shapes.query_of(row, f"{name}Query") if body is None and not verb and kind is not CancelTask else None,
        headers={**EXTENSIONS, **(headers or {})},
        body=body,
        answers={"200": done, **describe_refusals(kinds, _reason, ErrorAnswerV03, JSON)},
    )


FOLLOWED: Mapping[str, str] = {
    "": "Follow a task that has not ended",
    "POST": "Follow a task that has not ended, as some clients ask",
}

LEGACY: tuple[OperationForms, ...] = (
    _operation(
        SendMessage,
        "Send a message, and wait until the task ends or waits for its caller",
        SendAnswerV03,
        body=SendMessageRequestV03,
        headers=REPEATS,
        refused=OF_SENDS,
    ),
    _operation(
        StreamMessage,
        "Send a message, and follow the task",
        StreamAnswerV03,
        body=SendMessageRequestV03,
        headers={**REPEATS, **RESUMES},
        refused=OF_SENDS,
    ),
    _operation(ListTasks, "List the caller's tasks, the newest first", TaskPageV03),
    _operation(GetTask, "Read a task", TaskV03, refused=(errors.TaskNotFound,)),
    _operation(
        CancelTask, "Cancel a task", TaskV03, refused=(*OF_BODIES, errors.TaskNotFound, errors.TaskNotCancelable)
    ),
    *(
        _operation(
            Subscribe,
            summary,
            StreamAnswerV03,
            verb=verb,
            headers=RESUMES,
            refused=(errors.TaskNotFound, *((errors.UnsupportedMediaType,) if verb == "POST" else ())),
        )
        for verb, summary in FOLLOWED.items()
    ),
    _operation(
        CreatePushConfig,
        "Register a webhook",
        NamedWebhookV03,
        body=CreateWebhookRequestV03,
        refused=OF_WEBHOOKS,
    ),
    _operation(ListPushConfigs, "List the webhooks of a task", WebhookListV03, refused=OF_WEBHOOKS),
    _operation(GetPushConfig, "Read a webhook", NamedWebhookV03, refused=OF_WEBHOOKS),
    _operation(DeletePushConfig, "Delete a webhook", None, refused=OF_WEBHOOKS),
    _operation(
        GetExtendedCard,
        "Read the card for callers who have authenticated",
        CardV03,
        refused=(errors.ExtendedAgentCardNotConfigured,),
    ),
)
"""HTTP+JSON of A2A 0.3 (§3.5.6), below every mount that serves it."""
