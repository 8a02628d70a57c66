"""The rules for every dialect, whose row in `tests/dialects/table.py` says how it is spoken."""

import json
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects.api import Dialect, RestRequest
from dragoman.dialects.extensions import UNREADABLE
from dragoman.dialects.registry import load_systems
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidParams, MethodNotFound, ParseError
from dragoman.model.events import ArtifactChunk, StatusChanged, Submitted
from dragoman.model.ids import timestamp
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import GetTask, Operation
from dragoman.model.task import STATES, Record, TaskHead, TaskState, TaskStatus
from dragoman.store.damage import bare_record
from tests.dialects.table import EVERYWHERE, SPOKEN, Row

ON_A_TASK: Mapping[str, str] = MappingProxyType({"id": "t"})
WITHOUT_QUERY: Mapping[str, str] = MappingProxyType({})

METHODS = {system.name: system.methods for system in load_systems()}

every = pytest.mark.parametrize("name", SPOKEN)


@cache  # a recursive strategy takes longer to make than its values
def json_of(name: str) -> st.SearchStrategy[Any]:
    """Any JSON, of words that mean something in the dialect."""
    row = SPOKEN[name]
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5)
        | st.sampled_from(row.values)
    )
    return st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | objects_of(row, inner), max_leaves=20)


@cache
def members_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Any object, of the same words."""
    return objects_of(SPOKEN[name], json_of(name))


def objects_of(row: Row, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from([*EVERYWHERE, *row.keys]) | st.text(max_size=3), values, max_size=6)


def dialects_of(row: Row) -> tuple[Dialect, ...]:
    return (row.rpc, *row.rest)


def requests_of(
    row: Row, body: bytes, path: Mapping[str, str] = ON_A_TASK, query: Mapping[str, str] = WITHOUT_QUERY
) -> None:
    """Try the body under each method and route: it is an operation, or an A2AError that can be written."""
    for method in METHODS[row.rpc.name]:
        try:
            assert isinstance(row.rpc.decode(method, body), Operation)
        except A2AError as error:
            json.loads(row.rpc.encode_error(error))
    for dialect in row.rest:
        assert dialect.decode_rest is not None
        for route in row.routes:
            try:
                assert isinstance(dialect.decode_rest(RestRequest(route, path, query, body)), Operation)
            except A2AError as error:
                json.loads(dialect.encode_error(error))


def test_every_dialect_has_a_row() -> None:
    paths = {
        path.dialect.key
        for system in load_systems()
        for path in system.paths
        if path.endpoint == "rpc" and path.dialect
    }
    assert {row.rpc.key for row in SPOKEN.values()} == {system.dialect.key for system in load_systems()} | paths


# -- any bytes ---------------------------------------------------------------------------------------------------------


@every
@given(data=st.data())
def test_any_json_is_an_operation_or_refused(name: str, data: st.DataObject) -> None:
    row = SPOKEN[name]
    requests_of(row, json.dumps(data.draw(json_of(name))).encode())


@every
@given(data=st.data())
def test_any_json_beside_a_message_is_an_operation_or_refused(name: str, data: st.DataObject) -> None:
    row = SPOKEN[name]
    requests_of(row, json.dumps({**data.draw(members_of(name)), **row.sent}).encode())


@every
@given(data=st.data())
def test_any_message_artifact_status_or_configuration_is_taken_or_refused(name: str, data: st.DataObject) -> None:
    row = SPOKEN[name]
    value = data.draw(members_of(name))
    message = {"role": "user", "parts": [value], **value}
    params = {"id": "t", "message": message, "status": value, "configuration": value}
    requests_of(row, json.dumps({**params, "artifacts": [value, {**value, "parts": [value]}]}).encode())


@every
@given(body=st.binary(max_size=60) | st.text(max_size=20).map(lambda text: f'{{"message":{text}}}'.encode()))
def test_any_bytes_are_an_operation_or_refused(name: str, body: bytes) -> None:
    requests_of(SPOKEN[name], body)


@pytest.mark.parametrize("name", [name for name, row in SPOKEN.items() if row.rest])
@given(
    st.dictionaries(st.sampled_from(["id", "task_id", "x"]), st.text(st.characters(), max_size=4)),
    st.dictionaries(
        st.sampled_from(["historyLength", "pageSize", "status", "includeArtifacts", "statusTimestampAfter"]),
        st.text(st.characters(), max_size=4),
    ),
)
def test_any_path_and_query_are_an_operation_or_refused(name: str, path: dict[str, str], query: dict[str, str]) -> None:
    requests_of(SPOKEN[name], b"", path, query)


@given(st.binary(max_size=40) | json_of("python-a2a").map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_bare_body_or_none(body: bytes) -> None:
    for system in load_systems():
        if system.bare is not None and (found := system.bare(body)) is not None:
            method, dialect = found
            assert method in system.methods
            try:
                dialect.decode(method, body)
            except A2AError as error:
                json.loads(dialect.encode_error(error))


def sent_by(row: Row) -> bytes:
    return json.dumps(row.sent, ensure_ascii=False).encode()


@every
def test_a_message_cut_off_at_any_byte_is_refused(name: str) -> None:
    row, body = SPOKEN[name], sent_by(SPOKEN[name])
    assert isinstance(row.rpc.decode(row.send, body), Operation)
    for end in range(len(body)):
        with pytest.raises(A2AError):
            row.rpc.decode(row.send, body[:end])


@every
def test_a_message_with_any_byte_changed_is_an_operation_or_refused(name: str) -> None:
    row, body = SPOKEN[name], sent_by(SPOKEN[name])
    for index in range(len(body)):
        for byte in (0x00, 0x22, 0x7B, 0x5D, 0x30, 0xFF):
            try:
                row.rpc.decode(row.send, body[:index] + bytes([byte]) + body[index + 1 :])
            except A2AError:
                continue


@every
@pytest.mark.parametrize(
    "body", [b"x", b"{", b'{"message"', b'{"message": NaN}', b'{"message":{"parts":[{"text":"\xff"}]}}']
)
def test_what_is_no_json_is_a_parse_error(name: str, body: bytes) -> None:
    with pytest.raises(ParseError):
        SPOKEN[name].rpc.decode(SPOKEN[name].send, body)


@every
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"7",
        b'"x"',
        b'{"a":' * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
def test_what_is_no_object_that_can_be_read_is_refused(name: str, body: bytes) -> None:
    with pytest.raises(A2AError):
        SPOKEN[name].rpc.decode(SPOKEN[name].send, body)


# -- what is wrong is named --------------------------------------------------------------------------------------------

LACKS = [
    pytest.param(row.rpc, method, id=f"{name}-{method[:20]}") for name, row in SPOKEN.items() for method in row.lacks
]
REFUSED = [
    pytest.param(row.rpc, *case, id=f"{name}-{case[0]}-{case[2]}")
    for name, row in SPOKEN.items()
    for case in row.refused
]


@pytest.mark.parametrize(("dialect", "method"), LACKS)
def test_a_method_that_the_dialect_lacks_is_not_found(dialect: Dialect, method: str) -> None:
    with pytest.raises(MethodNotFound) as refusal:
        dialect.decode(method, b'{"id":"t"}')
    assert len(refusal.value.message) < 200


@pytest.mark.parametrize(("dialect", "method", "params", "field"), REFUSED)
def test_a_wrong_parameter_is_named(dialect: Dialect, method: str, params: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        dialect.decode(method, json.dumps(params).encode())
    assert refusal.value.violations[0][0] == field


# -- tasks that cannot be read ----------------------------------------------------------------------------------------

UNKNOWN = TaskHead(
    id="t", context_id="c", agent="a", owner="o", dialect="", mount="", created_at=timestamp(0), parent="p"
)


@pytest.mark.parametrize("name", [name for name in SPOKEN if name != "python-a2a, messages"])  # it never shows a task
@pytest.mark.parametrize("state", STATES)
def test_a_task_that_cannot_be_read_has_one_entry_of_metadata(name: str, state: TaskState) -> None:
    record = bare_record(UNKNOWN, 3, state, 1_800_000_000_000)
    for dialect in dialects_of(SPOKEN[name]):
        task = json.loads(dialect.encode_result(GetTask(id="t"), record))
        assert task["metadata"] == {UNREADABLE: True}
        assert task["id"] == "t"
        assert not any(task.get(member) for member in ("artifacts", "history", "data"))


@pytest.mark.parametrize("name", [name for name in SPOKEN if name != "python-a2a, messages"])
def test_a_part_without_content_and_a_time_that_is_none_do_not_break_an_answer(name: str) -> None:
    """An earlier program or a bad disk has left them in a store: all of it can be decoded."""
    empty = (Part(text="x"), Part(), Part(metadata={"a": 1}, filename="f"))
    said = Message(message_id="m", role=Role.USER, parts=empty)
    status = TaskStatus(state=TaskState.COMPLETED, message=said, timestamp="2027-01-1b")
    made = replace(UNKNOWN, created_at="\x00")
    artifacts = (Artifact(artifact_id="a", parts=empty),)
    record = Record(head=made, seq=3, status=status, artifacts=artifacts, history=(said,))
    for dialect in dialects_of(SPOKEN[name]):
        assert json.loads(dialect.encode_result(GetTask(id="t"), record))["id"] == "t"
        for event in (Submitted(said, "x"), ArtifactChunk(artifacts[0]), StatusChanged(status.state, "x", said)):
            assert all(dialect.encode_event(made, event, record))


# -- errors ------------------------------------------------------------------------------------------------------------

OF_HTTP: list[tuple[A2AError, int]] = [
    (errors.NotFound("x"), 404),
    (errors.MethodNotAllowed(("GET",)), 405),
    (errors.RequestTimeout(""), 408),
    (errors.PayloadTooLarge(10), 413),
    (errors.UnsupportedMediaType("text/html"), 415),
    (errors.Unauthorized("x"), 401),
    (errors.Forbidden("x"), 403),
    (errors.TooManyRequests("max_streams", "x", 3), 429),
    (errors.BudgetExhausted("research", "x", None), 429),
    (errors.Unavailable("x"), 503),
]


@every
@pytest.mark.parametrize(("error", "status"), OF_HTTP, ids=lambda value: type(value).__name__)
def test_errors_of_the_http_request_keep_their_status(name: str, error: A2AError, status: int) -> None:
    assert [dialect.error_status(error) for dialect in dialects_of(SPOKEN[name])] == [status] * len(
        dialects_of(SPOKEN[name])
    )


@pytest.mark.parametrize("name", [name for name, row in SPOKEN.items() if not row.http_errors])
def test_errors_of_an_operation_are_answers_of_json_rpc(name: str) -> None:
    for error in (errors.TaskNotFound("t"), errors.ParseError("x"), errors.MethodNotFound("x"), errors.InternalError()):
        assert SPOKEN[name].rpc.error_status(error) == 200
        written = json.loads(SPOKEN[name].rpc.encode_error(error))
        assert isinstance(written["code"], int)
        assert isinstance(written["message"], str)


@every
def test_lone_surrogates_do_not_break_an_answer(name: str) -> None:
    for error in (errors.MethodNotFound("\udcff"), errors.InvalidParams("\udcff", "x"), errors.TaskNotFound("\udcff")):
        for dialect in dialects_of(SPOKEN[name]):
            json.loads(dialect.encode_error(error))
