"""A reader of BeeOS's frames ends up with the same text, whenever it comes."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.beeos import JSONRPC
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import Record, TaskHead, TaskState

T = "2026-11-20T07:00:00.000Z"
HEAD = TaskHead(id="t", context_id="c", agent="a", owner="o", dialect="beeos", mount="/a", created_at=T)
ASKED = Submitted(Message(message_id="m", role=Role.USER, parts=(Part(text="?"),)), T)


def chunk(key: str, text: str, append: bool, last: bool) -> ArtifactChunk:
    return ArtifactChunk(Artifact(artifact_id=key, parts=(Part(text=text),)), append, last)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Artifacts whole and in chunks, the chunks in between each other, some closed by the end of the task only."""
    queues: list[list[Event]] = []
    for number in range(draw(st.integers(0, 3))):
        texts = draw(st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=4))
        closed = draw(st.booleans())
        key = f"a{number}"
        queues.append([chunk(key, text, at > 0, closed and at == len(texts) - 1) for at, text in enumerate(texts)])
    if draw(st.booleans()):
        queues.append([StatusChanged(TaskState.WORKING, T)])
    events: list[Event] = [ASKED]
    while queues:
        queue = draw(st.sampled_from(queues))
        events.append(queue.pop(0))
        queues = [each for each in queues if each]
    return [*events, StatusChanged(draw(st.sampled_from([TaskState.COMPLETED, TaskState.FAILED])), T)]


def read(log: list[Event], subscribed_at: int) -> tuple[list[dict[str, Any]], Record]:
    """The frames of one who subscribes after so many events (0: who sent the message), and how the task ended."""
    fold = Fold(HEAD)
    frames: list[bytes] = []
    for seq, event in enumerate(log, 1):
        fold.add(seq, event)
        if seq > subscribed_at:
            record = fold.record() if type(event) in JSONRPC.folds else None
            frames += JSONRPC.encode_event(HEAD, event, record)
        elif seq == subscribed_at:
            assert JSONRPC.encode_subscription is not None
            frames += JSONRPC.encode_subscription(fold.record())
    return [json.loads(frame) for frame in frames], fold.record()


def text(content: dict[str, Any]) -> str:
    return "".join(part["text"] for part in content["parts"])


@given(logs(), st.data())
def test_whoever_reads_gets_every_artifact_once_and_whole(log: list[Event], data: st.DataObject) -> None:
    frames, ended = read(log, data.draw(st.integers(0, len(log))))
    expected = {artifact.artifact_id: artifact.parts[0].text for artifact in ended.artifacts}
    wholes = [frame["artifact"] for frame in frames if frame["type"] == "artifact"]
    assert {whole["artifactId"]: text(whole) for whole in wholes} == expected
    assert len(wholes) == len(expected)
    joined: dict[str, str] = {}
    for frame in frames:
        if frame["type"] == "artifact_delta":
            delta = frame["delta"]
            joined[delta["artifactId"]] = joined.get(delta["artifactId"], "") + text(delta)
    assert joined == {key: expected[key] for key in joined}
    assert frames[-1]["type"] == "status"
    assert frames[-1]["status"]["state"] in ("completed", "failed")


def test_a_stream_has_no_envelope() -> None:
    assert JSONRPC.around_frame(b"1") == (b"", b"")
    assert JSONRPC.around_answer(b"1") == (b'{"jsonrpc":"2.0","id":1,"result":', b"}")
