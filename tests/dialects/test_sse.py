"""Server-sent events: what the writer writes the parser reads, however it is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects import sse
from dragoman.dialects.sse import Parser, ServerSentEvent
from dragoman.model.errors import InvalidAgentResponse

STREAM = (
    b"\xef\xbb\xbf: welcome\n\nretry: 1500\nid: 1\ndata: one\n\n"
    b"event: x\r\ndata: two\r\ndata:two again\r\nid: 2\r\n\r\n"
    b"data\rdata:  \xc3\xa9\r\rid\ndata: no id\n\nid: 3\n\nunknown: y\nevent: gone\n\ndata: four\n\ndata: unfinished"
)
EVENTS = [
    ServerSentEvent("one", "message", "1", 1500),
    ServerSentEvent("two\ntwo again", "x", "2", 1500),
    ServerSentEvent("\n é", "message", "2", 1500),
    ServerSentEvent("no id", "message", "", 1500),
    ServerSentEvent("four", "message", "3", 1500),
]


def parsed(*pieces: bytes) -> list[ServerSentEvent]:
    parser = Parser()
    return [event for piece in pieces for event in parser.feed(piece)]


def test_a_stream_in_one_piece() -> None:
    assert parsed(STREAM) == EVENTS


def test_a_stream_byte_by_byte() -> None:
    assert parsed(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == EVENTS


def test_a_stream_cut_in_two_at_every_byte() -> None:
    for cut in range(len(STREAM) + 1):
        assert parsed(STREAM[:cut], STREAM[cut:]) == EVENTS, cut


def test_empty_pieces_change_nothing() -> None:
    pieces = [piece for i in range(len(STREAM)) for piece in (STREAM[i : i + 1], b"")]
    assert parsed(*pieces) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_a_stream_cut_anywhere(cuts: list[int]) -> None:
    marks = [0, *sorted(cuts), len(STREAM)]
    assert parsed(*(STREAM[a:b] for a, b in pairwise(marks))) == EVENTS


BLOCKS = [
    b"id: 1\ndata: a\n\n",
    b"id: 2\r\ndata: {}\r\n\r\n",
    b"id: 3\0\ndata: b\n\n",
    b"data: \xc3\xa9\xff\n\n",
    b"id: \ndata: \n\n",
    b"id: 4\ndata: a\ndata: b\n\n",
    b"data: a\nid: 5\n\n",
    b"event: x\n",
    b"id: 6\n",
    b"data: c\n",
    b": comment\n\n",
    b"retry: 9\n\n",
    b"\n",
]


@given(st.lists(st.sampled_from(BLOCKS), max_size=12), st.integers(0, 200))
def test_events_come_alike_whether_many_come_together_or_byte_by_byte(blocks: list[bytes], cut: int) -> None:
    stream = b"".join(blocks)
    one_by_one, together = Parser(), Parser()
    expected = [event for at in range(len(stream)) for event in one_by_one.feed(stream[at : at + 1])]
    assert together.feed(stream[:cut]) + together.feed(stream[cut:]) == expected
    assert together.last_id == one_by_one.last_id


def test_an_id_with_a_null_is_ignored() -> None:
    assert [event.id for event in parsed(b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n")] == ["1", "1"]


@pytest.mark.parametrize("retry", [b"", b"1.5", b"-1", b"x", "²".encode(), b"9999999999"])
def test_a_retry_that_is_no_number_is_ignored(retry: bytes) -> None:
    assert parsed(b"retry: 7\nretry: " + retry + b"\ndata: a\n\n")[0].retry_ms == 7


def test_an_event_without_data_is_none_but_sets_the_id() -> None:
    parser = Parser()
    assert parser.feed(b"event: ping\nid: 9\n\n") == []
    assert parser.last_id == "9"


def test_empty_data_is_an_event() -> None:
    assert parsed(b"data\n\n") == [ServerSentEvent("")]


def test_a_byte_order_mark_counts_only_at_the_start() -> None:
    assert parsed(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n") == [
        ServerSentEvent("a"),
        ServerSentEvent("c"),
    ]
    assert parsed(b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\n") == [ServerSentEvent("a")]


@pytest.mark.parametrize("piece", [b"x" * 600, b"data: " + b"x" * 600, b"data: " + b"x" * 60 + b"\n"])
def test_an_event_over_the_bound_is_refused(piece: bytes) -> None:
    parser = Parser(max_event_bytes=1000)
    with pytest.raises(InvalidAgentResponse, match="1000 bytes"):
        for _ in range(20):
            parser.feed(piece)


def test_many_events_within_the_bound_are_not_refused() -> None:
    parser = Parser(max_event_bytes=1000)
    assert sum(len(parser.feed(b"data: " + b"x" * 600 + b"\n\n")) for _ in range(20)) == 20
    assert len(parser.feed((b"data: " + b"x" * 600 + b"\n\n") * 20)) == 20


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_any_bytes_are_parsed(pieces: list[bytes]) -> None:
    assert parsed(*pieces) == parsed(b"".join(pieces))


def test_frames_are_as_the_standard_has_them() -> None:
    assert sse.frame(b"{}") == b"data: {}\n\n"
    assert sse.frame(b"{}", "7.1") == b"id: 7.1\ndata: {}\n\n"
    assert sse.comment() == b":\n\n"
    assert sse.comment("still here") == b": still here\n\n"
    assert sse.retry(2000) == b"retry: 2000\n"


def test_frames_of_one_write_are_put_into_the_envelope() -> None:
    written = sse.frames([("1", b"{}"), (None, b"[]")], b'{"result":', b"}")
    assert written == b'id: 1\ndata: {"result":{}}\n\ndata: {"result":[]}\n\n'


@given(st.lists(st.tuples(st.text("0123456789.", min_size=1), st.text()), max_size=5))
def test_what_is_written_is_read_back(events: list[tuple[str, str]]) -> None:
    written = b"".join(sse.frame(data.encode(), event_id) + sse.comment("x") for event_id, data in events)
    expected = [(event_id, data.replace("\r\n", "\n").replace("\r", "\n")) for event_id, data in events]
    assert [(event.id, event.data) for event in parsed(sse.retry(5), written)] == expected
