"""The client's side of A2A 1.0 over gRPC (§10): requests, responses, stream items and statuses.

Invariant: the server's side decodes a request to the very same operation, and this side a response likewise. Nothing is
written that the proto file lacks: a webhook's `secret` and `events` are refused, and the skill goes into
`metadata.skill`. Any bytes give a value or InvalidAgentResponse, and any status gives an A2AError.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.json_format import SerializeToJsonError as Unjson
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from dragoman.dialects.api import Answer, GrpcCall, GrpcStatus, Tongue
from dragoman.dialects.client import objects
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.encode import named, no_earlier
from dragoman.dialects.client.objects import beyond
from dragoman.dialects.client.scalars import Unfit
from dragoman.dialects.protobuf.values import YEAR_10000_S, fill_struct, read, struct_dict, timestamp_text
from dragoman.dialects.v1.client import read_error as read_json_error
from dragoman.dialects.v1.errors import DOMAIN
from dragoman.dialects.v1.protobuf.decode import ROLES, STATES, part_of
from dragoman.dialects.v1.protobuf.encode import STATES as STATE_NUMBERS
from dragoman.dialects.v1.protobuf.encode import fill_message
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.model.errors import A2AError, InvalidAgentResponse, InvalidParams, ParseError, UnsupportedOperation
from dragoman.model.message import Artifact, Message, Role
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
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update

M = TypeVar("M", bound=ProtoMessage)

NAME = "A2A 1.0 over gRPC"

SERVICE = "lf.a2a.v1.A2AService"
"""The full name of the service."""

# -- requests ----------------------------------------------------------------------------------------------------------


def call(operation: Operation) -> GrpcCall:
    """Encode a call: the method and its request.

    Raises UnsupportedOperation if 1.0 cannot express it, InvalidParams for text that is not Unicode or a number that is
    out of range.
    """
    try:
        method, request = _request(operation)
        return GrpcCall(f"/{SERVICE}/{method}", request.SerializeToString())
    except UnicodeEncodeError:
        raise InvalidParams("", "a text has a lone surrogate, which UTF-8 cannot encode") from None
    except ValueError:
        raise InvalidParams("", "a number is out of range for protobuf") from None


def _request(operation: Operation) -> tuple[str, ProtoMessage]:
    tenant = operation.tenant
    match operation:
        case StreamMessage():
            return "SendStreamingMessage", _send(operation)
        case SendMessage():
            return "SendMessage", _send(operation)
        case GetTask():
            asked = pb.GetTaskRequest(tenant=tenant, id=operation.id, history_length=operation.history_length)
            return "GetTask", asked
        case ListTasks():
            return "ListTasks", _list(operation)
        case CancelTask():
            canceled = pb.CancelTaskRequest(tenant=tenant, id=operation.id)
            if operation.metadata is not None:
                fill_struct(canceled.metadata, operation.metadata)
            return "CancelTask", canceled
        case Subscribe():
            return "SubscribeToTask", pb.SubscribeToTaskRequest(tenant=tenant, id=operation.id)
        case CreatePushConfig():
            return "CreateTaskPushNotificationConfig", _push_config(operation.config, tenant)
        case GetPushConfig():
            of = pb.GetTaskPushNotificationConfigRequest(tenant=tenant, task_id=operation.task_id, id=_id(operation))
            return "GetTaskPushNotificationConfig", of
        case ListPushConfigs():
            listed = pb.ListTaskPushNotificationConfigsRequest(
                tenant=tenant,
                task_id=operation.task_id,
                page_size=operation.page_size,
                page_token=operation.page_token,
            )
            return "ListTaskPushNotificationConfigs", listed
        case DeletePushConfig():
            gone = pb.DeleteTaskPushNotificationConfigRequest(
                tenant=tenant, task_id=operation.task_id, id=_id(operation)
            )
            return "DeleteTaskPushNotificationConfig", gone
        case GetExtendedCard():
            return "GetExtendedAgentCard", pb.GetExtendedAgentCardRequest(tenant=tenant)
        case _:
            _lacks(operation)


def _send(sent: SendMessage) -> pb.SendMessageRequest:
    no_earlier(sent, NAME)
    request = pb.SendMessageRequest(tenant=sent.tenant)
    fill_message(request.message, sent.message)
    if sent.return_immediately or sent.accepted_output_modes or sent.push_config or sent.history_length is not None:
        configuration = request.configuration
        configuration.return_immediately = sent.return_immediately
        configuration.accepted_output_modes.extend(sent.accepted_output_modes)
        if sent.history_length is not None:
            configuration.history_length = sent.history_length
        if sent.push_config is not None:
            configuration.task_push_notification_config.CopyFrom(_push_config(sent.push_config, ""))
    metadata = named(sent)
    if metadata is not None:
        fill_struct(request.metadata, metadata)
    return request


def _list(asked: ListTasks) -> pb.ListTasksRequest:
    if asked.offset and not asked.page_token:
        raise UnsupportedOperation(f"{NAME} has no offset: page with page_token")
    request = pb.ListTasksRequest(
        tenant=asked.tenant,
        context_id=asked.context_id,
        status=None if asked.state is None else STATE_NUMBERS[asked.state],
        page_size=asked.page_size,
        page_token=asked.page_token,
        history_length=asked.history_length,
        include_artifacts=asked.include_artifacts,
    )
    if asked.status_after_ms is not None:
        seconds, ms = divmod(asked.status_after_ms, 1000)
        if not 0 <= seconds < YEAR_10000_S:
            raise InvalidParams("status_after_ms", "must be a time from 1970 to 9999")
        request.status_timestamp_after.seconds = seconds
        request.status_timestamp_after.nanos = ms * 1_000_000
    return request


def _push_config(config: PushConfig, tenant: str) -> pb.TaskPushNotificationConfig:
    if config.secret or config.events:
        raise UnsupportedOperation(f"{NAME} has no secret and no events of a webhook: use token, or another binding")
    request = pb.TaskPushNotificationConfig(
        tenant=tenant, id=config.id, task_id=config.task_id, url=config.url, token=config.token
    )
    if config.scheme or config.credentials:
        request.authentication.scheme = config.scheme or "Bearer"
        if config.credentials:
            request.authentication.credentials = config.credentials
    return request


def _id(operation: GetPushConfig | DeletePushConfig) -> str:
    if not operation.id:
        raise UnsupportedOperation(f"{NAME} reaches a push configuration by its id only: list them to find it")
    return operation.id


def _lacks(operation: Operation) -> NoReturn:
    raise UnsupportedOperation(f"{NAME} has no {type(operation).__name__}: it belongs to BeeOS")


# -- responses ---------------------------------------------------------------------------------------------------------


def read_update(data: bytes) -> tuple[Update, ...]:
    """Decode an item of a stream, a StreamResponse, which holds exactly one update."""
    frame = _read(pb.StreamResponse, data)
    match frame.WhichOneof("payload"):
        case "artifact_update":
            return (_artifact_update(frame.artifact_update),)
        case "status_update":
            return (_status_update(frame.status_update),)
        case "task":
            return (_task(frame.task),)
        case "message":
            return (_message(frame.message),)
        case _:
            raise InvalidAgentResponse(f"expected a StreamResponse that holds something, got {data[:100]!r}")


def read_answer(operation: Operation, body: bytes) -> Answer:
    """Decode the response to an operation. For a delete any response means success, and the result is None."""
    match operation:
        case SendMessage():
            answer = _read(pb.SendMessageResponse, body)
            match answer.WhichOneof("payload"):
                case "task":
                    return _task(answer.task)
                case "message":
                    return _message(answer.message)
                case _:
                    raise InvalidAgentResponse("expected a task or a message, got an empty SendMessageResponse")
        case GetTask() | CancelTask():
            return _task(_read(pb.Task, body))
        case ListTasks():
            page = _read(pb.ListTasksResponse, body)
            return TaskList(
                tasks=tuple([_task(task) for task in page.tasks]),
                next_page_token=page.next_page_token,
                total_size=max(page.total_size, 0),
            )
        case CreatePushConfig() | GetPushConfig():
            return _config(_read(pb.TaskPushNotificationConfig, body))
        case ListPushConfigs():
            listed = _read(pb.ListTaskPushNotificationConfigsResponse, body)
            return tuple([_config(config) for config in listed.configs])
        case GetExtendedCard():
            card = _read(pb.AgentCard, body)
            try:
                return decode_card(MessageToDict(card))
            except (Unfit, Unjson, ValueError):
                raise InvalidAgentResponse("expected an agent card whose values JSON has") from None
        case DeletePushConfig():
            return None
        case _:
            _lacks(operation)


def _read(kind: type[M], body: bytes) -> M:
    try:
        return read(kind, body)
    except ParseError:
        raise InvalidAgentResponse(f"expected a {kind.DESCRIPTOR.full_name}, got {body[:100]!r}") from None


def _task(given: pb.Task) -> Task:
    if not given.id:
        raise InvalidAgentResponse("expected a task with an id")
    return Task(
        id=given.id,
        context_id=given.context_id,
        status=_status(given.status),
        artifacts=tuple([_artifact(artifact, given.id, nth) for nth, artifact in enumerate(given.artifacts)]),
        history=tuple([_message(message) for message in given.history]),
        metadata=_metadata(given),
    )


def _status(given: pb.TaskStatus) -> TaskStatus:
    """Read a status. A task in an unknown state has not ended, so the client asks again."""
    return TaskStatus(
        state=STATES.get(given.state, TaskState.UNSPECIFIED),
        message=_message(given.message) if given.HasField("message") else None,
        timestamp=timestamp_text(given.timestamp) if given.HasField("timestamp") else "",
    )


def _message(given: pb.Message) -> Message:
    return Message(
        message_id=given.message_id or objects.derive_id("msg", given.SerializeToString(deterministic=True)),
        role=ROLES.get(given.role, Role.AGENT),
        parts=tuple([part_of(part) for part in given.parts]),
        context_id=given.context_id or None,
        task_id=given.task_id or None,
        metadata=_metadata(given),
        extensions=tuple(given.extensions),
        reference_task_ids=tuple(given.reference_task_ids),
    )


def _artifact(given: pb.Artifact, task_id: str = "", nth: int = 0) -> Artifact:
    return Artifact(
        artifact_id=given.artifact_id or objects.artifact_id(task_id, nth),
        parts=tuple([part_of(part) for part in given.parts]),
        name=given.name or None,
        description=given.description or None,
        metadata=_metadata(given),
        extensions=tuple(given.extensions),
    )


def _status_update(given: pb.TaskStatusUpdateEvent) -> StatusUpdate:
    metadata, told, used = beyond(_metadata(given))
    return StatusUpdate(
        task_id=given.task_id,
        context_id=given.context_id,
        status=_status(given.status),
        metadata=metadata,
        progress=told,
        usage=used,
    )


def _artifact_update(given: pb.TaskArtifactUpdateEvent) -> ArtifactUpdate:
    return ArtifactUpdate(
        task_id=given.task_id,
        context_id=given.context_id,
        artifact=_artifact(given.artifact, given.task_id),
        append=given.append,
        last_chunk=given.last_chunk,
        metadata=_metadata(given),
    )


def _metadata(
    given: pb.Task | pb.Message | pb.Artifact | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent,
) -> dict[str, Any] | None:
    return (struct_dict(given.metadata) or None) if given.HasField("metadata") else None


def _config(given: pb.TaskPushNotificationConfig) -> PushConfig:
    if not given.url:
        raise InvalidAgentResponse("expected a push notification configuration with a url")
    authentication = given.authentication
    return PushConfig(
        url=given.url,
        id=given.id,
        task_id=given.task_id,
        token=given.token or None,
        scheme=authentication.scheme or None,
        credentials=authentication.credentials or None,
    )


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
