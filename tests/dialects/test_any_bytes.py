"""Any bytes, for every system: they decode, or raise A2AError, which the dialect can encode."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.dialects.api import Dialect
from dragoman.dialects.systems import load_systems
from dragoman.model.errors import A2AError

WORDS = [
    *("message", "messageId", "message_id", "role", "parts", "kind", "type", "text", "file", "data", "bytes", "raw"),
    *("metadata", "custom_fields", "id", "taskId", "contextId", "sessionId", "conversation_id", "configuration"),
    *("blocking", "historyLength", "status", "state", "content", "messages", "name", "parameters", "url", "token"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["user", "agent", "system", "text", "error", "function_call", "input-required", "AA==", "\0"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=20,
)
SYSTEMS = [
    pytest.param(dialect, system.methods, id=dialect.key)
    for system in load_systems()
    for dialect in {system.dialect.key: system.dialect, **{
        path.dialect.key: path.dialect for path in system.paths if path.dialect is not None and path.endpoint == "rpc"
    }}.values()
]  # fmt: skip


def gives_or_refuses(dialect: Dialect, methods: frozenset[str], body: bytes) -> None:
    for method in methods:
        try:
            dialect.decode(method, body)
        except A2AError as error:
            json.loads(dialect.encode_error(error))


@pytest.mark.parametrize(("dialect", "methods"), SYSTEMS)
@settings(max_examples=60, deadline=None)
@given(value=st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6) | VALUES)
def test_any_json_gives_an_operation_or_is_refused(dialect: Dialect, methods: frozenset[str], value: Any) -> None:
    gives_or_refuses(dialect, methods, json.dumps(value).encode())


@pytest.mark.parametrize(("dialect", "methods"), SYSTEMS)
@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=30) | st.text(max_size=20).map(lambda text: f'{{"message":{text}}}'.encode()))
def test_any_bytes_give_an_operation_or_are_refused(dialect: Dialect, methods: frozenset[str], body: bytes) -> None:
    gives_or_refuses(dialect, methods, body)


@given(st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_bare_body_or_none(body: bytes) -> None:
    for system in load_systems():
        if system.bare is not None and (found := system.bare(body)) is not None:
            method, dialect = found
            assert method in system.methods
            gives_or_refuses(dialect, frozenset({method}), body)
