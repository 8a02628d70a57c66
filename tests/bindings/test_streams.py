"""Streams: SSE frames, their ids, readers that are slow or leave."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.bindings.event_sender import send_events
from dragoman.bindings.http import SLICE_BYTES, EventsResponse
from dragoman.bindings.streams import EventEncoder, Streams
from dragoman.dialects import python_a2a, v1
from dragoman.dialects.sse import Parser, ServerSentEvent
from dragoman.engine.handler import Direct, Snapshot, StreamItem
from dragoman.model.errors import InvalidParams, TaskNotFound
from dragoman.model.events import Logged, StatusChanged, seq_and_frame
from dragoman.model.operations import Call
from dragoman.model.task import TaskState
from tests.bindings.conftest import (
    DEADLINE_S,
    RECORD,
    V1,
    ScriptedStream,
    Site,
    answer_message,
    chunk,
    message,
    site,
)
from tests.certificates import Authority

RPC = {"jsonrpc": "2.0", "id": "a\u0000b", "method": "SendStreamingMessage", "params": {"message": message()}}


async def events(content: object) -> list[ServerSentEvent]:
    parser = Parser()
    return [event async for event in _events(content, parser)]


async def _events(content: object, parser: Parser) -> AsyncIterator[ServerSentEvent]:
    async for piece in content.iter_any():  # type: ignore[attr-defined]
        for event in parser.feed(piece):
            yield event


async def test_each_event_is_a_frame_with_its_seq_in_the_callers_envelope(served: Site) -> None:
    served.handler.streams = lambda call: ScriptedStream([Snapshot(RECORD), chunk(2)], [chunk(3)], None)
    async with served.http.post("/", json=RPC, headers=V1) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Accel-Buffering"] == "no"
        got = await events(answer.content)
    assert [event.id for event in got] == ["1", "2", "3"]
    bodies = [json.loads(event.data) for event in got]
    assert all(body["id"] == RPC["id"] and body["jsonrpc"] == "2.0" for body in bodies)
    assert [next(iter(body["result"])) for body in bodies] == ["task", "artifactUpdate", "artifactUpdate"]


async def test_over_http_json_a_frame_is_the_event_itself(served: Site) -> None:
    for method in (served.http.get, served.http.post):
        async with method("/tasks/t1:subscribe", headers=V1) as answer:
            got = await events(answer.content)
        assert [next(iter(json.loads(event.data))) for event in got] == ["artifactUpdate"]


async def test_a_direct_answer_is_one_frame_without_an_id(served: Site) -> None:
    served.handler.streams = lambda call: ScriptedStream([Direct(answer_message("yes"))], None)
    async with served.http.post("/message:stream", json={"message": message()}, headers=V1) as answer:
        text = await answer.text()
    assert "id:" not in text
    assert json.loads(text.removeprefix("data: "))["message"]["parts"] == [{"text": "yes"}]


async def test_what_is_refused_before_the_first_event_is_a_plain_answer(served: Site) -> None:
    def refuse(call: Call) -> ScriptedStream:
        raise TaskNotFound("t1")

    served.handler.streams = refuse
    async with served.http.get("/tasks/t1:subscribe", headers=V1) as answer:
        assert (answer.status, answer.content_type) == (404, "application/a2a+json")
    async with served.http.post("/", json=RPC, headers=V1) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert (await answer.json())["error"]["code"] == -32001


async def test_silence_is_broken_by_a_comment(served: Site) -> None:
    served.handler.streams = lambda call: ScriptedStream([], [chunk(1)], [], None)
    async with served.http.get("/tasks/t1:subscribe", headers=V1) as answer:
        text = await answer.text()
    assert text.startswith(": keepalive\n\nid: 1\ndata: {")
    assert text.endswith("}\n\n: keepalive\n\n")


@pytest.mark.parametrize(("keepalive_s", "comments"), [(0.0, 2), (DEADLINE_S, 0)])
async def test_events_that_are_not_shown_are_silence(keepalive_s: float, comments: int) -> None:
    """A bare message of python-a2a is answered by text alone: reports of progress have no frame."""
    sent: list[bytes] = []

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(event: dict[str, object]) -> None:
        if piece := event.get("body"):
            assert isinstance(piece, bytes)
            sent.append(piece)

    hidden = Logged(2, StatusChanged(TaskState.WORKING, RECORD.status.timestamp), 0)
    streams = Streams(keepalive_s)
    stream = ScriptedStream([hidden], [hidden], [chunk(3)], None)
    encoder = EventEncoder(stream.head, python_a2a.MESSAGES, streams)
    await send_events(EventsResponse(stream, encoder.encode), streams, receive, send)
    assert sent[:-1] == [b": keepalive\n\n"] * comments
    assert b"data: " in sent[-1]


async def test_a_stream_that_a_stopping_server_ends_says_when_to_come_back(served: Site) -> None:
    stopped = ScriptedStream([chunk(1)], None)
    stopped.retry = True
    served.handler.streams = lambda call: stopped
    async with served.http.get("/tasks/t1:subscribe", headers=V1) as answer:
        assert (await answer.text()).endswith("\n\nretry: 1000\n")


async def test_a_client_that_leaves_closes_its_stream(served: Site) -> None:
    left = ScriptedStream([chunk(1)])
    served.handler.streams = lambda call: left
    async with served.http.get("/tasks/t1:subscribe", headers=V1) as answer:
        assert await answer.content.readline() == b"id: 1\n"
        answer.close()
    async with asyncio.timeout(DEADLINE_S):
        await left.closed.wait()


class Endless(ScriptedStream):
    """Always has more, at once, and never waits."""

    async def next(self, wait_s: float | None = None) -> list[StreamItem] | None:
        self.asked += 1
        return None if self.closed.is_set() else [chunk(self.asked, "x" * 1000)]


async def test_a_client_that_leaves_an_endless_stream_does_not_starve_the_others(served: Site) -> None:
    left = Endless()
    served.handler.streams = lambda call: left
    async with served.http.get("/tasks/t1:subscribe", headers=V1) as answer:
        await answer.content.readexactly(100_000)
        answer.close()
    async with asyncio.timeout(DEADLINE_S):
        await left.closed.wait()
        async with served.http.get("/health") as alive:
            assert alive.status == 200


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
async def test_a_reader_that_stops_reading_stops_its_stream_and_no_other(tmp_path: Path, *, secured: bool) -> None:
    stalled = Endless()
    async with site(authority=Authority(tmp_path) if secured else None) as running:
        running.handler.streams = lambda call: stalled
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=1024, ssl=running.context)
        try:
            writer.write(b"GET /tasks/t1:subscribe HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(DEADLINE_S):
                asked = -1
                while stalled.asked != asked:  # kernel and transport buffers fill, then nothing is asked any more
                    asked = stalled.asked
                    assert asked < 20_000
                    for _ in range(20):
                        async with running.http.get("/health") as alive:
                            assert alive.status == 200
        finally:
            writer.transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            await stalled.closed.wait()


@pytest.mark.parametrize(
    ("headers", "query", "after"),
    [({"Last-Event-ID": "7"}, "", "7"), ({}, "?since=7.2", "7.2"), ({}, "", None), ({"Last-Event-ID": ""}, "", None)],
)
async def test_the_last_event_seen_comes_in_a_header_or_the_query(
    served: Site, headers: dict[str, str], query: str, after: str | None
) -> None:
    async with served.http.get(f"/tasks/t1:subscribe{query}", headers={**V1, **headers}) as answer:
        assert answer.status == 200
    assert served.handler.calls[0].after == after


@pytest.mark.parametrize("after", ["x", "-1", "7.", ".2", "7.2.1", "٧", "1e3", "9" * 19])
async def test_an_id_that_is_none_of_ours_is_refused(served: Site, after: str) -> None:
    async with served.http.get("/tasks/t1:subscribe", params={"since": after}, headers=V1) as answer:
        assert answer.status == 400
    with pytest.raises(InvalidParams):
        seq_and_frame(after)


SEVERAL = replace(v1.REST, key="several", encode_event=lambda head, event, record: (b"1", b"2", b"3"))
"""A dialect in which each event is three frames."""


async def frames(stream: ScriptedStream, after: str | None) -> list[str]:
    """The ids and data that a reader gets of a stream in that dialect."""
    sent: list[bytes] = []

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(event: dict[str, object]) -> None:
        if event["type"] == "http.response.body":
            sent.append(event["body"])  # type: ignore[arg-type]

    streams, seen = Streams(), (0, 0) if after is None else seq_and_frame(after)
    encoder = EventEncoder(stream.head, SEVERAL, streams, (b"<", b">"), seen)
    await send_events(EventsResponse(stream, encoder.encode), streams, receive, send)
    return [f"{event.id}={event.data}" for event in Parser().feed(b"".join(sent))]


async def test_an_event_of_several_frames_numbers_them_and_ends_with_the_plain_seq() -> None:
    got = await frames(ScriptedStream([chunk(7)], None), None)
    assert got == ["7.1=<1>", "7.2=<2>", "7=<3>"]


async def test_a_stream_goes_on_within_an_event() -> None:
    assert await frames(ScriptedStream([chunk(7), chunk(8)], None), "7.2") == ["7=<3>", "8.1=<1>", "8.2=<2>", "8=<3>"]
    assert await frames(ScriptedStream([chunk(8)], None), "7") == ["8.1=<1>", "8.2=<2>", "8=<3>"]


async def test_a_stream_that_starts_anew_leaves_nothing_out() -> None:
    snapshot = Snapshot(replace(RECORD, seq=6))
    got = await frames(ScriptedStream([snapshot, chunk(7)], None), "7.2")
    assert [each.partition("=")[0] for each in got] == ["6", "7.1", "7.2", "7"]
    got = await frames(ScriptedStream([snapshot], [chunk(7)], None), "7.2")
    assert [each.partition("=")[0] for each in got] == ["6", "7.1", "7.2", "7"]


async def test_a_large_event_goes_out_in_slices_and_whole(served: Site) -> None:
    text = "ä" * (3 * SLICE_BYTES)
    served.handler.streams = lambda call: ScriptedStream([chunk(1), chunk(2, text), chunk(3)], None)
    async with served.http.post("/", json=RPC, headers=V1) as answer:
        got = await events(answer.content)
    assert [event.id for event in got] == ["1", "2", "3"]
    assert json.loads(got[1].data)["result"]["artifactUpdate"]["artifact"]["parts"] == [{"text": text}]


async def test_an_event_is_encoded_once_for_all_its_readers(served: Site) -> None:
    log = [chunk(seq) for seq in range(1, 20)]
    served.handler.streams = lambda call: ScriptedStream(log, None)

    async def read() -> list[str]:
        async with served.http.get("/tasks/t1:subscribe", headers=V1) as answer:
            return [event.id for event in await events(answer.content)]

    got = await asyncio.gather(*(read() for _ in range(10)))
    assert got == [[str(each.seq) for each in log]] * 10
    assert all([*each.frames] == ["1.0"] for each in log)


async def test_readers_of_the_same_snapshot_share_its_bytes() -> None:
    encoded: list[bytes] = []

    def encode(record: object, history_length: int | None) -> bytes:
        encoded.append(b"x" * (3 * SLICE_BYTES))
        return encoded[-1]

    dialect = replace(v1.REST, encode_snapshot=encode)
    stopped = asyncio.Event()

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(event: dict[str, object]) -> None:
        if event["type"] == "http.response.body" and event.get("more_body"):
            await stopped.wait()

    streams = Streams()

    async def read() -> None:
        stream = ScriptedStream([Snapshot(RECORD)], None)
        encoder = EventEncoder(stream.head, dialect, streams)
        await send_events(EventsResponse(stream, encoder.encode), streams, receive, send)

    readers = [asyncio.create_task(read()) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(encoded) == 1
    stopped.set()
    await asyncio.gather(*readers)


async def test_splicing_is_cheap() -> None:
    """100 readers of 200 events, in the time of this process: how busy the machine is does not matter."""
    log = [chunk(seq) for seq in range(1, 201)]
    prefix = b'{"jsonrpc":"2.0","id":1,"result":'

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(event: dict[str, object]) -> None:
        pass

    streams = Streams()
    start = time.process_time()
    for _ in range(100):
        stream = ScriptedStream(log, None)
        encoder = EventEncoder(stream.head, v1.JSONRPC, streams, (prefix, b"}"))
        await send_events(EventsResponse(stream, encoder.encode), streams, receive, send)
    assert 20_000 / (time.process_time() - start) > 30_000
