"""The vendors' tongues and what their tests share: vectors of any kind, calls, and what a frame tells.

Invariant: nothing here is tested; it only brings vectors and tongues together.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from dragoman.dialects import beeos, evoai, kaos, protoagent
from dragoman.dialects.api import Dialect, RpcCall, Tongue
from dragoman.dialects.beeos.client import TONGUE as BEEOS
from dragoman.dialects.evoai.client import TONGUE as EVOAI
from dragoman.dialects.kaos.client import TONGUE as KAOS
from dragoman.dialects.protoagent.client import TONGUE as PROTOAGENT
from dragoman.model.errors import A2AError
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import (
    CancelTask,
    CompleteTask,
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
    UpdateStatus,
)
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update
from tests.dialects import shown, vendor_vectors
from tests.dialects.vendor_vectors import ROOT

T = TypeVar("T")

TONGUES: dict[str, Tongue] = {"beeos": BEEOS, "kaos": KAOS, "evoai": EVOAI, "protoagent": PROTOAGENT}
DIALECTS: dict[str, Dialect] = {
    "beeos": beeos.JSONRPC,
    "kaos": kaos.JSONRPC,
    "evoai": evoai.JSONRPC,
    "protoagent": protoagent.JSONRPC,
}
VALUES: dict[str, Any] = {
    "Task": Task,
    "Message": Message,
    "TaskList": TaskList,
    "PushConfig": PushConfig,
    "StatusUpdate": StatusUpdate,
    "ArtifactUpdate": ArtifactUpdate,
    "None": None,
}
MADE_UP = "msg-"
"""How the id begins that a message gets which has none; vectors have `*` there."""

SEND = SendMessage(message=Message(message_id="m", role=Role.USER, parts=(Part(text="x"),)))
STREAM = StreamMessage(message=SEND.message)
CONFIG = PushConfig(url="https://example.com/h", task_id="t")
EVERY_OPERATION: tuple[Operation, ...] = (
    SEND,
    STREAM,
    GetTask(id="t"),
    ListTasks(),
    CancelTask(id="t"),
    Subscribe(id="t"),
    CreatePushConfig(config=CONFIG),
    GetPushConfig(task_id="t"),
    ListPushConfigs(task_id="t"),
    DeletePushConfig(task_id="t"),
    GetExtendedCard(),
    CompleteTask(id="t"),
    UpdateStatus(id="t", state=TaskState.WORKING),
)


def of_all(prefix: str, *names: str) -> list[Any]:
    """The vectors of that kind, each with the name of its dialect."""
    return [
        pytest.param(name, vector, id=f"{name}-{path.stem}")
        for name in names or TONGUES
        for path in sorted((ROOT / name).glob(f"{prefix}-*.json"))
        for vector in [json.loads(path.read_text("utf-8"))]
    ]


def operation_in(vector: dict[str, Any]) -> Operation:
    """The operation of a vector of any of the kinds there are."""
    if isinstance(vector["operation"], dict):
        return shown.operation_of(vector)
    return vendor_vectors.expected(vector)


def called(tongue: Tongue, operation: Operation) -> RpcCall:
    assert tongue.rpc is not None
    return tongue.rpc(operation)


def outcome(attempt: Callable[[], T]) -> T | A2AError:
    """The value that comes of it, or an error of the tree; any other error fails the test."""
    try:
        return attempt()
    except A2AError as error:
        return error


def value_in(wrapped: dict[str, Any]) -> Any:
    ((name, fields),) = wrapped.items()
    return msgspec.convert(fields, VALUES[name])


def unnamed(value: Any) -> Any:
    """The value with `*` for the ids that messages got which have none."""
    match value:
        case Message():
            return replace(value, message_id="*") if value.message_id.startswith(MADE_UP) else value
        case TaskStatus():
            return replace(value, message=unnamed(value.message))
        case Task():
            return replace(value, status=unnamed(value.status), history=tuple(map(unnamed, value.history)))
        case StatusUpdate():
            return replace(value, status=unnamed(value.status))
        case TaskList():
            return replace(value, tasks=tuple(map(unnamed, value.tasks)))
        case _:
            return value


SYSTEMS = {"beeos": "BeeOS", "kaos": "KAOS", "evoai": "Evo AI", "protoagent": "protoAgent"}


def told_by(name: str, frame: str) -> tuple[Update, ...]:
    """The content of a frame, without the envelope that the transport takes off where there is one."""
    tongue, opened = TONGUES[name], json.loads(frame)
    if tongue.enveloped:
        if "error" in opened:
            raise tongue.read_error(json.dumps(opened["error"]).encode(), 0)
        opened = opened["result"]
    return tongue.read_update(json.dumps(opened).encode())
