"""A2A 1.0 answers: what the vectors do not say."""

import json

from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.v1 import JSONRPC, REST
from dragoman.model.events import StatusChanged
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import GetTask
from dragoman.model.task import Progress, Record, TaskHead, TaskState, TaskStatus

NOW = "2026-11-20T07:00:00.000Z"
HEAD = TaskHead(id="t", context_id="c", agent="echo", owner="o", dialect="1.0", mount="/", created_at=NOW)


def record(messages: int) -> Record:
    history = tuple(Message(message_id=str(i), role=Role.USER, parts=(Part(text="a"),)) for i in range(messages))
    return Record(head=HEAD, seq=1, status=TaskStatus(state=TaskState.WORKING, timestamp=NOW), history=history)


@given(st.integers(0, 5), st.none() | st.integers(0, 7))
def test_history_length_keeps_the_newest(messages: int, length: int | None) -> None:
    """A2A 1.0 §3.2.4."""
    ids = [str(i) for i in range(messages)]
    kept = ids if length is None else ids[len(ids) - min(length, len(ids)) :]
    snapshot = json.loads(JSONRPC.encode_snapshot(record(messages), length))["task"]
    got = json.loads(JSONRPC.encode_result(GetTask(id="t", history_length=length), record(messages)))
    assert [message["messageId"] for message in snapshot.get("history", [])] == kept
    assert snapshot == got
    assert bool(kept) == ("history" in snapshot)


def test_bytes_come_back_as_padded_standard_base64() -> None:
    done = Record(
        head=HEAD,
        seq=1,
        status=TaskStatus(state=TaskState.COMPLETED, timestamp=NOW),
        artifacts=(Artifact(artifact_id="a", parts=(Part(raw=b"\xfb\xff\xbf\x00"),)),),
    )
    task = json.loads(JSONRPC.encode_result(GetTask(id="t"), done))
    assert task["artifacts"][0]["parts"] == [{"raw": "+/+/AA=="}]


def test_metadata_of_an_event_is_not_changed_by_encoding_it() -> None:
    metadata: dict[str, object] = {"a": 1}
    event = StatusChanged(TaskState.WORKING, NOW, progress=Progress(1, 2), metadata=metadata)
    JSONRPC.encode_event(HEAD, event, None)
    assert metadata == {"a": 1}


def test_frames_are_one_line_without_control_characters() -> None:
    part = Part(text="a\r\nb\u2028\0")
    event = StatusChanged(TaskState.WORKING, NOW, message=Message(message_id="m", role=Role.AGENT, parts=(part,)))
    (frame,) = JSONRPC.encode_event(HEAD, event, None)
    assert not any(byte < 0x20 for byte in frame)


def test_both_bindings_share_their_frames() -> None:
    assert JSONRPC.key == REST.key
    assert JSONRPC.encode_event is REST.encode_event
    assert not JSONRPC.folds
