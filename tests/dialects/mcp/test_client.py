"""Answers of MCP servers are read: cases from the specification, and any bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.mcp import client, outcomes
from dragoman.dialects.mcp.client import (
    Fault,
    ServerNotification,
    ServerRequest,
    ServerResponse,
    ToolOffer,
    ToolPage,
    decode_messages,
)
from dragoman.model.errors import InvalidAgentResponse
from dragoman.model.message import Part


def said(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def test_an_answer_has_its_id_and_its_result() -> None:
    assert decode_messages(said(id=7, result={"a": 1})) == (ServerResponse(7, b'{"a": 1}'),)
    assert decode_messages(said(id="7", result={})) == (ServerResponse(7, b"{}"),), "some send a number back as text"


def test_an_error_is_an_answer() -> None:
    (answer,) = decode_messages(said(id=7, error={"code": -32602, "message": "no such tool", "data": 1}))
    assert answer == ServerResponse(7, fault=Fault(-32602, "no such tool"))


def test_a_request_of_the_server_keeps_its_id_as_it_came() -> None:
    assert decode_messages(said(id="a-1", method="ping")) == (ServerRequest(b'"a-1"', "ping"),)
    assert json.loads(client.declined(b'"a-1"', "roots/list"))["id"] == "a-1"
    assert json.loads(client.pong(b"3")) == {"jsonrpc": "2.0", "id": 3, "result": {}}


def test_a_notification_has_params() -> None:
    method = "notifications/progress"
    (notification,) = decode_messages(
        said(method=method, params={"progressToken": 4, "progress": 1, "total": 3, "message": "m"})
    )
    assert isinstance(notification, ServerNotification)
    progress = client.decode_progress(notification.params)
    assert progress is not None
    assert (progress.id, progress.steps, progress.message) == (4, (1, 3), "m")


def test_a_batch_is_several_messages() -> None:
    assert len(decode_messages(b"[" + said(method="a") + b"," + said(id=1, result={}) + b"]")) == 2


@pytest.mark.parametrize(
    ("progress", "total", "steps"),
    [
        (1, 3, (1, 3)),
        (0.5, 1, (50, 100)),
        (9, 3, (3, 3)),
        (1, None, None),
        (1, 0, None),
        (-1, 3, None),
        (1, 1e300, None),
    ],
)
def test_progress_becomes_whole_steps(progress: float, total: float | None, steps: tuple[int, int] | None) -> None:
    assert client.ToolProgress(1, progress, total).steps == steps


def test_progress_of_no_request_of_ours_is_none() -> None:
    assert client.decode_progress(b'{"progressToken":"x","progress":1}') is None


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
def test_a_known_version_is_agreed_on(version: str) -> None:
    result = {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "n", "version": "1"},
    }
    opened = client.decode_initialize_result(json.dumps(result).encode())
    assert (opened.version, opened.server, opened.changes, opened.tools) == (version, "n 1", True, True)


def test_another_version_is_refused_with_those_that_are_spoken() -> None:
    with pytest.raises(InvalidAgentResponse, match=r"2024-11-05.*2025-06-18"):
        client.decode_initialize_result(b'{"protocolVersion":"2024-11-05","capabilities":{}}')


def test_tools_come_in_pages() -> None:
    result = {
        "tools": [
            {"name": "a", "title": "A", "inputSchema": {"type": "object"}},
            {"name": "b", "description": "B", "inputSchema": {}, "annotations": {"destructiveHint": True}},
        ],
        "nextCursor": "2",
    }
    offers = (ToolOffer("a", "A", {"type": "object"}), ToolOffer("b", "B", {}, harmful_twice=True))
    assert client.decode_page(json.dumps(result).encode()) == ToolPage(offers, "2")


@pytest.mark.parametrize(
    ("hints", "harmful"),
    [
        ({}, False),
        ({"destructiveHint": False}, False),
        ({"destructiveHint": True}, True),
        ({"destructiveHint": True, "idempotentHint": False}, True),
        ({"destructiveHint": True, "idempotentHint": True}, False),
        ({"destructiveHint": True, "readOnlyHint": True}, False),
    ],
)
def test_a_second_call_may_do_harm_if_the_server_says_destructive_and_not_idempotent(
    hints: dict[str, bool], harmful: bool
) -> None:
    result = {"tools": [{"name": "a", "inputSchema": {}, "annotations": hints}]}
    (offer,) = client.decode_page(json.dumps(result).encode()).tools
    assert offer.harmful_twice is harmful


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (text("t"), Part(text="t")),
        ({"type": "image", "data": "AAE", "mimeType": "image/png"}, Part(raw=b"\0\1", media_type="image/png")),
        ({"type": "audio", "data": "AAE=", "mimeType": "audio/wav"}, Part(raw=b"\0\1", media_type="audio/wav")),
        ({"type": "resource", "resource": {"uri": "x:y", "text": "t"}}, Part(text="t", filename="x:y")),
        (
            {"type": "resource", "resource": {"uri": "x:y", "blob": "AAE="}},
            Part(raw=b"\0\1", media_type="application/octet-stream", filename="x:y"),
        ),
        ({"type": "resource_link", "uri": "https://h", "name": "n"}, Part(url="https://h", filename="n")),
        ({"type": "video", "data": 1}, Part(data={"type": "video", "data": 1})),
    ],
)
def test_every_kind_of_content_becomes_a_part(block: dict[str, Any], part: Part) -> None:
    assert outcomes.decode_outcome(json.dumps({"content": [block]}).encode()) == outcomes.ToolOutcome((part,))


@pytest.mark.parametrize(
    ("texts", "structured", "kept"),
    [
        ([], {"a": 1}, True),
        (['{ "a": 1 }'], {"a": 1}, False),
        (["one"], {"a": 1}, True),
        (["3"], {"result": 3}, False),
        (["x"], {"result": "x"}, False),
        (["x"], {"content": "x"}, False),
        (["1"], {"count": 1}, True),
        (["1", "2"], {"result": [1, 2]}, False),
        (["[1, 2]"], {"result": [1, 2]}, False),
        (["1"], {"result": [1, 2]}, True),
    ],
)
def test_structured_content_is_kept_unless_a_text_says_it(texts: list[str], structured: Any, kept: bool) -> None:
    result = {"content": [text(words) for words in texts], "structuredContent": structured}
    parts = outcomes.decode_outcome(json.dumps(result).encode()).parts
    assert [part.text for part in parts if part.text is not None] == texts
    assert [part.data for part in parts if part.text is None] == ([structured] if kept else [])


def test_a_file_that_cannot_be_read_is_told_of() -> None:
    result = outcomes.decode_outcome(b'{"content":[{"type":"image","data":"???","mimeType":"image/png"}]}')
    assert "image/png" in result.text


def test_a_tool_says_that_it_failed() -> None:
    assert outcomes.decode_outcome(b'{"content":[{"type":"text","text":"no"}],"isError":true}').failed


KEYS = ("id", "method", "params", "result", "error", "code", "content", "type", "text", "tools", "name", "progress")
MESSAGES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner),
)


@given(st.binary() | MESSAGES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for read in (
        decode_messages,
        client.decode_progress,
        client.decode_initialize_result,
        client.decode_page,
        outcomes.decode_outcome,
    ):
        try:
            read(body)  # type: ignore[operator]
        except InvalidAgentResponse:
            pass
