"""Any message of the official types, with any values in its fields, on both sides of both versions over gRPC."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.api import Dialect, Tongue
from dragoman.dialects.v03 import protobuf as v03
from dragoman.dialects.v1 import protobuf as v1
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.message import Message, Part, Role
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
)
from tests.dialects.protobuf_messages import messages

UNARY: list[Operation] = [
    SendMessage(message=Message(message_id="m1", role=Role.USER, parts=(Part(text="hello"),))),
    GetTask(id="t", history_length=0),
    CancelTask(id="t"),
    CreatePushConfig(config=PushConfig(url="https://a", task_id="t")),
    GetPushConfig(task_id="t", id="p"),
    ListPushConfigs(task_id="t"),
    DeletePushConfig(task_id="t", id="p"),
    GetExtendedCard(),
]
SPOKEN = [
    pytest.param(a2a_pb2, v1.GRPC, v1.TONGUE, id="1.0"),
    pytest.param(a2a_v0_3_pb2, v03.GRPC, v03.TONGUE, id="0.3"),
    pytest.param(a2a_v0_3_pb2, v03.GRPC_BASE64, v03.TONGUE_BASE64, id="0.3-base64"),
]


def message(data: st.DataObject, package: Any, kind: str) -> bytes:
    """The bytes of a message of the methods of a service, `input_type` or `output_type`."""
    methods = package.DESCRIPTOR.services_by_name["A2AService"].methods
    names = sorted({getattr(method, kind).name for method in methods} & vars(package).keys())
    made = data.draw(messages(getattr(package, data.draw(st.sampled_from(names)))))
    body: bytes = made.SerializeToString()
    return body


@pytest.mark.parametrize(("package", "dialect", "tongue"), SPOKEN)
@given(data=st.data())
def test_any_request_gives_an_operation_or_a_status(
    package: Any, dialect: Dialect, tongue: Tongue, data: st.DataObject
) -> None:
    body = message(data, package, "input_type")
    for method in package.DESCRIPTOR.services_by_name["A2AService"].methods:
        refusal = None
        try:
            msgspec.msgpack.encode(dialect.decode(method.name, body))
        except A2AError as error:
            refusal = error
        if refusal is not None:
            assert Status.FromString(dialect.encode_error(refusal)).code == dialect.error_status(refusal)


@pytest.mark.parametrize(("package", "dialect", "tongue"), SPOKEN)
@given(data=st.data())
def test_any_answer_gives_a_value_or_is_an_invalid_one(
    package: Any, dialect: Dialect, tongue: Tongue, data: st.DataObject
) -> None:
    body = message(data, package, "output_type")
    for operation in UNARY:
        with suppress(InvalidAgentResponse):
            msgspec.json.encode(tongue.read_answer(operation, body))
    with suppress(InvalidAgentResponse):
        msgspec.json.encode(tongue.read_update(body))


def test_a_message_without_an_id_may_have_values_that_json_lacks() -> None:
    for package, tongue in ((a2a_pb2, v1.TONGUE), (a2a_v0_3_pb2, v03.TONGUE)):
        frame = package.StreamResponse()
        said = frame.message if package is a2a_pb2 else frame.msg
        said.metadata.fields["a"].number_value = float("nan")
        (read,) = tongue.read_update(frame.SerializeToString())
        assert isinstance(read, Message)
        assert (read.message_id[:4], read.metadata) == ("msg-", {"a": None})
        assert tongue.read_update(frame.SerializeToString()) == (read,)
