"""Decodes the requests of `a2a.v1.A2AService` to operations.

Invariant: any bytes give an operation or an A2AError. A name may be a resource (`tasks/{id}`) or the bare id. A message
without `configuration` leaves it to the server whether to wait; with one, an absent `blocking` is false.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.dialects import push
from dragoman.dialects.json_fields import Violations, named_skill, refuse
from dragoman.dialects.protobuf import bounds
from dragoman.dialects.protobuf.bounds import STRUCT, Shape
from dragoman.dialects.protobuf.fields import Form, within
from dragoman.dialects.protobuf.values import read, struct_dict
from dragoman.dialects.v03.decode import checked_id
from dragoman.dialects.v03.protobuf.messages import pb
from dragoman.dialects.v03.protobuf.objects import CONFIG, ObjectForms
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.message import Message
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
)

_MESSAGE: Shape = {5: {2: {}, 3: {1: STRUCT}, 4: STRUCT}, 6: STRUCT}
_SEND: Shape = {1: _MESSAGE, 2: {}, 3: STRUCT}

_SHAPES: dict[str, Shape] = {"SendMessage": _SEND, "SendStreamingMessage": _SEND}
"""The messages within each request, by their fields' numbers in the proto file; other requests hold only values."""

_TASKS = "tasks/"
_CONFIGS = "/pushNotificationConfigs"


def decoder(forms: ObjectForms) -> Callable[[str, bytes | memoryview], Operation]:
    """Return the decoder of a Dialect, for one way of reading the bytes of a file.

    It raises MethodNotFound for a method that the service lacks, ParseError if the bytes are not the method's request,
    InvalidParams if a field is missing or wrong.
    """

    def decode(method: str, params: bytes | memoryview) -> Operation:
        body = bytes(params)
        match method:
            case "SendMessage":
                return _send(read(pb.SendMessageRequest, body), SendMessage, forms)
            case "SendStreamingMessage":
                return _send(read(pb.SendMessageRequest, body), StreamMessage, forms)
            case "GetTask":
                asked = read(pb.GetTaskRequest, body)
                return GetTask(id=_task(asked.name), history_length=_length(asked.history_length, "history_length"))
            case "CancelTask":
                return CancelTask(id=_task(read(pb.CancelTaskRequest, body).name))
            case "TaskSubscription":
                return Subscribe(id=_task(read(pb.TaskSubscriptionRequest, body).name))
            case "CreateTaskPushNotificationConfig":
                return _create(read(pb.CreateTaskPushNotificationConfigRequest, body))
            case "GetTaskPushNotificationConfig":
                task_id, config_id = _config(read(pb.GetTaskPushNotificationConfigRequest, body).name)
                return GetPushConfig(task_id=task_id, id=config_id)
            case "ListTaskPushNotificationConfig":
                listed = read(pb.ListTaskPushNotificationConfigRequest, body)
                return ListPushConfigs(task_id=_parent(listed.parent))
            case "DeleteTaskPushNotificationConfig":
                return _delete(read(pb.DeleteTaskPushNotificationConfigRequest, body))
            case "GetAgentCard":
                read(pb.GetAgentCardRequest, body)
                return GetExtendedCard(or_public=True)  # "the agent card for the agent", says a2a.proto
            case _:
                raise MethodNotFound(method)

    return decode


def check_bounds(method: str, request: bytes, max_values: int) -> None:
    """Refuse a request with more than `max_values` values, before it is decoded. Raises InvalidParams."""
    bounds.check(request, _SHAPES.get(method, {}), max_values)


def _send(request: pb.SendMessageRequest, kind: type[SendMessage], forms: ObjectForms) -> SendMessage:
    if not request.HasField("request"):
        raise InvalidParams("request", "is required")
    said = _message(request.request, forms.message)
    metadata, chosen = struct_dict(request.metadata) or None, request.configuration
    return kind(
        message=said,
        return_immediately=request.HasField("configuration") and not chosen.blocking,
        history_length=_length(chosen.history_length, "configuration.history_length"),
        accepted_output_modes=tuple(chosen.accepted_output_modes),
        metadata=metadata,
        skill=named_skill(metadata, said.metadata),
        push_config=_push_config(chosen.push_notification, "configuration.push_notification", "")
        if chosen.HasField("push_notification")
        else None,
    )


def _message(given: pb.Message, form: Form[Message]) -> Message:
    if given.role not in (pb.ROLE_USER, pb.ROLE_AGENT):
        raise InvalidParams("request.role", "must be ROLE_USER or ROLE_AGENT")
    if not given.content:
        raise InvalidParams("request.content", "must hold at least one part")
    if not given.message_id:
        raise InvalidParams("request.message_id", "is required: send a string that is not empty")
    checked_id(given.message_id, "request.message_id")
    try:
        said = form.read(given)
    except InvalidParams as fault:
        raise within("request", fault) from None
    checked_id(given.context_id, "request.context_id")
    return said


def _length(given: int, path: str) -> int | None:
    """Decode a limit; 0 is no limit, as it is an absent field."""
    if given < 0:
        raise InvalidParams(path, "must be an integer, 0 or more")
    return given or None


def _task(name: str, path: str = "name") -> str:
    """Decode `tasks/{id}`."""
    task_id = name.removeprefix(_TASKS)
    if not task_id or "/" in task_id:
        raise InvalidParams(path, "must be tasks/ and the id of a task")
    return task_id


def _parent(parent: str) -> str:
    """Decode `tasks/{id}`, also with `/pushNotificationConfigs` behind it, as the proto's HTTP rule has it."""
    return _task(parent.removesuffix("/").removesuffix(_CONFIGS), "parent")


def _config(name: str) -> tuple[str, str]:
    """Decode `tasks/{id}/pushNotificationConfigs/{config}`; the config's id may be missing, and may hold slashes."""
    task, _, config_id = name.partition(f"{_CONFIGS}/")
    return _parent(task) if not config_id else _task(task), config_id


def _delete(request: pb.DeleteTaskPushNotificationConfigRequest) -> DeletePushConfig:
    task_id, config_id = _config(request.name)
    if not config_id:
        raise InvalidParams("name", "must be tasks/{id}/pushNotificationConfigs/{id}")
    return DeletePushConfig(task_id=task_id, id=config_id)


def _create(request: pb.CreateTaskPushNotificationConfigRequest) -> CreatePushConfig:
    """Decode a registration. The id is that of the configuration, or `config_id`, or the last segment of its name."""
    wrapped = request.config
    if not wrapped.HasField("push_notification_config"):
        raise InvalidParams("config.push_notification_config", "is required")
    named = wrapped.name.partition(f"{_CONFIGS}/")[2]
    given = wrapped.push_notification_config
    config = _push_config(given, "config.push_notification_config", _parent(request.parent), request.config_id or named)
    return CreatePushConfig(config=config)


def _push_config(given: pb.PushNotificationConfig, path: str, task_id: str, otherwise: str = "") -> PushConfig:
    """Decode a configuration; `otherwise` is its id if it has none. The first of several schemes counts."""
    if not given.url:
        raise InvalidParams(f"{path}.url", "is required: send a string that is not empty")
    authentication = given.authentication
    config = replace(
        CONFIG.read(given),
        id=given.id or otherwise,
        task_id=task_id,
        scheme=next(iter(authentication.schemes), None) or None,
        credentials=authentication.credentials or None,
    )
    violations: Violations = []
    push.check(config, f"{path}.", violations)
    refuse(violations)
    return config
