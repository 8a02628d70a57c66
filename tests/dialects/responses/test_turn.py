"""The turns of a task, as the events of a stream and as the responses that these add up to."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects.responses.objects import ResponseId, read_response_id
from dragoman.dialects.responses.turn import ResponseTurn, first_turn
from dragoman.model.events import ArtifactChunk, Event, Logged, MessageReceived, StatusChanged, Submitted
from dragoman.model.lifecycle import fold
from dragoman.model.message import Artifact, Part, Role
from dragoman.model.task import TaskHead, TaskState, Usage
from tests.kit.values import AT, chunk, head, say

LATER = "2026-11-20T07:00:09.000Z"
WORKING = StatusChanged(TaskState.WORKING, AT)
CANCELED = StatusChanged(TaskState.CANCELED, AT)
DONE = StatusChanged(TaskState.COMPLETED, LATER)
HEAD = head(metadata={"colour": "blue", "openai": {"background": True, "instructions": "Be brief."}})


def asks(text: str) -> StatusChanged:
    return StatusChanged(TaskState.INPUT_REQUIRED, AT, say(text, Role.AGENT))


def answers(text: str) -> list[Event]:
    return [MessageReceived(say(text), AT, {"openai": {"store": False}}), WORKING]


def begin(*events: Event) -> list[Event]:
    return [Submitted(say("Go"), AT), WORKING, *events]


def whole(text: str, artifact_id: str = "a") -> ArtifactChunk:
    return chunk(text, artifact_id=artifact_id, append=False, last=True)


def streamed(log: Iterable[Event], number: int = 1, of: TaskHead = HEAD) -> list[dict[str, Any]]:
    """The events of a turn. Their frames are named as they are typed."""
    turn, events = ResponseTurn(of, number), []
    for event in log:
        for frame in turn.add_event(event):
            name, data, end, after = frame.decode().split("\n")
            assert (end, after) == ("", "")
            decoded = json.loads(data.removeprefix("data: "))
            assert name == f"event: {decoded['type']}"
            events.append(decoded)
    assert [event["sequence_number"] for event in events] == [*range(turn.sequence)]
    return events


def response(log: Iterable[Event], number: int = 1, of: TaskHead = HEAD) -> Any:
    """The response of a turn, as it is read."""
    turn = ResponseTurn(of, number, quiet=True)
    for event in log:
        assert turn.add_event(event) == []
    return json.loads(msgspec.json.encode(turn.response()))


def added_up(events: Sequence[dict[str, Any]]) -> list[Any]:
    """The output that a client has who adds up the events of a stream, each of which must fit the ones before it."""
    items: list[Any] = []
    for event in events:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(items)
                assert event["item"]["status"] == "in_progress"
                items.append(event["item"])
            case "content_part.added":
                item = items[event["output_index"]]
                assert (item["id"], item["content"]) == (event["item_id"], [])
                item["content"].append(event["part"])
            case "output_text.delta":
                item = items[event["output_index"]]
                assert (item["id"], item["status"]) == (event["item_id"], "in_progress")
                assert event["delta"]
                item["content"][0]["text"] += event["delta"]
            case "output_text.done":
                assert items[event["output_index"]]["content"][0]["text"] == event["text"]
            case "content_part.done":
                assert items[event["output_index"]]["content"][0] == event["part"]
            case "output_item.done":
                item = items[event["output_index"]]
                assert item["status"] == "in_progress"
                if item["type"] == "message":
                    assert event["item"] == {**item, "status": event["item"]["status"]}
                items[event["output_index"]] = event["item"]
            case _:
                assert "response" in event
    return items


def texts(log: Iterable[Event], number: int = 1) -> list[tuple[str, str]]:
    """The items of a turn: the status and the text of each."""
    log = list(log)
    output = response(log, number)["output"]
    assert added_up(streamed(log, number)) == output
    return [(item["status"], item["content"][0]["text"]) for item in output]


def test_a_turn_has_the_events_of_a_text() -> None:
    events = streamed(begin(chunk("Hel", append=False), chunk("lo"), DONE))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[0]["response"] == events[1]["response"]
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    assert events[-1]["response"] == response(begin(chunk("Hel", append=False), chunk("lo"), DONE))


def test_a_response_repeats_its_request() -> None:
    told = response(begin(whole("Hello"), DONE))
    assert (told["id"], told["model"], told["object"]) == ("resp_t_1", "agent", "response")
    assert (told["background"], told["instructions"], told["metadata"]) == (True, "Be brief.", {"colour": "blue"})
    assert (told["status"], told["completed_at"] - told["created_at"]) == ("completed", 9)


@pytest.mark.parametrize(
    ("log", "items"),
    [
        ([whole("one", "a"), whole("two", "b"), DONE], [("completed", "one\n\ntwo")]),
        ([chunk("a1", append=False), whole("b", "b"), chunk("a2"), DONE], [("completed", "a1\n\nb\n\na2")]),
        ([StatusChanged(TaskState.COMPLETED, AT, say("That is all"))], [("completed", "That is all")]),
        ([whole("Text"), StatusChanged(TaskState.COMPLETED, AT, say("Not said"))], [("completed", "Text")]),
        ([whole("See. "), asks("Where?")], [("completed", "See. \n\nWhere?")]),
        ([asks("Where?")], [("completed", "Where?")]),
        ([DONE], []),
        ([whole("So far"), StatusChanged(TaskState.FAILED, AT)], [("incomplete", "So far")]),
        # A second attempt that says the same, and goes on.
        ([chunk("abc", append=False), chunk("abc", append=False), chunk("de"), DONE], [("completed", "abcde")]),
        ([chunk("abc", append=False), chunk("ab", append=False), chunk("cde"), DONE], [("completed", "abcde")]),
        ([chunk("abc", append=False), chunk("abcde", append=False), DONE], [("completed", "abcde")]),
        # One that differs, from the first character on, later, or by its end.
        (
            [chunk("abc", append=False), chunk("x", append=False), chunk("y"), DONE],
            [("incomplete", "abc"), ("completed", "xy")],
        ),
        (
            [chunk("abc", append=False), chunk("a", append=False), chunk("x"), DONE],
            [("incomplete", "abc"), ("completed", "ax")],
        ),
        ([chunk("abc", append=False), chunk("ab", append=False), DONE], [("incomplete", "abc"), ("completed", "ab")]),
        ([chunk("abc", append=False), chunk("", append=False), DONE], [("incomplete", "abc")]),
        ([chunk("abc", append=False), chunk("ab", append=False), CANCELED], [("incomplete", "abc")]),
        # The other artifacts stay, and the one that is written comes last.
        (
            [chunk("abc", append=False), whole("b", "b"), chunk("x", append=False), chunk("y"), DONE],
            [("incomplete", "abc\n\nb"), ("completed", "b\n\nxy")],
        ),
    ],
)  # fmt: skip
def test_text_is_sent_once(log: list[Event], items: list[tuple[str, str]]) -> None:
    assert texts(begin(*log)) == items


def test_each_turn_begins_with_an_answer_and_has_what_came_after() -> None:
    usage = StatusChanged(TaskState.WORKING, AT, usage=Usage.of(3, 4))
    end = StatusChanged(TaskState.COMPLETED, AT, usage=Usage.of(5, 10))
    more = [chunk("First. ", append=False), usage, asks("Where?"), *answers("Lyon"), chunk("Second."), end]
    log = begin(*more)
    assert texts(log, 1) == [("completed", "First. \n\nWhere?")]
    assert texts(log, 2) == [("completed", "Second.")]
    first, second = response(log, 1), response(log, 2)
    assert (first["metadata"]["dragoman_task_state"], first["usage"]["output_tokens"]) == ("input-required", 4)
    assert (second["metadata"], second["usage"]["output_tokens"], _turn(log, 2).facts.stored) == ({}, 6, False)
    assert not streamed(log, 3)
    assert [item.content for item in _turn(log, 2).encode_inputs()] == [[{"type": "input_text", "text": "Lyon"}]]


def test_a_run_that_repeats_an_earlier_turn_sends_nothing_of_it() -> None:
    log = begin(chunk("First. ", append=False), asks("Where?"), *answers("Lyon"))
    assert texts([*log, chunk("First. ", append=False), chunk("Second."), DONE], 2) == [("completed", "Second.")]
    assert texts([*log, chunk("First. Second.", append=False), DONE], 2) == [("completed", "Second.")]
    assert texts([*log, chunk("Fir", append=False), chunk("e."), DONE], 2) == [("completed", "Fire.")]


def test_what_a_turn_says_never_changes() -> None:
    log = begin(whole("See. "), asks("Where?"))
    asked = response(log)
    after = [*log, *answers("Lyon"), whole("Other"), asks("Why?"), StatusChanged(TaskState.CANCELED, LATER)]
    assert response(after) == asked
    assert response([*log, StatusChanged(TaskState.CANCELED, LATER)]) == asked


@pytest.mark.parametrize(
    ("end", "event", "status", "code"),
    [
        (StatusChanged(TaskState.FAILED, AT, say("No luck", Role.AGENT)), "failed", "failed", "server_error"),
        (StatusChanged(TaskState.REJECTED, AT, say("Not that", Role.AGENT)), "failed", "failed", "invalid_prompt"),
        (StatusChanged(TaskState.CANCELED, AT), "incomplete", "cancelled", None),
    ],
)
def test_an_end_without_success_is_told(end: StatusChanged, event: str, status: str, code: str | None) -> None:
    last = streamed(begin(end))[-1]
    told = last["response"]
    assert (last["type"], told["status"]) == (f"response.{event}", status)
    assert (told["error"] or {}).get("code") == code
    if end.message is not None:
        assert told["error"]["message"] == end.message.text


def test_an_answer_that_was_cut_off_is_incomplete() -> None:
    cut = say("cut off", Role.AGENT, metadata={"reason": "model_length"})
    log = begin(whole("So far"), StatusChanged(TaskState.COMPLETED, AT, cut))
    told = response(log)
    assert (told["status"], told["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert texts(log) == [("incomplete", "So far")]


def test_images_are_items_beside_the_text() -> None:
    image = Part(raw=b"png", media_type="image/png")
    pieces = [Artifact(artifact_id="a", parts=(part,)) for part in (Part(text="See "), image, Part(text="this"))]
    first, *rest = (ArtifactChunk(piece, append=at > 0) for at, piece in enumerate(pieces))
    log = begin(first, *rest, DONE)
    told = response(log)["output"]
    assert [item["type"] for item in told] == ["message", "image_generation_call"]
    assert (told[0]["content"][0]["text"], told[1]["result"]) == ("See this", "cG5n")
    assert added_up(streamed(log)) == told
    again = begin(first, *rest, first, *rest, DONE)
    assert response([*again[:5], ArtifactChunk(pieces[0]), *again[6:]])["output"] == told  # a second attempt


def _turn(log: Iterable[Event], number: int) -> ResponseTurn:
    turn = ResponseTurn(HEAD, number)
    for event in log:
        turn.add_event(event)
    return turn


# -- any log -----------------------------------------------------------------------------------------------------------

PIECES = st.text(alphabet="ab", max_size=3)
CHUNKS = st.builds(
    lambda text, key, append, last: chunk(text, artifact_id=key, append=append, last=last),
    PIECES,
    st.sampled_from("xy"),
    st.booleans(),
    st.booleans(),
)
ENDS = st.sampled_from([TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED])
ASKED = st.builds(lambda text: [asks(text), *answers("A")], PIECES)
REPORTS = st.builds(lambda text: [StatusChanged(TaskState.WORKING, AT, say(text, Role.AGENT))], PIECES)
WORDS = CHUNKS.map(lambda each: [each]) | ASKED | REPORTS
LOGS = st.builds(
    lambda words, end: begin(*(event for each in words for event in each), StatusChanged(end, LATER)),
    st.lists(WORDS, max_size=8),
    ENDS,
)


@given(LOGS)
def test_the_events_of_any_turn_add_up_to_its_response(log: list[Event]) -> None:
    turns = 1 + sum(isinstance(event, MessageReceived) for event in log)
    for number in range(1, turns + 1):
        events = streamed(log, number)
        assert events[-1]["response"] == response(log, number)
        assert added_up(events) == events[-1]["response"]["output"]
        if events[-1]["type"] == "response.completed":
            done = [item for item in events[-1]["response"]["output"] if item["status"] == "completed"]
            assert len(done) <= 1


@given(LOGS)
def test_a_turn_goes_on_from_the_one_before_as_from_the_beginning(log: list[Event]) -> None:
    turns = 1 + sum(isinstance(event, MessageReceived) for event in log)
    for number in range(2, turns + 1):
        turn: ResponseTurn | None = ResponseTurn(HEAD, number - 1)
        frames: list[bytes] = []
        for event in log:
            assert turn is not None
            if turn.number < number and turn.over:
                turn = turn.following()
            frames += turn.add_event(event) if turn.number == number else turn.add_event(event)[:0]
        assert [json.loads(frame.split(b"data: ")[1]) for frame in frames] == streamed(log, number)


@given(LOGS, st.data())
def test_the_record_tells_the_first_turn_as_the_log_does_or_not_at_all(log: list[Event], data: st.DataObject) -> None:
    said = log[: data.draw(st.integers(1, len(log)))]
    record = fold(HEAD, None, [Logged(seq, event) for seq, event in enumerate(said, 1)])
    turn = first_turn(record)
    if turn is not None:
        assert json.loads(msgspec.json.encode(turn.response())) == response(said)


def test_a_record_of_an_earlier_program_is_not_told_as_one_turn() -> None:
    """It does not keep that the task was revised: then its history has the question."""
    log = begin(asks("Where?"), *answers("here"), whole("a"), DONE)
    record = fold(HEAD, None, [Logged(seq, event) for seq, event in enumerate(log, 1)])
    assert first_turn(replace(record, revised=False)) is None


def test_the_record_tells_the_first_turn_of_an_ordinary_task() -> None:
    for log in (
        [whole("a"), whole("b", "b"), DONE],
        [chunk("a", append=False), chunk("b"), DONE],
        [asks("Where?")],
        [],
    ):
        said = begin(*log)
        turn = first_turn(fold(HEAD, None, [Logged(seq, event) for seq, event in enumerate(said, 1)]))
        assert turn is not None
        assert json.loads(msgspec.json.encode(turn.response())) == response(said)


@given(st.text(max_size=40), st.integers(1, 10**9 - 1))
def test_an_id_is_read_as_it_was_written(task_id: str, number: int) -> None:
    made = ResponseId(task_id, number)
    found = read_response_id(str(made))
    assert found == made or not task_id or "\n" in task_id


@pytest.mark.parametrize("text", ["", "resp_", "resp_t", "resp_t_0", "resp_t_x", "msg_t_1", "resp_t_1 "])
def test_another_id_is_none(text: str) -> None:
    assert read_response_id(text) is None
