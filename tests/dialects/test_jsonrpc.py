"""JSON-RPC envelopes: what is a request, what comes back with which id."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects import jsonrpc
from dragoman.model.errors import A2AError, InvalidParams, InvalidRequest, ParseError


def body(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}} | members).encode()


def without(name: str) -> bytes:
    members = json.loads(body())
    del members[name]
    return json.dumps(members).encode()


def test_a_request_is_opened_and_its_params_are_left_as_they_came() -> None:
    request = jsonrpc.decode_request(b'{"jsonrpc": "2.0", "id": "a", "method": "M", "params": {"x" : [1, 2]}}')
    assert request == jsonrpc.RpcRequest(b'"a"', "M", b'{"x" : [1, 2]}')


@pytest.mark.parametrize(
    "request_id",
    [
        b"1",
        b"-7",
        b"0",
        b"1.5",
        b"1e3",
        b"123456789012345678901234567890",
        b'"a"',
        b'""',
        b'"1"',
        b'"\\u00e9\\n"',
        b"null",
    ],
)
def test_an_id_comes_back_byte_for_byte(request_id: bytes) -> None:
    sent = b'{"jsonrpc":"2.0","id": ' + request_id + b' ,"method":"M"}'
    assert jsonrpc.decode_request(sent).id == request_id
    assert jsonrpc.id_of(sent) == request_id


@pytest.mark.parametrize("params", [b"{}", b"null"])
def test_absent_and_null_params_are_an_empty_object(params: bytes) -> None:
    assert jsonrpc.decode_request(without("params")).params == b"{}"
    assert jsonrpc.decode_request(b'{"jsonrpc":"2.0","id":1,"method":"M","params":' + params + b"}").params == b"{}"


@pytest.mark.parametrize("params", [[], [1], "x", 1, True])
def test_params_that_are_no_object_are_invalid_params(params: object) -> None:
    with pytest.raises(InvalidParams, match="params"):
        jsonrpc.decode_request(body(params=params))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"hello",
        b"\xef\xbb\xbf" + body(),
        body() + b"x",
        body() + b"\0",
        b"\0" + body(),
        b'{"jsonrpc":"2.0","id":1,"method":"M\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"M","x":"\xff"}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"M"}',
        b'{"jsonrpc":"2.0","id":1,"method":"M","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":5,',
        b'[{"jsonrpc":"2.0"},',
    ],
)
def test_what_is_not_json_is_a_parse_error_with_a_null_id(text: bytes) -> None:
    with pytest.raises(ParseError):
        jsonrpc.decode_request(text)
    assert jsonrpc.id_of(text) == b"null"


def test_a_lone_surrogate_is_a_parse_error() -> None:
    with pytest.raises(ParseError):
        jsonrpc.decode_request(b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}')


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"[" + body() + b"]",
        b'"x"',
        b"5",
        b"null",
        b"true",
        b"{}",
        without("jsonrpc"),
        without("method"),
        without("id"),
        body(jsonrpc="1.0"),
        body(jsonrpc=2.0),
        body(jsonrpc=None),
        body(method=5),
        body(method=None),
        body(method=""),
        body(method=["M"]),
        body(id=[]),
        body(id={}),
        body(id=True),
        body(id=False),
        body(id="x" * 2000),
    ],
)
def test_json_that_is_no_single_request_is_an_invalid_request(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        jsonrpc.decode_request(text)


def test_a_batch_is_named_as_such() -> None:
    with pytest.raises(InvalidRequest, match="batches are not supported"):
        jsonrpc.decode_request(b"[" + body() + b"," + body() + b"]")


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        (body(jsonrpc="1.0", id="a"), b'"a"'),
        (body(method=5, id=7), b"7"),
        (body(params=[], id=7), b"7"),
        (body(id=[1]), b"null"),
        (body(id=True), b"null"),
        (body(id="x" * 2000), b"null"),
        (without("id"), b"null"),
        (b"[]", b"null"),
        (b'{"id":1', b"null"),
        (b'{"id":1,"a":' + b"[" * 1000 + b"]" * 1000 + b"}", b"null"),
    ],
)
def test_a_refusal_echoes_the_id_where_it_can_be_read(text: bytes, request_id: bytes) -> None:
    with pytest.raises(A2AError):
        jsonrpc.decode_request(text)
    assert jsonrpc.id_of(text) == request_id


def test_of_keys_that_come_twice_the_last_counts() -> None:
    request = jsonrpc.decode_request(
        b'{"jsonrpc":"2.0","id":1,"method":"A","params":{"a":1},"id":"b","method":"B","params":{"b":2}}'
    )
    assert request == jsonrpc.RpcRequest(b'"b"', "B", b'{"b":2}')


def test_nesting_beyond_the_limit_is_an_invalid_request() -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"M","params":{"a":' + b"[" * 100 + b"]" * 100 + b"}}"
    with pytest.raises(InvalidRequest, match="deeper than the 64"):
        jsonrpc.decode_request(deep)
    assert jsonrpc.decode_request(deep, max_depth=200).method == "M"


def test_nesting_beyond_the_interpreter_is_refused_too() -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"M","params":{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}}"
    with pytest.raises(InvalidRequest):
        jsonrpc.decode_request(deep, max_depth=1_000_000)
    assert jsonrpc.id_of(deep, max_depth=1_000_000) == b"null"


def test_an_answer_and_a_failure_have_the_members_of_the_specification() -> None:
    assert b'{"x":1}'.join(jsonrpc.result_envelope(b'"a"')) == b'{"jsonrpc":"2.0","id":"a","result":{"x":1}}'
    assert b'{"code":-1}'.join(jsonrpc.error_envelope(b"1.5")) == b'{"jsonrpc":"2.0","id":1.5,"error":{"code":-1}}'


@given(st.binary(max_size=300))
def test_any_bytes_give_a_request_or_an_a2a_error(text: bytes) -> None:
    try:
        request = jsonrpc.decode_request(text)
    except A2AError:
        jsonrpc.id_of(text)
    else:
        json.loads(b"{}".join(jsonrpc.result_envelope(request.id)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "x"]), JSON | st.just("2.0"), max_size=5),
    st.booleans(),
    st.binary(max_size=3),
)
def test_any_json_gives_a_request_or_an_a2a_error(members: dict[str, object], valid: bool, more: bytes) -> None:
    if valid:
        members["jsonrpc"] = "2.0"
    text = json.dumps(members).encode() + more
    request_id = jsonrpc.id_of(text)
    json.loads(request_id)
    try:
        request = jsonrpc.decode_request(text)
    except A2AError:
        return
    assert request.method == members["method"]
    assert json.loads(request.id) == members["id"]


def test_large_params_are_a_view_of_the_body_and_small_ones_a_copy() -> None:
    """Copying 30 MB takes 20 ms, during which no other thread runs."""
    for size, view in ((jsonrpc.COPIED_BYTES, True), (100, False)):
        params = b'{"text":"%s"}' % (b"x" * size)
        request = jsonrpc.decode_request(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%s}' % params)
        assert (request.params == params, isinstance(request.params, memoryview)) == (True, view)
