"""The bounds of a JSON body: what is refused before it is decoded, and what is let through."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects import json_bounds
from dragoman.model.errors import A2AError, InvalidParams, InvalidRequest, ParseError
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import SendMessage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=30,
)


def depth_of(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case _:
            return 0


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_an_empty_body_is_a_parse_error() -> None:
    with pytest.raises(ParseError, match="empty"):
        json_bounds.check(b"")


@pytest.mark.parametrize("body", [b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'{"\xc0\xaf": 1}'])
def test_a_body_that_is_not_utf8_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError, match="UTF-8"):
        json_bounds.check(body)


def test_nesting_is_allowed_up_to_the_limit_and_not_beyond() -> None:
    json_bounds.check(nested(64), max_depth=64)
    with pytest.raises(InvalidRequest, match="64 levels"):
        json_bounds.check(nested(65), max_depth=64)


def test_brackets_in_strings_are_not_nesting() -> None:
    json_bounds.check(json.dumps({"a": "[" * 1000, "b": '\\"[[' * 100, "c": "\\" * 7}).encode(), max_depth=8)


def test_many_shallow_values_are_not_nesting() -> None:
    json_bounds.check(json.dumps([{"a": []}] * 25_000).encode(), max_depth=8)


def test_ten_megabytes_of_brackets_are_refused() -> None:
    for body in (b"[" * 10_000_000, b'{"a":' * 2_000_000, b"[]," * 3_300_000):
        with pytest.raises(InvalidRequest):
            json_bounds.check(body)


@pytest.mark.parametrize(
    "value",
    [
        [{}] * 101,
        [1] * 101,
        ["ab"] * 101,
        [[]] * 101,
        {str(number): number for number in range(51)},
        [{"a": 1}] * 34,
        {"a": {"b": [None] * 101}},
    ],
)
def test_a_body_of_too_many_values_is_refused_and_the_limit_named(value: object) -> None:
    body = json.dumps(value).encode()
    with pytest.raises(InvalidRequest, match=r"more than 100 values \(max_values\)"):
        json_bounds.check(body, max_values=100)
    json_bounds.check(body, max_values=210)


def values_in(value: object) -> int:
    match value:
        case list():
            return 1 + sum(map(values_in, value))
        case dict():
            return 1 + len(value) + sum(map(values_in, value.values()))
        case _:
            return 1


@example([None, None, [], []], 5)
@given(JSON, st.integers(1, 40))
def test_what_passes_has_no_more_values_than_are_allowed(value: object, max_values: int) -> None:
    """Each is counted by its bracket and by the comma or colon beside it, which a first one lacks. So nothing counts
    more than twice, and whatever an array begins with counts as the array does."""
    body = json.dumps(value, ensure_ascii=False).encode("utf-8")
    try:
        json_bounds.check(body, max_values=max_values)
    except InvalidRequest:
        assert 2 * values_in(value) > max_values
    else:
        assert values_in(value) <= 2 * max_values + 1


def test_commas_in_strings_are_no_values() -> None:
    json_bounds.check(json.dumps({"a": ",:" * 100_000, "b": '\\",:[' * 50_000}).encode(), max_values=10)


@pytest.mark.parametrize("escape", [r"\"", r"\u00e9", r"\\"])
def test_a_body_of_too_many_escapes_is_refused_and_the_fix_named(escape: str) -> None:
    enough = json_bounds.MAX_ESCAPES // escape.count("\\")
    body = b'{"text": "%s"}'
    json_bounds.check(body % (escape * enough).encode())
    with pytest.raises(InvalidRequest, match="more than 3000000 escapes: send its text as UTF-8"):
        json_bounds.check(body % (escape * (enough + 1)).encode())


@pytest.mark.parametrize("pad", range(4))
def test_an_escape_across_two_chunks_is_one(pad: int) -> None:
    text = "x" * (65_530 + pad) + '\\"' * 40_000 + "," * 500
    body = json.dumps([text, {"a": [text]}]).encode()
    json_bounds.check(body, max_depth=3, max_values=10)
    with pytest.raises(InvalidRequest, match="max_depth"):
        json_bounds.check(body.replace(b'"a"', b'"a":[[["b"]]],"c"'), max_depth=3)


@given(JSON, st.integers(1, 6))
def test_the_depth_that_is_checked_is_that_of_the_value(value: object, max_depth: int) -> None:
    body = json.dumps(value, ensure_ascii=False).encode("utf-8")
    try:
        json_bounds.check(body, max_depth=max_depth)
    except InvalidRequest:
        assert depth_of(value) > max_depth
    else:
        assert depth_of(value) <= max_depth


@pytest.mark.parametrize("inner_first", [True, False])
def test_the_depth_is_followed_across_the_chunks_of_a_long_body(inner_first: bool) -> None:
    value: object = "x" * 70_000
    for level in range(10):
        text = "[" * 30_000 + '"' * level
        value = [value, text] if inner_first else [text, value]
    body = json.dumps(value).encode()
    json_bounds.check(body, max_depth=10)
    with pytest.raises(InvalidRequest):
        json_bounds.check(body, max_depth=9)


@given(st.binary(max_size=200), st.integers(1, 4))
def test_any_bytes_pass_or_raise_an_a2a_error(body: bytes, max_depth: int) -> None:
    try:
        json_bounds.check(body, max_depth=max_depth)
    except A2AError:
        pass


def test_a_message_of_too_many_parts_is_refused() -> None:
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="a"),) * 3)
    json_bounds.check_parts(message, 3)
    with pytest.raises(InvalidParams, match="at most 2 parts"):
        json_bounds.check_parts(message, 2)


LONG = "x" * 11


@pytest.mark.parametrize(
    ("field", "part"),
    [
        ("text", Part(text=LONG)),
        ("url", Part(url=LONG)),
        ("filename", Part(raw=b"", filename=LONG)),
        ("mediaType", Part(text="", media_type=LONG)),
        ("data", Part(data=LONG)),
        ("data", Part(data=[1, {"a": [None, LONG]}])),
        ("data", Part(data={"a": {LONG: 1}})),
        ("metadata", Part(text="", metadata={"a": LONG})),
    ],
)
def test_a_text_that_is_too_long_is_refused_by_its_name(field: str, part: Part) -> None:
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="ok"), part))
    json_bounds.check_parts(message, 2, 11)
    with pytest.raises(InvalidParams, match=rf"^message\.parts\[1\]\.{field}: .* at most 10 characters \(max_text\)$"):
        json_bounds.check_parts(message, 2, 10)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("messageId", {"message_id": LONG}),
        ("contextId", {"context_id": LONG}),
        ("metadata", {"metadata": {"a": LONG}}),
        ("extensions", {"extensions": ("ok", LONG)}),
        ("referenceTaskIds", {"reference_task_ids": (LONG,)}),
    ],
)
def test_what_is_around_the_parts_is_bounded_too(field: str, said: dict[str, Any]) -> None:
    message = Message(**{"message_id": "m", "role": Role.USER, "parts": (Part(text="ok"),)} | said)
    json_bounds.check_parts(message, 1, 11)
    with pytest.raises(InvalidParams, match=rf"^message\.{field}: "):
        json_bounds.check_parts(message, 1, 10)


def test_what_is_around_the_message_is_bounded_too() -> None:
    """The conversation before it, as Evo AI's clients and those of chat completions send it, and the metadata."""
    said = Message(message_id="m", role=Role.USER, parts=(Part(text="ok"),))
    fits = SendMessage(message=said, earlier=(said, said), metadata={"a": "x" * 10})
    json_bounds.check_sent(fits, 1, 10)
    for field, sent in (
        ("metadata", replace(fits, metadata={"a": [LONG]})),
        ("history[1].parts[0].text", replace(fits, earlier=(said, replace(said, parts=(Part(text=LONG),))))),
        ("history[0].parts", replace(fits, earlier=(replace(said, parts=said.parts * 2),))),
        ("message.parts", replace(fits, message=replace(said, parts=said.parts * 2))),
    ):
        with pytest.raises(InvalidParams) as refused:
            json_bounds.check_sent(sent, 1, 10)
        assert refused.value.violations[0][0] == field


def test_the_bytes_of_a_file_are_not_text() -> None:
    json_bounds.check_parts(Message(message_id="m", role=Role.USER, parts=(Part(raw=b"x" * 100),)), 1, 10)


def longest(value: object) -> int:
    match value:
        case str():
            return len(value)
        case list():
            return max(map(longest, value), default=0)
        case dict():
            return max(map(longest, (*value, *value.values())), default=0)
        case _:
            return 0


@given(JSON | st.text(alphabet='\\"\n\x1fxé'), st.integers(0, 5))
def test_the_length_that_is_checked_is_that_of_the_longest_string(value: object, max_text: int) -> None:
    message = Message(message_id="", role=Role.USER, parts=(Part(data=value),))
    try:
        json_bounds.check_parts(message, 1, max_text)
    except InvalidParams:
        assert longest(value) > max_text
    else:
        assert longest(value) <= max_text


def test_a_request_may_hold_more_than_eight_megabytes_only_in_files() -> None:
    """Everything but files is copied in one piece several times, and nobody else is answered meanwhile."""
    file = Part(raw=b"x" * 3_000_000)  # 4,000,000 bytes in base64
    sent = SendMessage(message=Message(message_id="m", role=Role.USER, parts=(Part(text="hi"), file)))
    beside = json_bounds.MAX_SENT_BYTES
    json_bounds.check_size(sent, beside + 4_000_000)
    with pytest.raises(InvalidParams, match="a request may hold 8388608 bytes beside its files"):
        json_bounds.check_size(sent, beside + 4_000_001)
    in_history = SendMessage(message=replace(sent.message, parts=(Part(text="hi"),)), earlier=(sent.message,))
    json_bounds.check_size(in_history, beside + 4_000_000)
    json_bounds.check_size(sent, beside + 4_000_001, max_text=beside)  # a text of `max_text` always fits


def test_a_text_that_is_too_long_is_refused_before_it_is_decoded() -> None:
    """Bytes beyond ASCII are no base64, so they count against what a request may hold beside its files."""
    wide = json.dumps({"text": "é€" * 10, "raw": "QUJD" * 100}, ensure_ascii=False).encode()
    json_bounds.check(wide, max_wide=50)
    with pytest.raises(InvalidParams, match="a request may hold 49 bytes beside its files"):
        json_bounds.check(wide, max_wide=49)
    json_bounds.check(b'"%s"' % (b"x" * 100), max_wide=1)
