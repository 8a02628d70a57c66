"""Evo AI's frames: how long they may be; its errors outside of JSON-RPC; its headers."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects import jsonrpc, sse
from dragoman.dialects.evoai import JSONRPC
from dragoman.dialects.evoai.errors import http_error
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface
from dragoman.model.errors import (
    A2AError,
    AgentNotFound,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    ParseError,
    TaskNotFound,
    TooManyRequests,
    Unauthorized,
)
from dragoman.model.events import ArtifactChunk, Event, StatusChanged
from dragoman.model.message import Artifact, Part, Role
from dragoman.model.operations import GetExtendedCard, GetPushConfig, PushConfig
from dragoman.model.task import Progress, Record, TaskState, TaskStatus
from tests.kit import values

AT = "2026-11-20T07:00:00.000Z"


HEAD = values.head(
    "0192c7e4-6b1f-7c3a-9d2e-5f4a3b2c1d0e", context_id="c1", dialect="evoai", mount="/api/v1/a2a/a", created_at=AT
)


LONGEST_ID = b'"' + b"i" * (jsonrpc.MAX_ID_BYTES - 2) + b'"'
FRAME_CHARACTERS = 10_000
"""The bytes that the browser client keeps of a frame that has not come whole."""

TEXTS = ["x", "é", "🙂", '"', "\n", "\x01"]
"""From one byte to six for a character, as JSON."""


def record(state: TaskState, *texts: str, progress: Progress | None = None) -> Record:
    artifacts = (values.artifact(text, artifact_id=f"a{n}") for n, text in enumerate(texts))
    return values.record(HEAD, state, *artifacts, at=AT, seq=9, progress=progress)


def frame(event: Event, task: Record | None = None) -> bytes:
    (member,) = JSONRPC.encode_event(HEAD, event, task)
    return sse.frames([("999999999999999", member)], *JSONRPC.around_frame(LONGEST_ID))


def result(sent: bytes) -> Any:
    return json.loads(sent.partition(b"data: ")[2])["result"]


@pytest.mark.parametrize("character", TEXTS)
def test_a_long_text_is_sent_as_far_as_its_end_fits(character: str) -> None:
    text = character * 40_000 + "the end"
    chunk = ArtifactChunk(Artifact(artifact_id="a0", parts=(Part(text="the end"),)), append=True)
    for sent in (
        frame(chunk, record(TaskState.WORKING, text)),
        frame(
            StatusChanged(
                TaskState.WORKING, AT, message=values.say(text, Role.AGENT), progress=Progress(1, 2, "step " + text)
            )
        ),
    ):
        shown = result(sent)["status"]["message"]["parts"][0]["text"]
        assert 5_000 < len(sent) < FRAME_CHARACTERS
        assert text.endswith(shown)
        assert shown.endswith("the end")
        assert sent.count(b"\n") == 3  # the id, the data, the empty line


@given(st.text(max_size=50), st.text(max_size=50), st.integers(1, 400))
def test_no_working_frame_is_too_long(text: str, step: str, times: int) -> None:
    progress = Progress(1, 2, step * times)
    sent = frame(StatusChanged(TaskState.WORKING, AT, message=values.say(text * times, Role.AGENT), progress=progress))
    assert len(sent) < FRAME_CHARACTERS
    member = JSONRPC.encode_snapshot(record(TaskState.WORKING, text * times, progress=progress), None)
    assert len(sse.frames([("999999999999999", member)], *JSONRPC.around_frame(LONGEST_ID))) < FRAME_CHARACTERS


def test_the_last_frame_holds_all_of_a_long_text() -> None:
    text = "x" * 100_000
    sent = frame(StatusChanged(TaskState.COMPLETED, AT), record(TaskState.COMPLETED, text))
    assert result(sent)["status"]["message"]["parts"] == [{"type": "text", "text": text}]


def test_the_last_words_follow_the_artifacts_and_are_not_said_twice() -> None:
    done = StatusChanged(TaskState.COMPLETED, AT, message=values.say("done", Role.AGENT))
    told = record(TaskState.COMPLETED, "report")
    told = msgspec.structs.replace(
        told, status=TaskStatus(state=TaskState.COMPLETED, message=done.message, timestamp=AT)
    )
    assert result(frame(done, told))["status"]["message"]["parts"] == [{"type": "text", "text": "report\ndone"}]
    told = msgspec.structs.replace(told, artifacts=record(TaskState.COMPLETED, "done").artifacts)
    assert result(frame(done, told))["status"]["message"]["parts"] == [{"type": "text", "text": "done"}]


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (Unauthorized("send a key", missing=True), 401, b'{"detail":"API key not provided"}'),
        (Unauthorized("no such key"), 401, b'{"detail":"Invalid API key"}'),
        (AgentNotFound("x"), 404, b'{"detail":"Agent not found"}'),
        (Forbidden("no"), 403, b'{"detail":"no"}'),
        (NotFound("no such path"), 404, b'{"detail":"Not Found"}'),
        (MethodNotAllowed(["POST"]), 405, b'{"detail":"Method Not Allowed"}'),
        (TaskNotFound("t"), 200, None),
        (ParseError("x"), 200, None),
        (TooManyRequests("max_open_tasks", "too many tasks", 3), 429, None),
    ],
)
def test_what_reaches_no_agent_is_an_error_of_http(error: A2AError, status: int, body: bytes | None) -> None:
    assert (JSONRPC.error_status(error), http_error(error)) == (status, body)


def test_the_headers_of_a_stream_are_evo_ais_in_its_order() -> None:
    assert JSONRPC.stream_headers[:3] == (
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-cache"),
        (b"connection", b"keep-alive"),
    )


def test_a_webhook_is_told_without_its_secrets() -> None:
    config = PushConfig(url="https://example.com/h", id="c", task_id="t1", token="t", scheme="Bearer", credentials="s3")
    written = JSONRPC.encode_result(GetPushConfig(task_id="t1"), config)
    assert json.loads(written) == {
        "taskId": "t1",
        "pushNotificationConfig": {
            "id": "c",
            "url": "https://example.com/h",
            "authentication": {"schemes": ["Bearer"]},
        },
    }


def test_the_card_is_that_of_0_3() -> None:
    url = "http://localhost/api/v1/a2a/a"
    card = AgentCard(
        name="A",
        description="d",
        supported_interfaces=(AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="0.3"),),
        version="1",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(),
    )
    assert json.loads(JSONRPC.encode_result(GetExtendedCard(), card))["url"] == url
