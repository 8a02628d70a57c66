"""Odd agents: each oddity in an answer is read, or is one clear error."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from dragoman.client import (
    ApiKey,
    CallBroken,
    CallTimedOut,
    CardNotVerified,
    ClientCredentials,
    HttpRefusal,
    NoInterface,
    NotReached,
    Retries,
    Timeouts,
    connect,
)
from dragoman.client.errors import is_untaken
from dragoman.client.retries import Retrier
from dragoman.client.transport import StreamPosition
from dragoman.dialects.v1.client import read_update
from dragoman.model.errors import (
    A2AError,
    AgentFailed,
    InvalidAgentResponse,
    MethodNotFound,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.model.message import Message, Part
from dragoman.model.operations import Subscribe
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import Update
from dragoman.net.egress import Egress
from tests.auth.test_signatures import keys, signer
from tests.net.peer import DEADLINE_S, Asked, Peer, Script, hangs, listening, nobody, raw, says, status

TASK = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-20T07:00:00.000Z"},
}
SEND = {"task": TASK}
CARD_PATH = "GET /.well-known/agent-card.json"
SSE = {"Content-Type": "text/event-stream"}


class Time:
    """Pauses that are over at once, and how long they were."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def again(self, **settings: Any) -> Retrier:
        return Retrier(Retries(**settings), pause=self.pause, chance=lambda: 1.0)


def answers(*scripts: Script) -> Script:
    """One after the other, the last for ever."""
    left = list(scripts)

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(asked, writer)

    return script


def rpc(result: Any, **instead: Any) -> Script:
    """A JSON-RPC answer to the id that came."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await says({"jsonrpc": "2.0", "id": asked.json["id"], "result": result, **instead})(asked, writer)

    return script


def refuses(code: int, http: int = 200, headers: Mapping[str, str] | None = None) -> Script:
    return says({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "No"}}, http, headers)


def events(*frames: Any, event: str = "", more: bytes = b"") -> Script:
    """A stream of JSON-RPC frames with ids."""
    lines = "".join(
        f"id: {number}\n{f'event: {event}{chr(10)}' if event else ''}data: {json.dumps(frame)}\n\n"
        for number, frame in enumerate(frames, 1)
    )
    return says(lines.encode() + more, headers=SSE)


def framed(result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": result}


def card_of(url: str, *entries: tuple[str, str, str]) -> Script:
    """A card that lists these endpoints."""
    listed = [
        {"url": at if "://" in at else url + at, "protocolBinding": binding, "protocolVersion": version}
        for at, binding, version in entries
    ]
    return says({"name": "a", "supportedInterfaces": listed})


async def send(peer: Peer, **more: Any) -> Task | Message:
    async with connect(peer.url, **{"dialect": "1.0", **more}) as agent:
        return await agent.send("hello", message_id="m")


async def streamed(peer: Peer, **more: Any) -> list[Update]:
    async with connect(peer.url, **{"dialect": "1.0", **more}) as agent:
        return [update async for update in agent.stream("hello")]


async def test_a_call_is_what_the_dialect_says_with_what_was_given(peer: Peer) -> None:
    peer.scripts["POST /"] = rpc(SEND)
    async with connect(
        peer.url, dialect="1.0", credentials=ApiKey("key"), headers={"X-Own": "1"}, extensions=["urn:a", "urn:b"]
    ) as agent:
        task = await agent.send("hello", message_id="m", traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    assert isinstance(task, Task)
    (asked,) = peer.asked
    assert (asked.json["jsonrpc"], asked.json["method"], asked.json["id"]) == ("2.0", "SendMessage", 1)
    assert asked.json["params"]["message"]["messageId"] == "m"
    expected = {
        "a2a-version": "1.0",
        "a2a-extensions": "urn:a, urn:b",
        "content-type": "application/json",
        "x-api-key": "key",
        "x-own": "1",
        "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
        "idempotency-key": "m",
    }
    assert {name: asked.headers.get(name) for name in expected} == expected


@pytest.mark.parametrize("came", [1, "1", None])
async def test_an_id_may_come_back_in_another_type_or_not_at_all(peer: Peer, came: Any) -> None:
    peer.scripts["POST /"] = rpc(SEND, id=came)
    assert isinstance(await send(peer), Task)


async def test_an_error_that_is_null_is_none(peer: Peer) -> None:
    peer.scripts["POST /"] = rpc(SEND, error=None)
    assert isinstance(await send(peer), Task)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Welcome</html>", b"\xff\xfe", b"[]", b"{}", b'{"result": ', b"[" * 100_000, b'{"id":9,"result":{}}'],
)
async def test_what_no_dialect_explains_names_where_and_shows_what_came(peer: Peer, body: bytes) -> None:
    peer.scripts["POST /"] = says(body)
    with pytest.raises(InvalidAgentResponse) as caught:
        await send(peer)
    assert caught.value.message.startswith(f"{peer.url}/: expected ")
    assert repr(body[:30])[2:-1] in caught.value.message


async def test_a_result_that_is_neither_task_nor_message_is_invalid(peer: Peer) -> None:
    peer.scripts["POST /"] = rpc({"unknown": True})
    with pytest.raises(InvalidAgentResponse, match="expected") as caught:
        await send(peer)
    assert peer.url in caught.value.message


async def test_the_agents_errors_are_those_of_the_model(peer: Peer) -> None:
    peer.scripts["POST /"] = refuses(-32001)
    with pytest.raises(TaskNotFound):
        await send(peer)


async def test_an_error_in_an_envelope_counts_whatever_the_status(peer: Peer) -> None:
    peer.scripts["POST /"] = refuses(-32004, 400)
    with pytest.raises(UnsupportedOperation):
        await send(peer)


async def test_a_redirect_is_a_refusal(peer: Peer) -> None:
    peer.scripts["POST /"] = says(b"", 307, {"Location": "https://elsewhere.example/"})
    with pytest.raises(HttpRefusal, match="307"):
        await send(peer)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_page_with_a_status_that_explains_nothing_is_shown(peer: Peer, binding: str, streams: bool) -> None:
    path = ("/message:stream" if streams else "/message:send") if binding == "HTTP+JSON" else "/"
    peer.scripts[f"POST {path}"] = says(b"<html>I am a teapot</html>", 418)
    with pytest.raises(HttpRefusal, match="418, expected 200, got b'<html>I am a teapot</html>'"):
        await (streamed if streams else send)(peer, binding=binding)


async def test_a_status_that_explains_nothing_is_an_error_and_no_success(peer: Peer) -> None:
    peer.scripts["POST /"] = says(b"<html>Bad Gateway", 502)
    with pytest.raises((A2AError, HttpRefusal)):
        await send(peer)


async def test_too_long_a_wait_is_named(peer: Peer) -> None:
    peer.scripts["POST /"] = hangs()
    with pytest.raises(CallTimedOut, match=r"\(answer_s\)") as caught:
        await send(peer, timeouts=Timeouts(answer_s=0.3))
    assert (caught.value.timeout, caught.value.sent) == ("answer_s", True)
    assert len(peer.asked) == 1


# Retries


async def test_a_send_that_may_have_arrived_is_not_repeated(peer: Peer) -> None:
    peer.scripts["POST /"] = answers(raw(b""), rpc(SEND))
    with pytest.raises(CallBroken) as caught:
        await send(peer, retries=Time().again())
    assert (caught.value.sent, caught.value.message_id) == (True, "m")
    assert len(peer.asked) == 1


async def test_a_send_is_repeated_as_it_was_where_the_agent_dedupes(peer: Peer) -> None:
    peer.scripts["POST /"] = answers(raw(b""), raw(b""), rpc(SEND))
    time = Time()
    await send(peer, retries=time.again(dedupes=True))
    assert len({asked.body for asked in peer.asked}) == 1
    assert {asked.headers["idempotency-key"] for asked in peer.asked} == {"m"}
    assert time.pauses == [0.2, 0.4]


def knowing(url: str, **params: Any) -> Script:
    """A card that says that a repeated message is known."""
    extension = {"uri": "urn:dragoman:dedupe:v1", **({"params": params} if params else {})}
    endpoint = {"url": url + "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return says({"name": "a", "supportedInterfaces": [endpoint], "capabilities": {"extensions": [extension]}})


@pytest.mark.parametrize("params", [{}, {"window": "600s"}])
async def test_a_send_is_repeated_as_it_was_where_the_card_says_that_the_agent_dedupes(
    peer: Peer, params: dict[str, Any]
) -> None:
    peer.scripts[CARD_PATH] = knowing(peer.url, **params)
    peer.scripts["POST /"] = answers(raw(b""), raw(b""), rpc(SEND))
    assert isinstance(await send(peer, dialect=None, retries=Time().again()), Task)
    assert len({asked.body for asked in peer.asked if asked.method == "POST"}) == 1


@pytest.mark.parametrize("params", [{"window": "0s"}, {"window": "soon"}, {"window": 600}])
async def test_a_window_that_is_over_or_unclear_is_none(peer: Peer, params: dict[str, Any]) -> None:
    peer.scripts[CARD_PATH] = knowing(peer.url, **params)
    peer.scripts["POST /"] = answers(raw(b""), rpc(SEND))
    with pytest.raises(CallBroken):
        await send(peer, dialect=None, retries=Time().again())


async def test_a_caller_may_know_better_than_the_card(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = knowing(peer.url)
    peer.scripts["POST /"] = answers(raw(b""), rpc(SEND))
    with pytest.raises(CallBroken):
        await send(peer, dialect=None, retries=Time().again(dedupes=False))


async def test_a_stream_of_which_nothing_was_heard_is_repeated_where_the_card_says_so(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = knowing(peer.url)
    told = b"data: " + json.dumps({"jsonrpc": "2.0", "id": None, "result": {"task": TASK}}).encode() + b"\n\n"
    broken = raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\nda")
    peer.scripts["POST /"] = answers(broken, says(told, headers=SSE))
    assert len(await streamed(peer, dialect=None, retries=Time().again())) == 1
    assert len({asked.json["params"]["message"]["messageId"] for asked in peer.asked if asked.method == "POST"}) == 1


async def test_what_never_went_out_is_tried_again() -> None:
    time = Time()
    with pytest.raises(NotReached):
        async with connect(await nobody(), dialect="1.0", retries=time.again(attempts=3)) as agent:
            await agent.send("hello")
    assert time.pauses == [0.2, 0.4]


@pytest.mark.parametrize(("code", "after", "pause"), [(503, "2", 2.0), (429, "7", 7.0), (200, "3", 3.0)])
@pytest.mark.parametrize("dedupes", [True, False])
async def test_a_send_waits_as_long_as_the_agent_asks_if_it_was_not_taken_or_is_recognised(
    peer: Peer, code: int, after: str, pause: float, dedupes: bool
) -> None:
    peer.scripts["POST /"] = answers(refuses(-32000, code, {"Retry-After": after}), rpc(SEND))
    time = Time()
    if code == 200 and not dedupes:
        with pytest.raises(A2AError):
            await send(peer, retries=time.again(dedupes=dedupes))
    else:
        assert isinstance(await send(peer, retries=time.again(dedupes=dedupes)), Task)
    assert time.pauses == ([] if code == 200 and not dedupes else [pause])


@pytest.mark.parametrize(
    ("code", "headers", "untaken"),
    [(429, {}, True), (503, {"Retry-After": "1"}, True), (503, {}, False), (502, {"Retry-After": "1"}, False)],
)
@pytest.mark.parametrize("told", [True, False], ids=["an error of A2A", "a page"])
async def test_a_refusal_says_whether_nothing_was_done(
    peer: Peer, code: int, headers: dict[str, str], untaken: bool, told: bool
) -> None:
    peer.scripts["POST /"] = refuses(-32000, code, headers) if told else says(b"", code, headers)
    with pytest.raises((A2AError, HttpRefusal)) as raised:
        await send(peer, retries=Time().again(attempts=1))
    assert is_untaken(raised.value) is untaken


async def test_a_failure_of_the_agent_is_not_repeated_however_long_it_asks_to_wait(peer: Peer) -> None:
    peer.scripts["POST /"] = refuses(-32000, 500, {"Retry-After": "0"})
    with pytest.raises(AgentFailed):
        await send(peer, dialect="evoai", retries=Time().again())
    assert len(peer.asked) == 1


async def test_a_wait_over_the_patience_is_not_begun(peer: Peer) -> None:
    peer.scripts["POST /"] = refuses(-32000, 503, {"Retry-After": "3600"})
    time = Time()
    with pytest.raises(A2AError):
        await send(peer, retries=time.again())
    assert time.pauses == []


async def test_a_busy_agent_that_names_no_time_gets_no_second_send(peer: Peer) -> None:
    peer.scripts["POST /"] = answers(refuses(-32000, 503), rpc(SEND))
    with pytest.raises(A2AError):
        await send(peer, retries=Time().again())


async def test_reading_is_repeated(peer: Peer) -> None:
    peer.scripts["POST /"] = answers(raw(b""), says(b"", 503), rpc(TASK))
    time = Time()
    async with connect(peer.url, dialect="1.0", retries=time.again()) as agent:
        assert (await agent.get("t")).id == "t"
    assert len(time.pauses) == 2


async def test_the_last_error_is_raised_when_patience_is_over(peer: Peer) -> None:
    peer.scripts["POST /"] = refuses(-32001, 503)
    time = Time()
    async with connect(peer.url, dialect="1.0", retries=time.again(attempts=2)) as agent:
        with pytest.raises(TaskNotFound):
            await agent.get("t")
    assert len(peer.asked) == 2


# Streams


async def test_each_update_comes_with_the_id_to_come_back_with(peer: Peer) -> None:
    update = {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": []}}}
    peer.scripts["POST /"] = events(framed(SEND), framed(update))
    async with connect(peer.url, dialect="1.0") as agent:
        batches = [batch async for batch in agent.events(Subscribe(id="t"), after="7.2")]
        got = [(event_id, type(each).__name__) for batch in batches for event_id, each in batch]
    assert got == [("1", "Task"), ("2", "ArtifactUpdate")]
    assert peer.asked[0].headers["last-event-id"] == "7.2"
    assert peer.asked[0].headers["accept"] == "text/event-stream"


@pytest.mark.parametrize("size", [300, 100_000], ids=["apart", "at once"])
@pytest.mark.parametrize("noise", [(), (": comment\n\n", "event: ping\ndata: x\n\n")], ids=["plain", "noisy"])
async def test_chunks_that_come_at_once_are_read_as_if_they_came_alone(
    peer: Peer, size: int, noise: tuple[str, ...]
) -> None:
    def chunk(artifact: str, text: str, **more: Any) -> dict[str, Any]:
        given = {"artifactId": artifact, "parts": [{"text": text, **more}]}
        return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": given, "append": True}}

    working = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
    results = [
        {"task": {**TASK, "status": {"state": "TASK_STATE_SUBMITTED"}}},
        *(chunk("a", f"{number}") for number in range(12)),
        chunk("a", "typed", mediaType="text/plain"),
        *(chunk("b", f"{number}") for number in range(5)),
        working,
        *(chunk("a", f"again {number}") for number in range(4)),
        chunk("a", "described", metadata={"x": 1}),
        *(chunk("a", f"more {number}") for number in range(4)),
    ]
    frames = [f"id: {number}\ndata: {json.dumps(framed(each))}\n\n" for number, each in enumerate(results)]
    frames[15:15] = [frames[14], *noise]  # a repeat, and nothing
    body = "".join(frames).encode()

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for at in range(0, len(body), size):
            writer.write(body[at : at + size])
            await writer.drain()

    peer.scripts["POST /"] = script
    async with connect(peer.url, dialect="1.0") as agent:
        position = StreamPosition()
        batches = [batch async for batch in agent.events(Subscribe(id="t"), position=position)]
    came = [(event_id, update) for batch in batches for event_id, update in batch]
    assert came == [(f"{number}", read_update(json.dumps(each).encode())[0]) for number, each in enumerate(results)]


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_how_a_stream_is_cut_changes_nothing(peer: Peer, size: int) -> None:
    body = b"".join(b": ping\r\n\r\ndata: " + json.dumps(framed(SEND)).encode() + b"\r\n\r\n" for _ in range(3))

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n")
        for at in range(0, len(body), size):
            writer.write(body[at : at + size])
            await writer.drain()

    peer.scripts["POST /"] = script
    assert len(await streamed(peer)) == 3


async def test_an_error_in_a_stream_is_raised_after_what_came_before(peer: Peer) -> None:
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "No"}}
    peer.scripts["POST /"] = events(framed(SEND), error)
    got: list[Update] = []
    async with connect(peer.url, dialect="1.0") as agent:
        with pytest.raises(TaskNotFound):
            async for update in agent.stream("hello"):
                got.append(update)
    assert len(got) == 1


@pytest.mark.parametrize("wrapped", [True, False])
async def test_an_error_event_is_an_error(peer: Peer, wrapped: bool) -> None:
    error = {"code": -32001, "message": "No"}
    peer.scripts["POST /"] = events({"error": error} if wrapped else error, event="error")
    with pytest.raises(TaskNotFound):
        await streamed(peer)


async def test_an_error_in_place_of_a_stream_is_raised(peer: Peer) -> None:
    peer.scripts["POST /"] = refuses(-32004)
    with pytest.raises(UnsupportedOperation):
        await streamed(peer)


@pytest.mark.parametrize("result", [SEND, TASK])
async def test_a_result_in_place_of_a_stream_is_all_there_is(peer: Peer, result: Any) -> None:
    peer.scripts["POST /"] = rpc(result)
    (update,) = await streamed(peer)
    assert isinstance(update, Task)


@pytest.mark.parametrize("data", [b"data: <html>\n\n", b"data: [1]\n\n", b'data: {"id":9,"result":{}}\n\n'])
async def test_an_event_that_cannot_be_read_is_invalid(peer: Peer, data: bytes) -> None:
    peer.scripts["POST /"] = says(data, headers=SSE)
    with pytest.raises(InvalidAgentResponse, match="expected"):
        await streamed(peer)


async def test_what_only_keeps_a_stream_open_tells_of_nothing(peer: Peer) -> None:
    frame = b"data: " + json.dumps(framed(SEND)).encode() + b"\n\n"
    pings = b": ping\n\nevent: ping\ndata: 17:00\n\ndata:\n\n"
    peer.scripts["POST /"] = says(pings + frame + b"data: [DONE]\n\n", headers=SSE)
    assert len(await streamed(peer)) == 1


async def test_a_stream_that_breaks_off_is_no_end(peer: Peer) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\n"
    peer.scripts["POST /"] = raw(head + b"data:")
    with pytest.raises(CallBroken):
        await streamed(peer)


async def test_a_silent_stream_is_named(peer: Peer) -> None:
    peer.scripts["POST /"] = hangs(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    with pytest.raises(CallTimedOut, match=r"\(idle_s\)"):
        await streamed(peer, timeouts=Timeouts(idle_s=0.05))


async def test_whoever_leaves_a_stream_hangs_up() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        frame = b"data: " + json.dumps(framed(SEND)).encode() + b"\n\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + frame)
        await reader.read()
        left.set()
        writer.close()

    async with asyncio.timeout(DEADLINE_S), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"http://127.0.0.1:{port}", dialect="1.0") as agent:
            async for update in agent.stream("hello"):
                assert isinstance(update, Task)
                break
            await left.wait()


async def test_a_stream_is_opened_again_if_it_was_refused_for_a_while(peer: Peer) -> None:
    peer.scripts["POST /"] = answers(says(b"", 503, {"Retry-After": "1"}), events(framed(SEND)))
    time = Time()
    assert len(await streamed(peer, retries=time.again())) == 1
    assert time.pauses == [1.0]


async def test_a_stream_is_opened_with_a_new_token_when_one_was_refused(peer: Peer) -> None:
    tokens = answers(*(says({"access_token": token, "token_type": "Bearer"}) for token in ("old", "new")))
    peer.scripts["POST /token"] = tokens
    peer.scripts["POST /"] = answers(status(401), events(framed(SEND)))
    egress = Egress()
    credentials = ClientCredentials(peer.url + "/token", "me", "secret", egress=egress)
    assert len(await streamed(peer, egress=egress, credentials=credentials)) == 1
    await egress.close()
    shown = [asked.headers["authorization"] for asked in peer.asked if asked.path == "/"]
    assert shown == ["Bearer old", "Bearer new"]


# The limits of cards


async def test_a_card_cannot_send_the_callers_key_elsewhere(peer: Peer) -> None:
    async with listening() as thief:
        peer.scripts[CARD_PATH] = card_of(peer.url, (thief.url + "/", "JSONRPC", "1.0"))
        thief.scripts["POST /"] = rpc(SEND)
        key, time = ApiKey("key"), Time()
        async with connect(peer.url, credentials=key, headers={"X-Own": "1"}, retries=time.again()) as agent:
            with pytest.raises(NotReached, match=r"loopback address.*origins="):
                await agent.send("hello")
        assert not thief.asked
        assert not time.pauses
        async with connect(peer.url, credentials=key, origins=[thief.url]) as agent:
            await agent.send("hello")
        assert thief.asked[0].headers["x-api-key"] == "key"


async def test_a_card_without_an_endpoint_that_is_spoken_is_refused(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = card_of(peer.url, ("/", "SMTP", "1.0"))
    with pytest.raises(NoInterface, match="names no endpoint"):
        async with connect(peer.url):
            pass


async def test_version_and_binding_choose_among_what_the_card_offers(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = card_of(
        peer.url, ("/rpc", "JSONRPC", "1.0"), ("/old", "JSONRPC", "0.3"), ("/rest", "HTTP+JSON", "0.3")
    )
    for said, path in (
        ({}, "/rpc"),
        ({"version": "0.3"}, "/old"),
        ({"version": "0.3", "binding": "HTTP+JSON"}, "/rest"),
        ({"binding": "HTTP+JSON"}, "/rest"),
    ):
        async with connect(peer.url, **said) as agent:
            assert agent.interface.url == peer.url + path


async def test_what_the_card_does_not_offer_is_refused_with_what_it_does(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = card_of(peer.url, ("/", "JSONRPC", "1.0"), ("/rest", "HTTP+JSON", "0.3"))
    with pytest.raises(NoInterface) as refused:
        async with connect(peer.url, version="1.0", binding="HTTP+JSON"):
            pass
    assert str(refused.value).endswith(
        "the card names no endpoint over HTTP+JSON in version 1.0; it offers JSONRPC in version 1.0, HTTP+JSON in "
        "version 0.3; give `dialect=` to connect without a card"
    )


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"version": "2.0"}, "version '2.0' is not known: use 1.0 or 0.3"),
        ({"version": "1.0", "dialect": "1.0"}, "pass only one of them"),
        ({"binding": "carrier pigeon"}, "binding 'carrier pigeon' is not known"),
        ({"transport": "carrier pigeon"}, "transport 'carrier pigeon' is not known"),
        ({"transport": "GRPC", "binding": "GRPC"}, "pass only one of them"),
    ],
)
async def test_a_choice_that_cannot_be_made_is_refused_before_the_card_is_read(
    peer: Peer, said: dict[str, str], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        async with connect(peer.url, **said):
            pass
    assert not peer.asked


@pytest.mark.parametrize(("credentials", "what"), [("s3cret", "a str"), (ApiKey, "the class ApiKey")])
async def test_what_are_no_credentials_is_refused_with_what_to_pass(peer: Peer, credentials: Any, what: str) -> None:
    with pytest.raises(TypeError, match=rf"`credentials` is {what}: pass ApiKey\(key\)") as caught:
        async with connect(peer.url, credentials=credentials):
            pass
    assert "s3cret" not in str(caught.value)
    assert not peer.asked


@pytest.mark.parametrize(("double", "sent", "came"), [(True, "QVA4PQ==", b"hello"), (False, "AP8=", b"aGVsbG8=")])
async def test_files_are_put_into_base64_twice_only_for_agents_that_do_so(
    peer: Peer, double: bool, sent: str, came: bytes
) -> None:
    file = {"file": {"fileWithBytes": "YUdWc2JHOD0="}}
    task = {**TASK, "artifacts": [{"artifactId": "a", "parts": [file]}]}
    peer.scripts[CARD_PATH] = card_of(peer.url, ("", "HTTP+JSON", "0.3"))
    peer.scripts["POST /v1/message:send"] = says({"task": task})
    async with connect(peer.url, double_base64=double) as agent:
        told = await agent.send([Part(raw=b"\x00\xff")])
    assert isinstance(told, Task)
    assert told.artifacts[0].parts[0].raw == came
    posted = peer.asked[-1].json["message"]["content"]
    assert posted == [{"file": {"fileWithBytes": sent}}]


async def test_other_bindings_do_not_know_base64_twice(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = card_of(peer.url, ("/", "JSONRPC", "0.3"))
    peer.scripts["POST /"] = rpc({**TASK, "kind": "task", "status": {"state": "completed"}})
    async with connect(peer.url, double_base64=True) as agent:
        await agent.send([Part(raw=b"\x00\xff")])
    assert peer.asked[-1].json["params"]["message"]["parts"][0]["file"]["bytes"] == "AP8="


async def test_a_signed_card_is_believed_if_the_key_is_known(peer: Peer) -> None:
    ours = signer()
    card = {"name": "a", "url": peer.url + "/"}
    signed = {**card, "signatures": [ours.sign(card, "https://x.example/jwks.json")]}
    peer.scripts[CARD_PATH] = says(signed)
    async with connect(peer.url, keys=keys(ours)) as agent:
        assert agent.card is not None
        assert agent.card.name == "a"
    with pytest.raises(CardNotVerified):
        async with connect(peer.url, keys=keys(signer())):
            pass


@pytest.mark.parametrize("gone", [refuses(-32009), refuses(-32601), status(404), status(405)])
async def test_when_an_endpoint_is_gone_the_card_is_read_anew(peer: Peer, gone: Script) -> None:
    peer.scripts[CARD_PATH] = answers(
        card_of(peer.url, ("/old", "JSONRPC", "1.0")), card_of(peer.url, ("/new", "JSONRPC", "1.0"))
    )
    peer.scripts["POST /old"], peer.scripts["POST /new"] = gone, rpc(SEND)
    async with connect(peer.url) as agent:
        assert isinstance(await agent.send("hello"), Task)
        assert agent.interface.url == peer.url + "/new"
        await agent.send("hello")
    assert peer.paths == [CARD_PATH, "POST /old", CARD_PATH, "POST /new", "POST /new"]


async def test_when_there_is_no_card_any_more_the_endpoints_own_answer_is_told(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = answers(card_of(peer.url, ("/old", "JSONRPC", "1.0")), status(404))
    peer.scripts["POST /old"] = refuses(-32601)
    async with connect(peer.url) as agent:
        with pytest.raises(MethodNotFound):
            await agent.send("hello")


@pytest.mark.parametrize("code", [-32009, -32601])
async def test_a_stream_finds_the_new_endpoint_too(peer: Peer, code: int) -> None:
    peer.scripts[CARD_PATH] = card_of(peer.url, ("/old", "JSONRPC", "1.0"), ("/new", "JSONRPC", "1.0"))
    peer.scripts["POST /old"], peer.scripts["POST /new"] = refuses(code), events(framed(SEND))
    assert len(await streamed(peer, dialect=None)) == 1


async def test_a_stream_that_the_agent_never_had_is_refused(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = card_of(peer.url, ("/", "JSONRPC", "1.0"))
    peer.scripts["POST /"] = refuses(-32601)
    with pytest.raises(MethodNotFound):
        await streamed(peer, dialect=None)
    assert peer.paths.count("POST /") == 1


async def test_an_endpoint_without_another_is_asked_once(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = card_of(peer.url, ("/", "JSONRPC", "1.0"))
    peer.scripts["POST /"] = refuses(-32601)
    async with connect(peer.url) as agent:
        for _ in range(3):
            with pytest.raises(MethodNotFound):
                await agent.send("hello")
    assert peer.paths.count(CARD_PATH) == 2  # not with every call
    assert peer.paths.count("POST /") == 3


async def test_a_method_that_not_every_agent_has_does_not_change_the_endpoint(peer: Peer) -> None:
    peer.scripts[CARD_PATH] = card_of(peer.url, ("/", "JSONRPC", "1.0"), ("", "HTTP+JSON", "1.0"))
    peer.scripts["POST /"] = refuses(-32601)
    async with connect(peer.url) as agent:
        with pytest.raises(MethodNotFound):
            await agent.list()
        assert agent.interface.binding == "JSONRPC"


# Paths as servers have them

INFO = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org"}
NO_TASK = {"error": {"code": 404, "status": "NOT_FOUND", "message": "Task not found: t:subscribe", "details": [INFO]}}
MISSING = says(NO_TASK, 404)
WRONG_VERB = says(b"Method Not Allowed", 405)
SUBSCRIBED = {
    "1.0": ("/tasks/t:subscribe", {"task": {**TASK, "status": {"state": "TASK_STATE_COMPLETED"}}}),
    "0.3": (
        "/v1/tasks/t:subscribe",
        {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}},
    ),
}


async def subscribed(peer: Peer, dialect: str, times: int = 1) -> list[str]:
    """How the task was subscribed to."""
    async with connect(peer.url, dialect=dialect, binding="HTTP+JSON") as agent:
        for _ in range(times):
            (update,) = [each async for each in agent.subscribe("t")]
            assert isinstance(update, Task)
            assert update.status.state is TaskState.COMPLETED
    return [asked.method for asked in peer.asked]


@pytest.mark.parametrize("refused", [MISSING, WRONG_VERB, status(404)])
@pytest.mark.parametrize("dialect", SUBSCRIBED)
async def test_a_server_is_subscribed_to_by_the_method_that_it_takes(peer: Peer, dialect: str, refused: Script) -> None:
    path, frame = SUBSCRIBED[dialect]
    peer.scripts[f"GET {path}"] = refused
    peer.scripts[f"POST {path}"] = says(b"data: " + json.dumps(frame).encode() + b"\n\n", headers=SSE)
    assert await subscribed(peer, dialect, times=2) == ["GET", "POST", "POST"]
    assert peer.asked[-1].body == b""


@pytest.mark.parametrize("dialect", SUBSCRIBED)
async def test_a_server_that_takes_the_usual_method_is_asked_once(peer: Peer, dialect: str) -> None:
    path, frame = SUBSCRIBED[dialect]
    peer.scripts[f"GET {path}"] = says(b"data: " + json.dumps(frame).encode() + b"\n\n", headers=SSE)
    assert await subscribed(peer, dialect, times=2) == ["GET", "GET"]


@pytest.mark.parametrize(("by_get", "by_post"), [(MISSING, WRONG_VERB), (WRONG_VERB, MISSING), (MISSING, MISSING)])
async def test_a_task_that_is_not_there_is_not_found_by_either_method(
    peer: Peer, by_get: Script, by_post: Script
) -> None:
    peer.scripts["GET /tasks/t:subscribe"] = by_get
    peer.scripts["POST /tasks/t:subscribe"] = by_post
    async with connect(peer.url, dialect="1.0", binding="HTTP+JSON") as agent:
        with pytest.raises(TaskNotFound):
            [each async for each in agent.subscribe("t")]
    assert [asked.method for asked in peer.asked] == ["GET", "POST"]


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "evoai", "protoagent"])
@pytest.mark.parametrize("path", ["/jsonrpc/", "/jsonrpc", "/jsonrpc/?key=1", "/", ""])
async def test_a_url_is_dialled_as_it_is_written(peer: Peer, dialect: str, path: str) -> None:
    async with connect(peer.url + path, dialect=dialect) as agent:
        with pytest.raises((HttpRefusal, A2AError)):
            await agent.get("t")
    assert peer.paths == [f"POST {path or '/'}"]


@pytest.mark.parametrize("path", ["/jsonrpc/", "/jsonrpc", "/jsonrpc/?key=1"])
async def test_a_url_of_a_card_is_dialled_as_it_is_written(peer: Peer, path: str) -> None:
    peer.scripts["GET /.well-known/agent-card.json"] = card_of(peer.url, (path, "JSONRPC", "0.3"))
    async with connect(peer.url) as agent:
        with pytest.raises((HttpRefusal, A2AError)):
            await agent.get("t")
    assert f"POST {path}" in peer.paths
