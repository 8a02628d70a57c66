"""protoAgent's aliases, its errors outside of JSON-RPC, its extensions, and what agents may say of tool calls."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.protoagent import EXTENSIONS, JSONRPC, REST
from dragoman.dialects.protoagent.encode import http_error
from dragoman.dialects.protoagent.extensions import TOOL_CALL, tool_call
from dragoman.model.errors import A2AError, Forbidden, InvalidParams, TaskNotFound, TooManyRequests, Unauthorized
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import GetTask, SendMessage
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus
from tests.kit import values

AT = "2026-11-20T07:00:00.000Z"
HEAD = TaskHead(id="t1", context_id="c1", agent="a", owner="o", dialect="protoagent", mount="/a2a", created_at=AT)


def record(state: TaskState) -> Record:
    return values.record(HEAD, state, values.artifact("x", artifact_id="a1"), seq=3)


@pytest.mark.parametrize("state", TaskState)
def test_every_task_tells_its_usage_and_its_time_behind_its_artifacts(state: TaskState) -> None:
    task = json.loads(JSONRPC.encode_snapshot(record(state), None))
    assert list(task)[:6] == ["kind", "id", "contextId", "status", "artifacts", "data"]
    zeros = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert task["data"] == {"usage": zeros, "durationMs": 0}


def test_the_alias_of_get_gives_the_task_that_get_gives() -> None:
    task = record(TaskState.COMPLETED)
    asked = GetTask(id="t1")
    assert REST.encode_result(asked, task) == JSONRPC.encode_result(asked, task)


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (TaskNotFound("t1"), 404, "Task not found"),
        (InvalidParams("url", "is required"), 400, "url: is required"),
        (Unauthorized("no such key"), 401, "Unauthorized"),
        (Unauthorized("no key", missing=True), 401, "Unauthorized: expected 'Authorization: Bearer <token>'"),
        (Forbidden("not this agent"), 403, "Forbidden: not this agent"),
        (TooManyRequests("max_requests_per_s", "slow down", 3), 429, "slow down (max_requests_per_s)"),
    ],
)
def test_errors_without_an_envelope_have_a_detail(error: A2AError, status: int, detail: str) -> None:
    assert (REST.error_status(error), json.loads(REST.encode_error(error))) == (status, {"detail": detail})


def test_a_refused_caller_is_an_error_of_http() -> None:
    assert http_error(Unauthorized("Unauthorized")) == b'{"detail":"Unauthorized"}'
    assert http_error(Forbidden("Forbidden: origin not allowed")) == b'{"detail":"Forbidden: origin not allowed"}'
    assert http_error(TaskNotFound("t1")) is None


def test_the_four_extensions_have_the_uris_of_protolabs() -> None:
    assert [each.uri for each in EXTENSIONS] == [
        "https://proto-labs.ai/a2a/ext/cost-v1",
        "https://proto-labs.ai/a2a/ext/worldstate-delta-v1",
        "https://proto-labs.ai/a2a/ext/tool-call-v1",
        "https://proto-labs.ai/a2a/ext/confidence-v1",
    ]
    assert not any(each.required for each in EXTENSIONS)


@pytest.mark.parametrize(
    ("phase", "written"), [("start", "start"), ("started", "start"), ("end", "end"), ("completed", "end"), ("x", "x")]
)
def test_a_tool_call_starts_or_ends(phase: str, written: str) -> None:
    part = tool_call({TOOL_CALL: {"name": "search", "phase": phase}})
    assert part is not None
    assert part.data == {"name": "search", "phase": written}


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["phase", "mimeType"]), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([TOOL_CALL, "x"]), JSON), JSON, st.sampled_from([None, "application/x+json"]))
def test_whatever_an_agent_says_can_be_written(metadata: dict[str, Any], data: Any, kind: str | None) -> None:
    part = Part(data=data, metadata=metadata, media_type=kind)
    said = Message(message_id="m1", role=Role.AGENT, parts=(part,), metadata=metadata)
    status = TaskStatus(state=TaskState.COMPLETED, timestamp=AT, message=said)
    artifact = Artifact(artifact_id="a1", parts=(part,))
    task = Record(head=HEAD, seq=3, status=status, artifacts=(artifact,), history=(said,))
    json.loads(JSONRPC.encode_result(SendMessage(message=said), task))
    assert JSONRPC.encode_subscription is not None
    for frame in JSONRPC.encode_subscription(task):
        json.loads(frame)
