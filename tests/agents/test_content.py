"""The values that may be yielded or returned, and the parts they become."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import Answer, Artifact, Message, Part, Role
from dragoman.agents.content import TOO_DEEP, json_of, parts_of, readable_json, sound_artifact


@dataclass
class City:
    name: str
    since: datetime


class Point(msgspec.Struct):
    x: int


class Model:
    """Looks like a Pydantic model."""

    def model_dump(self, *, mode: str) -> dict[str, str]:
        return {"mode": mode}


ANSWER = Answer(Message(message_id="m", role=Role.USER, parts=(Part(text="Lyon"),)))

CASES: list[tuple[Any, tuple[Part, ...]]] = [
    ("text", (Part(text="text"),)),
    ({"a": 1}, (Part(data={"a": 1}),)),
    ([1, "two"], (Part(data=[1, "two"]),)),
    ([], (Part(data=[]),)),
    (42, (Part(data=42),)),
    (1.5, (Part(data=1.5),)),
    (False, (Part(data=False),)),
    (None, (Part(data=None),)),
    (2**53, (Part(data=2**53),)),
    (b"\0", (Part(raw=b"\0", media_type="application/octet-stream"),)),
    (bytearray(b"\0"), (Part(raw=b"\0", media_type="application/octet-stream"),)),
    ((b"png", "image/png"), (Part(raw=b"png", media_type="image/png"),)),
    (Part(url="https://example.org/a"), (Part(url="https://example.org/a"),)),
    ((Part(text="a"), Part(data=1)), (Part(text="a"), Part(data=1))),
    (
        ["a", (b"png", "image/png"), {"b": 1}],
        (Part(text="a"), Part(raw=b"png", media_type="image/png"), Part(data={"b": 1})),
    ),
    (Message(message_id="m", role=Role.USER, parts=(Part(text="a"),)), (Part(text="a"),)),
    (City("Lyon", datetime(2026, 1, 1, tzinfo=UTC)), (Part(data={"name": "Lyon", "since": "2026-01-01T00:00:00Z"}),)),
    ([Point(1)], (Part(data=[{"x": 1}]),)),
    ({"model": Model()}, (Part(data={"model": {"mode": "json"}}),)),
    (OrderedDict(a=ANSWER), (Part(data={"a": "Lyon"}),)),
    (ANSWER, (Part(text="Lyon"),)),
    ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", (Part(text="café"),)),
    ("cut \ud83d here", (Part(text="cut ? here"),)),
]


@pytest.mark.parametrize(("content", "parts"), CASES)
def test_content_becomes_parts(content: Any, parts: tuple[Part, ...]) -> None:
    assert parts_of(content) == parts
    assert msgspec.json.encode(parts_of(content))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_json_is_its_own_form(value: Any) -> None:
    assert json_of(value) == value


@pytest.mark.parametrize("content", [object(), {"a": object()}, {(1, 2): 3}])
def test_what_has_no_json_form_is_refused(content: Any) -> None:
    with pytest.raises(TypeError):
        parts_of(content)


@pytest.mark.parametrize(
    "content", [float("nan"), {"a": float("inf")}, 2**53 + 1, [-(2**60)], {"\ud800": 1}, Part(data=["\ud800"])]
)
def test_what_not_every_reader_understands_is_refused(content: Any) -> None:
    with pytest.raises(ValueError, match=r"^(content|part\.data): "):
        parts_of(content)


def test_what_is_nested_too_deeply_or_contains_itself_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(63):
        deep = [deep]
    assert parts_of(deep)[0].data == deep
    itself: dict[str, Any] = {}
    itself["self"] = itself
    for content in ([deep], itself):
        with pytest.raises(ValueError, match="nested deeper than 64 levels"):
            parts_of(content)


def test_the_refusal_names_type_and_fix() -> None:
    with pytest.raises(
        TypeError, match=r"^content: object has no JSON form: give text, a dict, .* a Part or an Artifact$"
    ):
        parts_of(object())


def test_an_artifact_inside_of_content_is_refused() -> None:
    with pytest.raises(TypeError, match=r"ctx\.artifact"):
        parts_of(Artifact(artifact_id="a", parts=(Part(text="a"),)))


@pytest.mark.parametrize("part", [Part(), Part(text="a", url="https://example.org"), Part(raw=b"", data=None)])
def test_a_part_that_does_not_hold_one_thing_is_refused(part: Part) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        parts_of(part)


def test_an_empty_text_is_a_part() -> None:
    assert parts_of(Part(text="")) == (Part(text=""),)


def test_content_shares_nothing_with_what_the_agent_goes_on_to_change() -> None:
    data = {"rows": [1]}
    buffer = bytearray(b"a")
    parts = (*parts_of(data), *parts_of(Part(data=data, metadata=data)), *parts_of(buffer))
    data["rows"].append(2)
    buffer[0] = 0
    assert parts[0].data == parts[1].data == parts[1].metadata == {"rows": [1]}
    assert parts[2].raw == b"a"


def test_labels_go_to_parts_that_have_none() -> None:
    assert parts_of(b"%PDF", media_type="application/pdf", filename="a.pdf") == (
        Part(raw=b"%PDF", media_type="application/pdf", filename="a.pdf"),
    )
    assert parts_of("# A", media_type="text/markdown", filename="a.md") == (
        Part(text="# A", media_type="text/markdown"),
    )
    named = Part(raw=b"", media_type="image/png", filename="b.png")
    assert parts_of(named, media_type="image/gif", filename="c.gif") == (named,)


@pytest.mark.parametrize(
    ("artifact", "fault"),
    [
        (Artifact(artifact_id="", parts=(Part(text="a"),)), "artifact_id"),
        (Artifact(artifact_id="a", parts=()), "no parts"),
        (Artifact(artifact_id="a", parts=(Part(),)), "exactly one"),
    ],
)
def test_an_artifact_that_cannot_be_sent_is_refused(artifact: Artifact, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        sound_artifact(artifact)


def test_metadata_of_an_artifact_is_json() -> None:
    artifact = Artifact(artifact_id="a", parts=(Part(text="a"),), metadata={"at": datetime(2026, 1, 1, tzinfo=UTC)})
    assert sound_artifact(artifact).metadata == {"at": "2026-01-01T00:00:00Z"}


def test_what_a_tool_says_is_made_readable() -> None:
    """Nobody can be asked to say it otherwise: an id of 64 bits is a text."""
    said = {"id": 2**60, "all": [math.nan, {"n": -math.inf}, 1.5, True], "text": "cut \ud83d"}
    assert readable_json(said) == {"id": str(2**60), "all": [None, {"n": None}, 1.5, True], "text": "cut ?"}
    assert readable_json(2**53) == 2**53
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    kept = readable_json(deep)
    assert TOO_DEEP in str(kept)
    assert json_of({"metadata": [kept]})
    itself: list[Any] = []
    itself.append(itself)
    assert readable_json(itself) == TOO_DEEP
    with pytest.raises(TypeError):
        readable_json(object())
