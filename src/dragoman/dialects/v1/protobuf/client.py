"""The client's side of A2A 1.0 over gRPC (§10): requests, responses, stream items and statuses.

Invariant: the server's side decodes a request to the very same operation, and this side a response likewise. Nothing is
written that the proto file lacks: a webhook's `secret` and `events` are refused, and the skill goes into
`metadata.skill`. Any bytes give a value or InvalidAgentResponse, and any status gives an A2AError.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.json_format import SerializeToJsonError as Unjson
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.api import Answer, GrpcCall, GrpcStatus, Tongue
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.encode import check_id, named, no_earlier, row_of
from dragoman.dialects.client.objects import complete
from dragoman.dialects.client.scalars import Unfit
from dragoman.dialects.protobuf.fields import Form, map_fields
from dragoman.dialects.protobuf.schema import requests_of
from dragoman.dialects.protobuf.values import YEAR_10000_S, read, timestamp_ms
from dragoman.dialects.v1.client import read_error as read_json_error
from dragoman.dialects.v1.errors import DOMAIN
from dragoman.dialects.v1.operations import TABLE
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.dialects.v1.protobuf.objects import ARTIFACT_UPDATE, MESSAGE, STATES, STATUS_UPDATE, TASK
from dragoman.model.errors import A2AError, InvalidAgentResponse, InvalidParams, ParseError, UnsupportedOperation
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
)
from dragoman.model.task import Task
from dragoman.model.updates import TaskList, Update

M = TypeVar("M", bound=ProtoMessage)

NAME = "A2A 1.0 over gRPC"

_REACHES = f"{NAME} reaches a push configuration"

SERVICE = "lf.a2a.v1.A2AService"
"""The full name of the service."""

# -- requests ----------------------------------------------------------------------------------------------------------


def call(operation: Operation) -> GrpcCall:
    """Encode a call: the method and its request.

    Raises UnsupportedOperation if 1.0 cannot express it, InvalidParams for text that is not Unicode or a number that is
    out of range.
    """
    procedure = row_of(operation, _PROCEDURES, NAME)
    check_id(operation, _REACHES)
    try:
        request = procedure.request()
        procedure.write(request, operation)
        return GrpcCall(procedure.path, request.SerializeToString())
    except UnicodeEncodeError:
        raise InvalidParams("", "a text has a lone surrogate, which UTF-8 cannot encode") from None
    except ValueError:
        raise InvalidParams("", "a number is out of range for protobuf") from None


def _write_send(request: pb.SendMessageRequest, sent: SendMessage) -> None:
    no_earlier(sent, NAME)
    _SEND.write(request, sent)
    _CONFIGURATION.write(request.configuration, sent)  # absent if it would be empty


def _write_create(request: pb.TaskPushNotificationConfig, operation: CreatePushConfig) -> None:
    CONFIG.write(request, operation.config)
    request.tenant = operation.tenant


def _write_time(into: Timestamp, ms: int) -> None:
    seconds, rest = divmod(ms, 1000)
    if not 0 <= seconds < YEAR_10000_S:
        raise InvalidParams("status_after_ms", "must be a time from 1970 to 9999")
    into.seconds, into.nanos = seconds, rest * 1_000_000


def _write_config(into: pb.TaskPushNotificationConfig, config: PushConfig) -> None:
    if config.secret or config.events:
        raise UnsupportedOperation(f"{NAME} has no secret and no events of a webhook: use token, or another binding")
    _PLAIN_CONFIG.write(into, config)
    if config.scheme or config.credentials:
        _AUTHENTICATION.write(into.authentication, replace(config, scheme=config.scheme or "Bearer"))


def _read_config(given: pb.TaskPushNotificationConfig) -> PushConfig:
    if not given.url:
        raise InvalidAgentResponse("expected a push notification configuration with a url")
    authentication = given.authentication
    return replace(
        _PLAIN_CONFIG.read(given),
        scheme=authentication.scheme or None,
        credentials=authentication.credentials or None,
    )


_PLAIN_CONFIG = map_fields(PushConfig, pb.TaskPushNotificationConfig)
_AUTHENTICATION = map_fields(PushConfig, pb.AuthenticationInfo)
CONFIG = Form(_write_config, _read_config)

_SEND = map_fields(SendMessage, pb.SendMessageRequest, forms={"message": MESSAGE}, derives={"metadata": named})
_CONFIGURATION = map_fields(
    SendMessage,
    pb.SendMessageConfiguration,
    names={"task_push_notification_config": "push_config"},
    forms={"push_config": CONFIG},
)


class _Procedure(Struct, frozen=True):
    """How an operation is written: the path of its procedure, the type of the request, and what fills it."""

    path: str
    request: type[ProtoMessage]
    write: Callable[[Any, Any], None]


_OBJECTS: dict[type[Operation], Callable[[Any, Any], None]] = {
    SendMessage: _write_send,
    StreamMessage: _write_send,
    CreatePushConfig: _write_create,
}
"""The operations that hold a message or a webhook."""


def _procedure(kind: type[Operation], name: str, request: type[ProtoMessage]) -> _Procedure:
    if (write := _OBJECTS.get(kind)) is None:
        write = map_fields(
            kind,
            request,
            names={"status": "state", "status_timestamp_after": "status_after_ms"},
            forms={"status_after_ms": Form(_write_time, timestamp_ms)},
            enums={"state": STATES},
        ).write
    return _Procedure(f"/{SERVICE}/{name}", request, write)


_REQUESTS = requests_of(pb)
_PROCEDURES = {kind: _procedure(kind, row.procedure, _REQUESTS[row.procedure]) for kind, row in TABLE.items()}

# -- responses ---------------------------------------------------------------------------------------------------------


def read_update(data: bytes) -> tuple[Update, ...]:
    """Decode an item of a stream, a StreamResponse, which holds exactly one update."""
    frame = _read(pb.StreamResponse, data)
    if (held := frame.WhichOneof("payload")) is None:
        raise InvalidAgentResponse(f"expected a StreamResponse that holds something, got {data[:100]!r}")
    return (_update(held, getattr(frame, held)),)


def read_answer(operation: Operation, body: bytes) -> Answer:
    """Decode the response to an operation. For a delete any response means success, and the result is None."""
    match operation:
        case SendMessage():
            answer = _read(pb.SendMessageResponse, body)
            if (held := answer.WhichOneof("payload")) is None:
                raise InvalidAgentResponse("expected a task or a message, got an empty SendMessageResponse")
            answered: Task | Message = _update(held, getattr(answer, held))
            return answered
        case GetTask() | CancelTask():
            task: Task = _update("task", _read(pb.Task, body))
            return task
        case ListTasks():
            page = _read(pb.ListTasksResponse, body)
            return TaskList(
                tasks=tuple([_update("task", task) for task in page.tasks]),
                next_page_token=page.next_page_token,
                total_size=max(page.total_size, 0),
            )
        case CreatePushConfig() | GetPushConfig():
            return CONFIG.read(_read(pb.TaskPushNotificationConfig, body))
        case ListPushConfigs():
            listed = _read(pb.ListTaskPushNotificationConfigsResponse, body)
            return tuple([CONFIG.read(config) for config in listed.configs])
        case GetExtendedCard():
            card = _read(pb.AgentCard, body)
            try:
                return decode_card(MessageToDict(card))
            except (Unfit, Unjson, ValueError):
                raise InvalidAgentResponse("expected an agent card whose values JSON has") from None
        case DeletePushConfig():
            return None
        case _:
            raise UnsupportedOperation(f"{NAME} has no {type(operation).__name__}: it belongs to BeeOS")


def _read(kind: type[M], body: bytes) -> M:
    try:
        return read(kind, body)
    except ParseError:
        raise InvalidAgentResponse(f"expected a {kind.DESCRIPTOR.full_name}, got {body[:100]!r}") from None


_UPDATES: dict[str, Form[Any]] = {
    "task": TASK,
    "message": MESSAGE,
    "status_update": STATUS_UPDATE,
    "artifact_update": ARTIFACT_UPDATE,
}
"""The members of a StreamResponse, and of a SendMessageResponse."""


def _update(held: str, given: Any) -> Any:
    update: Any = complete(_UPDATES[held].read(given))
    if held == "task" and not update.id:
        raise InvalidAgentResponse("expected a task with an id")
    return update


# -- statuses ----------------------------------------------------------------------------------------------------------


def read_status(came: GrpcStatus) -> A2AError:
    """Read the status of a failed call. The reason of the ErrorInfo decides, or else the code."""
    status = Status()
    try:
        status.MergeFromString(came.details)
    except (DecodeError, RecursionError):
        status.Clear()
    found: list[dict[str, Any]] = []
    for detail in status.details:
        try:
            found.extend(_detail(detail))
        except (DecodeError, RecursionError):
            continue
    given = {"status": _code_name(came.code), "message": came.message or status.message, "details": found}
    return read_json_error(msgspec.json.encode({"error": given}), 0)


def _detail(detail: Any) -> Iterable[dict[str, Any]]:
    """A detail as in the JSON of a google.rpc.Status; others than these three are skipped."""
    for kind, read_detail in _DETAILS:
        known = kind()
        if detail.Is(kind.DESCRIPTOR):
            detail.Unpack(known)
            yield read_detail(known)


def _error_info(given: ErrorInfo) -> dict[str, Any]:
    return {"reason": given.reason, "metadata": dict(given.metadata)} if given.domain == DOMAIN else {}


def _bad_request(given: BadRequest) -> dict[str, Any]:
    return {"fieldViolations": [{"field": one.field, "description": one.description} for one in given.field_violations]}


def _retry_info(given: RetryInfo) -> dict[str, Any]:
    return {"retryDelay": f"{max(given.retry_delay.seconds, 0)}s"}


_DETAILS: tuple[tuple[type[Any], Callable[[Any], dict[str, Any]]], ...] = (
    (ErrorInfo, _error_info),
    (BadRequest, _bad_request),
    (RetryInfo, _retry_info),
)


def _code_name(code: int) -> str:
    try:
        return str(code_pb2.Code.Name(code))
    except ValueError:
        return "UNKNOWN"


TONGUE = Tongue(
    name="1.0",
    grpc=call,
    read_answer=read_answer,
    read_update=read_update,
    read_status=read_status,
    headers={"a2a-version": "1.0"},
)
