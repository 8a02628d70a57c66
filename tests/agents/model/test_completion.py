"""A model's answer is read the same, however it is cut into pieces."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.model.completion import CALLS_MAX, CompletionParser, Faulted, NoCompletion, fault_in
from dragoman.model.task import Usage
from tests.agents.model.completions import DONE, delta, event, usage


def read(*pieces: bytes) -> CompletionParser:
    reading = CompletionParser()
    for piece in pieces:
        reading.feed(piece)
    reading.end()
    return reading


STREAM = (
    b": hello\n\n"
    + event(delta("", role="assistant"))
    + event(delta("Grüß "))
    + event(delta("dich"))
    + event(
        delta(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}])
    )
    + event(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}]))
    + event(delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]))
    + event(delta(finish="tool_calls"))
    + event(usage())
    + DONE
)


def whole(reading: CompletionParser) -> tuple[Any, ...]:
    calls = [(call.id, call.name, call.arguments) for call in reading.calls]
    return reading.take_text(), calls, reading.finish, reading.usage, reading.whole


AS_A_WHOLE = ("Grüß dich", [("c1", "f", '{"a": 1}')], "tool_calls", Usage(7, 3, 10), True)


@pytest.mark.parametrize(
    ("told", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 5}}, 5),
        ({"prompt_tokens_details": {"cached_tokens": 5.0, "audio_tokens": 1}}, 5),
        ({"prompt_tokens_details": None, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 3}, 4),
        ({"prompt_tokens_details": {}, "cached_tokens": 2}, 2),
        ({"prompt_tokens_details": "none"}, 0),
        ({}, 0),
    ],
)
def test_tokens_of_a_cache_are_read(told: dict[str, Any], cached: int) -> None:
    reading = CompletionParser("m", "eu")
    reading.feed(event({"usage": {"prompt_tokens": 7, "completion_tokens": 3, **told}}))
    assert (reading.usage, reading.usage_fault) == (Usage.of(7, 3, model="m", cached_tokens=cached, upstream="eu"), "")


@pytest.mark.parametrize(
    "told",
    [
        {"prompt_tokens": "many"},
        {"completion_tokens": 1.5},
        {"total_tokens": True},
        {"prompt_tokens": [1]},
        {"prompt_tokens_details": {"cached_tokens": {}}},
        [7, 3],
        "7",
    ],
)
def test_a_report_of_tokens_that_is_none_spoils_no_answer(told: Any) -> None:
    reading = read(event(delta("Hi")) + event({"choices": [], "usage": told}) + event(delta(finish="stop")) + DONE)
    assert (reading.take_text(), reading.whole, reading.usage) == ("Hi", True, Usage.unknown())
    assert reading.usage_fault


def test_more_tokens_of_a_cache_than_went_in_are_none() -> None:
    told = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    reading = read(event({"usage": told}))
    assert (reading.usage, reading.usage_fault) == (Usage.of(7, 3), "it names 8 cached tokens of 7")


def test_a_stream_is_read_byte_by_byte_as_it_is_at_once() -> None:
    assert whole(read(STREAM)) == AS_A_WHOLE
    assert whole(read(*(STREAM[at : at + 1] for at in range(len(STREAM))))) == AS_A_WHOLE


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_how_a_stream_is_cut_changes_nothing(cuts: list[int]) -> None:
    marks = [0, *sorted(cuts), len(STREAM)]
    assert whole(read(*(STREAM[a:b] for a, b in pairwise(marks)))) == AS_A_WHOLE


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(first: bytes, second: bytes) -> None:
    for prefix in (b"", b"data: ", b'data: {"choices":[{"delta":{"content":'):
        try:
            read(prefix + first, second)
        except (NoCompletion, Faulted):
            continue


@pytest.mark.parametrize(
    "stream",
    [
        STREAM.replace(b"data: ", b"data:"),
        STREAM.replace(b"\n", b"\r\n"),
        STREAM.replace(DONE, b""),
        STREAM.replace(b"\n\n", b"\n"),
        STREAM.replace(b"data:", b"event: x\nid: 1\ndata:"),
        STREAM.rstrip(b"\n"),
        b"\xef\xbb\xbf" + STREAM,
        STREAM.replace(b',"choices":[', b',"choices"\ndata: :['),
    ],
    ids=["no-space", "crlf", "no-done", "no-blank-lines", "other-fields", "no-end", "bom", "several-lines"],
)
def test_what_local_servers_do_differently_is_read(stream: bytes) -> None:
    assert whole(read(stream)) == AS_A_WHOLE
    assert whole(read(*(stream[at : at + 1] for at in range(len(stream))))) == AS_A_WHOLE


def test_a_completion_in_place_of_a_stream_is_read() -> None:
    message = {"role": "assistant", "content": "Hello.", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    reading = read(json.dumps(body, indent=1).encode())
    assert whole(reading) == ("Hello.", [("c", "f", "")], "stop", Usage(1, 0, 1), True)


def test_an_answer_that_breaks_off_is_not_whole() -> None:
    assert not read(event(delta("half"))).whole
    assert not read(b"").whole


def test_thoughts_are_no_part_of_the_answer() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]
    reading = read(
        event(delta(reasoning_content="let me see")),
        event(delta(None, reasoning="hm")),
        event({"choices": [{"delta": {"content": parts}}]}),
        event(delta(finish="stop")),
    )
    assert reading.take_text() == "yes"


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        (
            [[{"id": "a", "function": {"name": "f", "arguments": "{}"}}], [{"id": "b", "function": {"name": "f"}}]],
            [("a", "f", "{}"), ("b", "f", "")],
        ),
        (
            [
                [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}],
                [{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}],
            ],
            [("a", "f", "{}"), ("b", "g", "{}")],
        ),
        (
            [
                [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}],
                [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}],
            ],
            [("a", "f", "{}")],
        ),
        (
            [
                [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}],
                [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}}],
                [{"index": 0, "function": {"arguments": "}"}}, {"index": 1, "function": {"arguments": "}"}}],
            ],
            [("a", "f", "{}"), ("b", "g", "{}")],
        ),
        ([[{"function": {"name": "f", "arguments": {"a": 1}}}]], [("", "f", '{"a":1}')]),
    ],
    ids=["no-index", "same-index", "name-again", "in-turns", "object"],
)
def test_calls_of_tools_are_told_apart(deltas: list[list[Any]], calls: list[tuple[str, str, str]]) -> None:
    reading = read(*(event(delta(tool_calls=each)) for each in deltas), DONE)
    assert [(call.id, call.name, call.arguments) for call in reading.calls] == calls


def test_a_model_that_calls_without_end_is_refused() -> None:
    calls = [{"index": at, "id": f"c{at}", "function": {"name": "f"}} for at in range(CALLS_MAX + 1)]
    with pytest.raises(NoCompletion):
        read(event(delta(tool_calls=calls)))


@pytest.mark.parametrize(
    ("error", "message", "code", "status"),
    [
        ({"message": "too fast", "type": "t", "code": "rate_limit_exceeded"}, "too fast", "rate_limit_exceeded", 0),
        ({"message": "bad", "type": "BadRequest", "code": 400}, "bad", "BadRequest", 400),
        ("out of memory", "out of memory", "", 0),
    ],
)
def test_an_error_in_the_middle_is_told(error: Any, message: str, code: str, status: int) -> None:
    with pytest.raises(Faulted) as caught:
        read(event(delta("half")), event({"error": error}))
    assert (caught.value.fault.message, caught.value.fault.code, caught.value.fault.status) == (message, code, status)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"[1]", b'{"error": null}'])
def test_a_refusal_that_says_nothing_has_its_status(body: bytes) -> None:
    assert fault_in(body, 502) == fault_in(b"", 502)


@pytest.mark.parametrize(
    "body", [b'[{"error": {"message": "m", "code": 400}}]', b'{"detail": "m"}', b'{"message": "m"}', b'{"error": "m"}']
)
def test_a_refusal_is_read_in_every_form(body: bytes) -> None:
    assert fault_in(body, 400).message == "m"


def test_half_a_pair_of_surrogates_does_not_end_the_answer() -> None:
    halves = [b'{"choices":[{"delta":{"content":"%b"}}]}' % half for half in (b"\\ud83d", b"\\ude00")]
    first, second = (b"data: " + half + b"\n\n" for half in halves)
    assert read(first, second, DONE).take_text() == "😀"
    reading = CompletionParser()
    reading.feed(first)
    assert reading.take_text() == ""
    reading.feed(second)
    assert reading.take_text() == "😀"
