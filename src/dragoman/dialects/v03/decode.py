"""Decodes 0.3 parameters to operations: the methods of JSON-RPC, and the shapes they share with HTTP+JSON.

Sends of plain text, which most are, are decoded straight into structs, at a fifth of the cost of walking `Fields`; the
vendors' dialects use both ways with methods of their own.

Invariant: decoding is lenient. Parts tagged `kind`, `type` or not at all, roles of either version, camelCase and
snake_case, `id` and `taskId` all mean the same. A missing or wrong value is InvalidParams with its path. Both ways give
the same operation.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from dragoman.dialects.client.objects import FILE_BYTES, FILE_URLS, ReadBytes, unwrap_data
from dragoman.dialects.json_bounds import EXACT_MAX
from dragoman.dialects.json_fields import from_seq, named_skill, raw_bytes, timestamp_ms
from dragoman.dialects.v03 import webhooks
from dragoman.dialects.v03.fields import MAX_ID, Fields, read
from dragoman.dialects.v03.operations import TABLE
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part, Role
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
from dragoman.model.task import STATES as KNOWN_STATES
from dragoman.model.task import TaskState

# -- plain text, by structs --------------------------------------------------------------------------------------------

S = TypeVar("S", bound=SendMessage)


class _Part(Struct, forbid_unknown_fields=True):
    text: str
    kind: Literal["text"] | None = None
    type: Literal["text"] | None = None
    metadata: dict[str, Any] | None = None


class _Message(Struct, forbid_unknown_fields=True, rename="camel"):
    role: Literal["user"]
    parts: list[_Part]
    message_id: str = ""
    kind: Any = None
    context_id: str | None = None
    task_id: str | None = None


class _Configuration(Struct, forbid_unknown_fields=True, rename="camel"):
    blocking: bool | None = None
    accepted_output_modes: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()


class _Params(Struct, forbid_unknown_fields=True, rename="camel"):
    message: _Message
    context_id: str | None = None
    configuration: _Configuration | None = None
    metadata: dict[str, Any] | None = None


_PARAMS = msgspec.json.Decoder(_Params)
_PLAIN = _Configuration()


def decode_call(
    method: str,
    params: bytes | memoryview,
    methods: Mapping[str, Callable[[Fields], Operation]],
    sends: Mapping[str, type[SendMessage]],
    *,
    fills: bool,
) -> Operation:
    """Decode a call by a dialect's table of `methods`; those in `sends` may be plain. `fills` is as in `send_plain`.

    Raises MethodNotFound for a method that is not in the table, and whatever its decoder raises.
    """
    kind = sends.get(method)
    if kind is not None and (sent := send_plain(params, kind, fills=fills)) is not None:
        return sent
    operation = methods.get(method)
    if operation is None:
        raise MethodNotFound(method)
    return operation(read(params))


def send_plain(params: bytes | memoryview, kind: type[S], *, fills: bool) -> S | None:
    """Decode the params if they are a plain send, else return None. With `fills` a missing message id is made up."""
    try:
        given = _PARAMS.decode(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    said, configuration, metadata = given.message, given.configuration or _PLAIN, given.metadata
    message_id, context_id = said.message_id, said.context_id or given.context_id
    if not message_id and fills:
        message_id = fresh_id()
    if not (message_id and said.parts and _short(message_id) and _short(context_id) and _short(given.context_id)):
        return None
    if metadata is not None and not metadata:
        return None  # each dialect decides whether that means absent or an empty object
    skill = None if metadata is None else metadata.get("skill")
    return kind(
        message=Message(
            message_id=message_id,
            role=Role.USER,
            parts=tuple([Part(text=part.text, metadata=part.metadata) for part in said.parts]),
            context_id=context_id or None,
            task_id=said.task_id or None,
        ),
        return_immediately=configuration.blocking is False,
        accepted_output_modes=configuration.accepted_output_modes,
        metadata=metadata,
        skill=skill if isinstance(skill, str) and skill else None,
        skills=configuration.skills,
    )


def fresh_id() -> str:
    """Return an id for a message that has none.

    It is not a UUID, so that nothing takes it for a promise that a repeated call has the same one.
    """
    return f"msg-{new_id()}"


def _short(chosen: str | None) -> bool:
    return chosen is None or (len(chosen) <= MAX_ID and "\0" not in chosen)


# -- everything, by fields ---------------------------------------------------------------------------------------------

ROLES = {"user": Role.USER, "agent": Role.AGENT, "ROLE_USER": Role.USER, "ROLE_AGENT": Role.AGENT}

STATES = {state.removeprefix("TASK_STATE_").lower().replace("_", "-"): state for state in KNOWN_STATES} | {
    **{state.value: state for state in KNOWN_STATES},
    "TASK_STATE_CANCELLED": TaskState.CANCELED,
    "cancelled": TaskState.CANCELED,
}

_CONTENTS = ("text", "file", "data", "raw", "url")
"""The contents of a part without a tag; the last two are from 1.0, and some clients send them under 0.3's methods."""

_OF_1 = "methods without a slash are of A2A 1.0: send A2A-Version: 1.0"


def decode(method: str, params: bytes | memoryview) -> Operation:
    """Decode a JSON-RPC call.

    Raises MethodNotFound if 0.3 has no such method, InvalidParams if a parameter is missing or wrong.
    """
    if method not in METHODS:
        raise MethodNotFound(method, "A2A 0.3 §7 has the names" if "/" in method else _OF_1)
    return decode_call(method, params, METHODS, SENDS, fills=False)


def message(fields: Fields, read_bytes: ReadBytes = raw_bytes, context_id: str | None = None) -> Message:
    """Decode a Message; `context_id` is the default for its context. Protobuf JSON calls the parts `content`."""
    role = ROLES.get(fields.text("role") or "")
    if role is None:
        raise InvalidParams(fields.at("role"), "must be user or agent")
    protobuf = not fields.has("parts")
    parts = tuple([part(item, read_bytes, protobuf) for item in fields.objects("parts", "content")])
    if not parts:
        raise InvalidParams(fields.at("parts"), "must hold at least one part")
    return Message(
        message_id=_id(fields, "messageId", "message_id") or fields.required_text("messageId", "message_id"),
        role=role,
        parts=parts,
        context_id=_id(fields, "contextId", "context_id") or context_id or None,
        task_id=fields.text("taskId", "task_id") or None,
        metadata=fields.mapping("metadata"),
        extensions=fields.texts("extensions"),
        reference_task_ids=fields.texts("referenceTaskIds", "reference_task_ids"),
    )


def part(fields: Fields, read_bytes: ReadBytes = raw_bytes, protobuf: bool = False) -> Part:
    """Decode a Part, by its tag if it has one, else by its content."""
    metadata = fields.mapping("metadata")
    tag = fields.text("kind", "type")
    held = [name for name in _CONTENTS if fields.has(name)] if not tag else []
    if len(held) > 1:
        raise InvalidParams(fields.path, f"must have one of text, file, data, not {' and '.join(held)}")
    match tag or next(iter(held), None):
        case "text":
            text = fields.text("text")
            if text is None:
                raise InvalidParams(fields.at("text"), "is required in a text part")
            return Part(text=text, metadata=metadata)
        case "file":
            file = fields.object("file")
            if file is None:
                raise InvalidParams(fields.at("file"), "is required in a file part")
            return _file(file, metadata, read_bytes)
        case "raw" | "url" if not tag:
            return _file(fields, metadata, read_bytes)
        case "data":
            return _data(fields, protobuf and tag is None, metadata)
        case None:
            raise InvalidParams(fields.path, "must have one of text, file, data")
        case _:
            raise InvalidParams(fields.at("kind"), "must be text, file or data")


def send(fields: Fields, kind: type[SendMessage], read_bytes: ReadBytes = raw_bytes) -> SendMessage:
    """Decode SendMessage or StreamMessage. `blocking` defaults to true: 0.3 leaves the default to the server."""
    body = fields.object("message", "request")
    if body is None:
        raise InvalidParams(fields.at("message"), "is required")
    configuration = fields.object("configuration") or Fields({}, "configuration")
    metadata = fields.mapping("metadata")
    said = message(body, read_bytes, _id(fields, "contextId", "context_id"))
    at_once = configuration.flag("blocking") is False or configuration.flag("returnImmediately") is True
    return kind(
        message=said,
        return_immediately=at_once,
        history_length=configuration.count("historyLength", "history_length"),
        accepted_output_modes=configuration.texts("acceptedOutputModes", "accepted_output_modes"),
        metadata=metadata,
        skill=named_skill(metadata, said.metadata),
        skills=configuration.texts("skills"),
        push_config=webhooks.inline(configuration, fields),
    )


def list_tasks(fields: Fields) -> ListTasks:
    """Decode ListTasks with the parameters of 1.0, which 0.3 did not have; states in either spelling."""
    state = fields.text("status", "state")
    if state and state not in STATES:
        raise InvalidParams(fields.at("status"), "must be a task state, such as input-required")
    return ListTasks(
        context_id=fields.text("contextId", "context_id") or None,
        state=STATES[state] if state else None,
        page_size=fields.count("pageSize", "page_size", least=1, most=100) or 50,
        page_token=fields.text("pageToken", "page_token") or "",
        history_length=fields.count("historyLength", "history_length"),
        status_after_ms=_moment(fields, "statusTimestampAfter", "status_timestamp_after", "lastUpdatedAfter"),
        include_artifacts=fields.flag("includeArtifacts", "include_artifacts") or False,
    )


def _file(fields: Fields, metadata: dict[str, Any] | None, read_bytes: ReadBytes) -> Part:
    encoded, url = fields.text(*FILE_BYTES), fields.text(*FILE_URLS)
    if (encoded is None) == (url is None):
        raise InvalidParams(fields.path, "must have either bytes or uri")
    raw = None if encoded is None else read_bytes(encoded)
    if encoded is not None and raw is None:
        raise InvalidParams(fields.at("bytes"), "must be base64")
    return Part(
        raw=raw,
        url=url,
        filename=fields.text("name", "filename") or None,
        media_type=fields.text("mimeType", "mime_type", "mediaType", "media_type") or None,
        metadata=metadata,
    )


def _data(fields: Fields, wrapped: bool, metadata: dict[str, Any] | None) -> Part:
    """Decode a data part; 0.3's protobuf JSON has `{"data": {"data": {…}}}`."""
    data = fields.find("data")
    if data is None:
        raise InvalidParams(fields.at("data"), "is required in a data part")
    if wrapped and isinstance(data, dict) and data.keys() == {"data"} and isinstance(data["data"], dict):
        data = data["data"]
    data, metadata = unwrap_data(data, metadata)
    return Part(data=data, metadata=metadata)


def _moment(fields: Fields, *names: str) -> int | None:
    """Decode a time stamp, ISO 8601 or milliseconds since the epoch, to milliseconds."""
    value = fields.find(*names)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= EXACT_MAX:
        return value
    moment = timestamp_ms(value) if isinstance(value, str) else None
    if moment is None:
        raise InvalidParams(fields.at(names[0]), "must be a time stamp such as 2026-01-31T12:00:00Z")
    return moment


def _id(fields: Fields, *names: str) -> str | None:
    """Decode an id that the caller chose, and check that it can be stored."""
    value = fields.text(*names)
    return value if value is None else checked_id(value, fields.at(names[0]))


def checked_id(chosen: str, path: str) -> str:
    """Return an id that the caller chose. Raises InvalidParams if it cannot be stored."""
    if not _short(chosen):
        raise InvalidParams(path, f"must have at most {MAX_ID} characters and no null character")
    return chosen


def task_id(fields: Fields) -> str:
    """Decode the id of a task, under any of its names."""
    return fields.required_text("id", "taskId", "task_id")


def _get_task(fields: Fields) -> GetTask:
    return GetTask(id=task_id(fields), history_length=fields.count("historyLength", "history_length"))


def resubscribe(fields: Fields) -> Subscribe:
    """Decode Subscribe. `fromSeq`, as a parameter or in the metadata, is our own."""
    after = from_seq(fields.find("fromSeq", "from_seq"), fields.mapping("metadata"))
    return Subscribe(id=task_id(fields), after=after)


SENDS: dict[str, type[SendMessage]] = {TABLE[kind].method: kind for kind in (SendMessage, StreamMessage)}

_DECODERS: dict[type[Operation], Callable[[Fields], Operation]] = {
    SendMessage: lambda fields: send(fields, SendMessage),
    StreamMessage: lambda fields: send(fields, StreamMessage),
    GetTask: _get_task,
    ListTasks: list_tasks,
    CancelTask: lambda fields: CancelTask(id=task_id(fields), metadata=fields.mapping("metadata")),
    Subscribe: resubscribe,
    CreatePushConfig: webhooks.create,
    GetPushConfig: webhooks.get,
    ListPushConfigs: lambda fields: ListPushConfigs(task_id=task_id(fields)),
    DeletePushConfig: webhooks.delete,
    GetExtendedCard: lambda fields: GetExtendedCard(),
}

METHODS: dict[str, Callable[[Fields], Operation]] = {
    **{TABLE[kind].method: decoder for kind, decoder in _DECODERS.items()},
    "agent/authenticatedExtendedCard": _DECODERS[GetExtendedCard],  # Evo AI's name for it
}
"""The decoders of a call's params by its method."""
