"""Frames that are alike: whether a mould is used or not, what a frame tells is what the dialect reads in it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.mould import LEARNED_MAX, Mould
from dragoman.dialects.sse import ServerSentEvent
from dragoman.dialects.v1.hear import read_event
from dragoman.model.updates import ArtifactUpdate, Update


class Counted:
    """The dialect's own reading, and how often it was asked for."""

    def __init__(self) -> None:
        self.frames: list[str] = []

    def __call__(self, data: str) -> Update | None:
        self.frames.append(data)
        return read_event(data, 7)


def chunk(text: str, *, artifact_id: str = "answer", ascii_only: bool = True, **more: Any) -> str:
    artifact = {"artifactId": artifact_id, "name": "Answer", "parts": [{"text": text}]}
    update = {"taskId": "t", "contextId": "c", "artifact": artifact, "append": True, **more}
    result = {"artifactUpdate": update}
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}, ensure_ascii=ascii_only)


def read(mould: Mould, *frames: str) -> list[Update | None]:
    return [mould.read(ServerSentEvent(frame)) for frame in frames]


@given(st.lists(st.text(), min_size=1, max_size=20), st.booleans())
def test_each_text_comes_as_it_is(texts: list[str], ascii_only: bool) -> None:
    frames = [chunk(text, ascii_only=ascii_only) for text in texts]
    assert read(Mould(Counted()), *frames) == [read_event(frame, 7) for frame in frames]


def test_frames_that_are_alike_are_read_by_the_dialect_once() -> None:
    counted = Counted()
    updates = read(Mould(counted), chunk("one"), *[chunk(f'"\\ {number}\n') for number in range(50)])
    assert [each.artifact.parts[0].text for each in updates if isinstance(each, ArtifactUpdate)][-1] == '"\\ 49\n'
    assert len(counted.frames) == 2, "the first one, and what tries the mould"


@pytest.mark.parametrize(
    "frame",
    [
        chunk("two", artifact_id="other"),
        chunk("two", append=False),
        chunk("two", lastChunk=True),
        chunk("two", metadata={"more": [1]}),
        chunk("two").replace('"id": 7', '"id": 8'),
        chunk("two").replace('"two"', "two"),
        chunk("two").replace('"two"', "2"),
        chunk("two").replace('"two"', "null"),
        chunk("two").replace('"two"', '"two'),
        chunk("two").replace('"two"', '"two", "url": "http://x"'),
        chunk("two").replace('"two"', '"two"}, {"text": "three"'),
        chunk("two").replace('"two"', '"\\ud800"'),
        chunk("two").replace('"two"', '"\n"'),
        chunk("two").replace('"two"', ""),
        chunk("two") + "}",
        "",
    ],
)
def test_a_frame_that_is_not_alike_is_read_by_the_dialect(frame: str) -> None:
    assert read(Mould(Counted()), chunk("one"), frame)[1] == read_event(frame, 7)


@pytest.mark.parametrize(
    "first",
    [
        chunk("answer"),
        chunk('"answer"'),
        chunk("one").replace('"parts"', '"more": "\\"one", "parts"'),
        chunk("one").replace('"one"', '"\\u006fne"').replace('"name"', '"one": "one", "name"'),
        chunk("one").replace('"text": "one"', '"text": "one", "text": "one"'),
        chunk("one").replace('"text": "one"', '"text": "one", "filename": "one"'),
        chunk("one").replace('"append"', '"extensions": ["one"], "append"'),
    ],
)
def test_a_text_that_stands_there_more_than_once_is_not_mistaken(first: str) -> None:
    frames = [first, first.replace("one", "two"), first.replace('"answer"', '"x"'), chunk("three")]
    assert read(Mould(Counted()), *frames) == [read_event(frame, 7) for frame in frames]


def test_an_event_of_another_name_is_not_read() -> None:
    mould = Mould(Counted())
    read(mould, chunk("one"))
    assert mould.read(ServerSentEvent(chunk("two"), "error")) is None


def test_a_stream_in_which_no_frame_is_like_another_is_tried_so_often_only() -> None:
    counted = Counted()
    read(Mould(counted), *[chunk("one", metadata=None, taskId=f"t{number}") for number in range(100)])
    assert len(counted.frames) == 100 + LEARNED_MAX
