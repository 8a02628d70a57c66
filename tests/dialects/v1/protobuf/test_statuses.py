"""Statuses of A2A 1.0 over gRPC: the codes of §5.4, their details, and what a client reads from them."""

from typing import Any

import pytest
from google.protobuf.message import Message as ProtoMessage
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.api import GrpcStatus
from dragoman.dialects.v1.errors import TABLE
from dragoman.dialects.v1.protobuf import GRPC, read_status
from dragoman.dialects.v1.protobuf.statuses import status_text
from dragoman.model import errors
from dragoman.model.errors import A2AError

ERRORS: list[A2AError] = [
    errors.ParseError("no message"),
    errors.InvalidRequest("no request"),
    errors.MethodNotFound("Gone"),
    errors.InvalidParams("message.parts", "is required", ("id", "is required")),
    errors.InternalError("r1"),
    errors.TaskNotFound("t1"),
    errors.TaskNotCancelable("t1", "TASK_STATE_COMPLETED"),
    errors.PushNotificationNotSupported(),
    errors.UnsupportedOperation("no"),
    errors.ContentTypeNotSupported("no"),
    errors.InvalidAgentResponse("no"),
    errors.ExtendedAgentCardNotConfigured("no"),
    errors.ExtensionSupportRequired("urn:x"),
    errors.VersionNotSupported("9.9"),
    errors.AgentNotFound("nobody"),
    errors.PayloadTooLarge(5),
    errors.RequestTimeout("late"),
    errors.Unavailable("stopping", 7),
    errors.Unauthorized("who", missing=True),
    errors.Forbidden("no"),
    errors.TooManyRequests("max_requests_per_s", "slow down", 3),
]


def status_of(error: A2AError) -> Status:
    status = Status.FromString(GRPC.encode_error(error))
    assert isinstance(status, Status)
    return status


def detail(status: Status, kind: type[Any]) -> Any:
    found: ProtoMessage = kind()
    assert any(each.Is(kind.DESCRIPTOR) and each.Unpack(found) for each in status.details)
    return found


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TaskNotFound("t"), "NOT_FOUND"),
        (errors.TaskNotCancelable("t", "s"), "FAILED_PRECONDITION"),
        (errors.PushNotificationNotSupported(), "FAILED_PRECONDITION"),
        (errors.UnsupportedOperation(""), "FAILED_PRECONDITION"),
        (errors.ContentTypeNotSupported(""), "INVALID_ARGUMENT"),
        (errors.InvalidAgentResponse(""), "INTERNAL"),
        (errors.ExtendedAgentCardNotConfigured(""), "FAILED_PRECONDITION"),
        (errors.ExtensionSupportRequired(""), "FAILED_PRECONDITION"),
        (errors.VersionNotSupported(""), "FAILED_PRECONDITION"),
        (errors.Unauthorized(""), "UNAUTHENTICATED"),
        (errors.Forbidden(""), "PERMISSION_DENIED"),
        (errors.TooManyRequests("", "", 1), "RESOURCE_EXHAUSTED"),
        (errors.Unavailable(""), "UNAVAILABLE"),
        (errors.InvalidParams("a", "b"), "INVALID_ARGUMENT"),
        (errors.InternalError(), "INTERNAL"),
    ],
)
def test_the_codes_of_the_specification(error: A2AError, code: str) -> None:
    assert GRPC.error_status(error) == status_of(error).code == Code.Value(code)


def test_no_error_is_unknown_or_no_error() -> None:
    assert {row.grpc_status for row in TABLE.values()}.isdisjoint({"UNKNOWN", "OK"})
    assert {row.grpc_status for row in TABLE.values()} <= set(dict(Code.items()))


def test_an_error_has_its_reason_and_its_metadata() -> None:
    status = status_of(errors.TaskNotFound("t1"))
    info = detail(status, ErrorInfo)
    assert (info.reason, info.domain, dict(info.metadata)) == ("TASK_NOT_FOUND", "a2a-protocol.org", {"taskId": "t1"})
    assert status.message == "Task not found"


def test_wrong_fields_are_named() -> None:
    found = detail(status_of(errors.InvalidParams("a.b", "is required", ("c", "too long"))), BadRequest)
    assert [(each.field, each.description) for each in found.field_violations] == [
        ("a.b", "is required"),
        ("c", "too long"),
    ]
    assert detail(status_of(errors.AgentNotFound("x")), BadRequest).field_violations[0].field == "tenant"


def test_a_caller_that_has_to_wait_is_told_how_long() -> None:
    assert detail(status_of(errors.Unavailable("", 7)), RetryInfo).retry_delay.seconds == 7
    assert detail(status_of(errors.TooManyRequests("", "", 3)), RetryInfo).retry_delay.seconds == 3


@given(st.text(), st.lists(st.tuples(st.text(), st.text()), max_size=20), st.integers(0, 5000))
def test_a_status_fits_into_the_trailers_that_clients_accept(
    text: str, more: list[tuple[str, str]], length: int
) -> None:
    for error in (
        errors.InvalidParams(text, "x" * length, *more),
        errors.MethodNotFound("é" * length),
        errors.ExtensionSupportRequired("\ud800" * length),
    ):
        encoded = len(GRPC.encode_error(error)) * 4 // 3
        percent = sum(3 if byte > 126 else 1 for byte in status_text(error).encode())
        assert encoded + percent < 7000


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_client_reads_the_error_that_was_written(error: A2AError) -> None:
    read = read_status(GrpcStatus(GRPC.error_status(error), status_text(error), GRPC.encode_error(error)))
    if isinstance(error, errors.ParseError):  # it has the reason of an invalid request
        assert type(read) is errors.InvalidRequest
        return
    assert type(read) is type(error)
    assert read.message == error.message
    assert read.metadata == error.metadata
    assert read.retry_after_s == error.retry_after_s
    if isinstance(error, errors.InvalidParams):
        assert isinstance(read, errors.InvalidParams)
        assert list(read.violations) == list(error.violations)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAUTHENTICATED", errors.Unauthorized),
        ("PERMISSION_DENIED", errors.Forbidden),
        ("RESOURCE_EXHAUSTED", errors.TooManyRequests),
        ("UNAVAILABLE", errors.Unavailable),
        ("DEADLINE_EXCEEDED", errors.Unavailable),
        ("UNIMPLEMENTED", errors.UnsupportedOperation),
        ("NOT_FOUND", errors.NotFound),
        ("INVALID_ARGUMENT", errors.InvalidParams),
        ("UNKNOWN", errors.InternalError),
        ("CANCELLED", errors.InternalError),
    ],
)
def test_a_status_without_details_is_read_by_its_code(code: str, kind: type[A2AError]) -> None:
    read = read_status(GrpcStatus(Code.Value(code), "why"))
    assert type(read) is kind
    assert read.message == "why"


def test_a_reason_of_another_domain_is_not_ours() -> None:
    status = Status(code=5, message="m")
    status.details.add().Pack(ErrorInfo(reason="TASK_NOT_FOUND", domain="example.org"))
    assert type(read_status(GrpcStatus(5, "m", status.SerializeToString()))) is errors.NotFound


@given(st.integers(-5, 2**31), st.text(), st.binary(max_size=60))
def test_any_status_is_an_error(code: int, message: str, details: bytes) -> None:
    assert isinstance(read_status(GrpcStatus(code, message, details)), A2AError)


@given(st.binary(max_size=40), st.sampled_from([ErrorInfo, BadRequest, RetryInfo]))
def test_any_detail_is_an_error(value: bytes, kind: type[Any]) -> None:
    status = Status(code=3)
    added = status.details.add()
    added.type_url, added.value = "type.googleapis.com/" + kind.DESCRIPTOR.full_name, value
    assert isinstance(read_status(GrpcStatus(3, "", status.SerializeToString())), A2AError)
