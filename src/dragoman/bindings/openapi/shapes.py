"""The shapes of HTTP+JSON that no other module has as structs: requests as a client should write them, and unions.

Invariant: each field of a request is one that `dialects/v1/wire.py` reads. That module also reads other spellings,
which the description leaves out: decode wide, describe exactly.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta, Struct, defstruct

from dragoman.dialects.operations import FieldKind, FieldRow, OperationRow, default_of
from dragoman.dialects.push import EVENTS, MAX_TOKEN, SECRET_MAX, SECRET_MIN
from dragoman.dialects.v1.decode import MAX_ID
from dragoman.dialects.v1.encode import TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from dragoman.dialects.v1.operations import CONFIGURATION
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Operation, SendMessage
from dragoman.model.task import STATES, Task

Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID, pattern=r"^[^\x00]+$")]
State = Annotated[str, Meta(extra_json_schema={"enum": [state.value for state in STATES]})]

EventName = Annotated[str, Meta(extra_json_schema={"enum": list(EVENTS)})]


class RequestMessage(Struct, kw_only=True, rename="camel"):
    """A message to an agent (A2A 1.0 §4.1.4)."""

    message_id: Annotated[Id, Meta(description="A UUID, by which the server recognises a repeated call.")]
    role: Annotated[Role, Meta(description="`ROLE_USER`, unless an agent speaks.")]
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]
    context_id: Annotated[str, Meta(max_length=MAX_ID, description="The conversation to continue.")] = ""
    task_id: Annotated[str, Meta(description="The task that the message is for. Absent: a new one.")] = ""
    metadata: dict[str, Any] = {}
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class RequestAuthentication(Struct, kw_only=True):
    """How the server authenticates when it calls the webhook (A2A 1.0 §4.3.2)."""

    scheme: Annotated[str, Meta(min_length=1, description="Such as `Bearer`.")]
    credentials: str = ""


class RequestWebhook(Struct, kw_only=True, rename="camel"):
    """A webhook for a task (A2A 1.0 §4.3.1). `secret` and `events` are this server's own."""

    url: Annotated[
        str, Meta(min_length=1, description="http or https; a host on the open internet, or an allowed one.")
    ]
    id: Annotated[str, Meta(description="Absent: the server chooses one.")] = ""
    token: Annotated[str, Meta(max_length=MAX_TOKEN, description="Sent with each call.")] = ""
    authentication: RequestAuthentication | None = None
    secret: Annotated[
        str, Meta(min_length=SECRET_MIN, max_length=SECRET_MAX, description="Signs the calls. Never returned.")
    ] = ""
    events: Annotated[
        tuple[EventName, ...],
        Meta(description="States such as `completed`, and `artifact`. Absent: all."),
    ] = ()


def query_of(row: OperationRow, name: str = "") -> type[Struct]:
    """The query of an operation: its fields that are not in its path, with the agent's last, if the path names none.

    Without a `name` it is called after the method.
    """
    fields = [field for field in row.fields if f"{{{field.name}}}" not in row.path]
    fields.sort(key=lambda field: field.name == "tenant")
    return _struct_of(name or f"{row.method}Query", row.operation, fields)


def _struct_of(name: str, operation: type[Operation], rows: Iterable[FieldRow], about: str = "") -> type[Struct]:
    """The struct of fields that a table states."""
    members = [(row.proto_name, *_described(row, default_of(operation, row))) for row in rows]
    return defstruct(name, members, kw_only=True, rename="camel", namespace={"__doc__": about} if about else None)


def _described(field: FieldRow, default: Any) -> tuple[Any, Any]:
    """The type of a field, and its value if it is absent."""
    said = field.description or None
    match field.kind:
        case FieldKind.COUNT:
            number = Annotated[int, Meta(ge=field.least, le=field.most, description=said)]
            return (number | None if default is None else number), default
        case FieldKind.FLAG:
            return Annotated[bool, Meta(description=said)], default
        case FieldKind.TEXTS:
            return Annotated[tuple[str, ...], Meta(description=said)], default
        case FieldKind.WEBHOOK:
            return RequestWebhook | None, default
        case FieldKind.STATE:
            return State | None, default
        case FieldKind.TIME:
            return Annotated[str, Meta(description=said, extra_json_schema={"format": "date-time"})], ""
        case FieldKind.SEQ:
            return Annotated[int, Meta(ge=0, description=said)] | None, default
        case FieldKind.TEXT:
            return Annotated[str, Meta(description=said)], ""
        case FieldKind.OBJECT:
            return dict[str, Any], {}


SendMessageConfiguration: Any = _struct_of(
    "SendMessageConfiguration", SendMessage, CONFIGURATION, "How the call is answered (A2A 1.0 §3.2.2)."
)


class SendMessageRequest(Struct, kw_only=True):
    """A message, and how the call is answered (A2A 1.0 §3.2.1)."""

    message: RequestMessage
    configuration: SendMessageConfiguration | None = None
    metadata: Annotated[dict[str, Any], Meta(description="`skill` names the skill to run.")] = {}
    tenant: Annotated[str, Meta(description="The agent, where the path names none.")] = ""


class CancelTaskRequest(Struct, kw_only=True):
    """Why the task is canceled, for the agent (A2A 1.0 §3.1.5)."""

    metadata: dict[str, Any] = {}


class AgentQuery(Struct, kw_only=True):
    """The agents to list: one skill must have all words of `skill`, the agent and its skills all of `q`."""

    q: str = ""
    skill: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    offset: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class SendMessageResponse(Struct, kw_only=True, omit_defaults=True):
    """A task, or the message of an agent that makes none (A2A 1.0 §3.2.3): exactly one of them."""

    task: Task | None = None
    message: Message | None = None


class StreamResponse(Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """One event of a stream (A2A 1.0 §3.2.3): exactly one of the fields."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None


ONE_OF: dict[str, tuple[str, ...]] = {
    "Part": ("text", "raw", "url", "data"),
    "SendMessageResponse": ("task", "message"),
    "StreamResponse": ("task", "message", "statusUpdate", "artifactUpdate"),
}
"""Structs of which exactly one of some fields is set, which their types cannot say."""

INTERNAL: dict[str, tuple[str, ...]] = {"Part": ("blob", "file")}
"""Fields of structs that belong to the store, and are never on the wire."""
