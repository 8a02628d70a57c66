"""The listener: requests are answered in order, within the rules and limits of HTTP."""

import asyncio
import contextlib
import json
import logging
import shutil
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from dragoman.bindings.app import CurrentApp
from dragoman.bindings.http import Receive, Scope, Send
from dragoman.bindings.http1.connection import SLICE_BYTES
from dragoman.bindings.http1.exchange import AsgiExchange
from dragoman.bindings.listener import Listener, bound_socket
from dragoman.bindings.streams import Streams
from dragoman.model.message import Artifact, Part
from dragoman.model.operations import Call, Result, SendMessage
from tests.bindings.conftest import (
    DEADLINE_S,
    RECORD,
    ScriptedHandler,
    ScriptedStore,
    ScriptedStream,
    Site,
    make_app,
    message,
    site,
)

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
SENT = json.dumps({"message": message()}).encode()
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
WEBSOCKET = (
    b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def statuses(answers: bytes) -> list[int]:
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


def post(body: bytes, *, headers: bytes = b"", path: bytes = b"/message:send", chunked: bool = False) -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n%s" % (path, headers)
    if not chunked:
        return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body[:3]) + b"%x\r\n%s\r\n" % (len(body) - 3, body[3:])
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


async def test_pipelined_requests_are_answered_in_order(served: Site) -> None:
    head = b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = await served.raw(GET + head + GET + LAST)
    assert statuses(answer) == [200, 200, 200, 404]
    assert answer.count(b'{"status":"ok"}') == 2


@pytest.mark.parametrize("body_bytes", [0, 100, SLICE_BYTES, 300_000])
async def test_thousands_of_pipelined_requests_are_answered_in_order(body_bytes: int) -> None:
    async with site(max_body_bytes=1_000_000) as running:
        text = "x" * body_bytes
        requests = [post(json.dumps({"message": message(f"{text}{number}")}).encode()) for number in range(20)]
        answer = await running.raw(b"".join(request + GET * 150 for request in requests) + LAST)
        assert statuses(answer) == [200] * (20 * 151) + [404]
        texts = [sent.message.text for call in running.handler.calls if isinstance(sent := call.operation, SendMessage)]
        assert texts == [f"{text}{number}" for number in range(20)]


async def test_few_pipelined_requests_wait_in_memory(served: Site) -> None:
    """Those behind them are bytes that nobody has parsed, and in the end wait at the client's."""
    import gc

    stream = ScriptedStream([])
    served.handler.streams = lambda call: stream
    follow = b"GET /tasks/t1:subscribe HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\n\r\n"
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(follow + GET * 100_000)
        await reader.readuntil(b": keepalive\n")
        for _ in range(20):  # the server, in this loop, would read on meanwhile
            async with served.http.get("/health") as answer:
                assert answer.status == 200
        gc.collect()  # those of the tests before
        waiting = sum(type(each) is AsgiExchange for each in gc.get_objects())
        assert waiting <= SLICE_BYTES // len(GET) + 50
        writer.transport.abort()
        stream.put(None)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_client_that_hangs_up_ends_the_request_that_is_answered_and_those_that_wait(
    run: Callable[[Coroutine[Any, Any, None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def hang_up() -> None:
        asked, release = asyncio.Event(), asyncio.Event()

        class Slow:
            async def call(self, call: Call) -> Result:
                calls.append(call)
                asked.set()
                await release.wait()
                return RECORD

        async with site() as running, asyncio.timeout(DEADLINE_S):
            calls: list[Call] = []
            slow = Slow()
            running.handler.call = slow.call  # type: ignore[method-assign]  # the fake is to be slow
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(post(SENT) * 5000)
            await asked.wait()
            writer.transport.abort()
            stream = ScriptedStream([])
            running.handler.streams = lambda call: stream
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(post(SENT, path=b"/message:stream") + GET * 3)
            await reader.readuntil(b": keepalive\n")
            writer.transport.abort()
            await stream.closed.wait()
            release.set()
            async with running.http.get("/health") as answer:
                assert answer.status == 200
            # Nothing is read while requests wait, so it takes a write to notice.
            assert len([call for call in calls if isinstance(call.operation, SendMessage)]) <= 3

    with caplog.at_level(logging.WARNING):
        run(hang_up())
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x00\x01\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        post(SENT, chunked=True).replace(b"\r\n1\r\n", b"\r\nnone\r\n"),
        GET + post(SENT, chunked=True).replace(b"\r\n1\r\n", b"\r\nnone\r\n"),
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 100_000,
    ],
)
async def test_what_is_no_request_is_refused_after_the_answers_to_those_before_it(wrong: bytes) -> None:
    released = asyncio.Event()

    async def wait(call: Call) -> Result:
        await released.wait()
        return RECORD

    async with site() as running, asyncio.timeout(DEADLINE_S):
        running.handler.call = wait  # type: ignore[method-assign]  # the fake is to be slow
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(post(SENT) + GET + wrong)
        asyncio.get_running_loop().call_later(0.05, released.set)
        answer = await reader.read()
        writer.close()
    before = 3 if wrong.startswith(GET) else 2
    assert statuses(answer) == [200] * before + [400]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("offer", [H2C, WEBSOCKET, b"Upgrade: h2c, websocket\r\nConnection: upgrade\r\n"])
async def test_an_offer_to_upgrade_is_declined_and_costs_no_byte_of_the_body(
    served: Site, offer: bytes, *, chunked: bool
) -> None:
    request = post(SENT, headers=offer, chunked=chunked)
    answer = await served.raw(request + GET + request + LAST)
    assert statuses(answer) == [200, 200, 200, 404]
    assert [call.operation.message.text for call in served.handler.calls] == ["hi", "hi"]  # type: ignore[union-attr]  # only messages were sent
    assert b"101" not in answer


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_declined_upgrade_may_be_cut_anywhere(served: Site, *, chunked: bool) -> None:
    request = post(SENT, headers=H2C, chunked=chunked)
    whole = request + GET
    async with asyncio.timeout(4 * DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(whole)):
            writer.write(whole[:cut])
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # the server, in this loop, reads the first part
            writer.write(whole[cut:])
            for length in (None, len(b'{"status":"ok"}')):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 "), cut
                lines = dict(line.split(b": ") for line in head.lower().split(b"\r\n")[1:-2])
                body = await reader.readexactly(int(lines[b"content-length"]))
                assert length is None or len(body) == length
        writer.close()
    assert len(served.handler.calls) == len(whole) - 1
    assert {call.operation.message.text for call in served.handler.calls} == {"hi"}  # type: ignore[union-attr]  # only messages were sent


async def test_a_declined_upgrade_may_come_byte_by_byte(served: Site) -> None:
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post(SENT, headers=H2C, chunked=True) + LAST:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert statuses(await reader.read()) == [200, 404]
        writer.close()


async def test_a_stream_is_one_over_http_1_for_a_client_that_offers_http_2(served: Site) -> None:
    answer = await served.raw(post(SENT, headers=H2C, path=b"/message:stream") + LAST)
    assert statuses(answer) == [200, 404]
    assert b"content-type: text/event-stream" in answer
    assert b"artifactUpdate" in answer


async def test_the_offer_may_come_with_every_request_of_a_large_packet(served: Site) -> None:
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n" + H2C + b"\r\n"
    assert statuses(await served.raw(get * 2000 + LAST)) == [200] * 2000 + [404]


async def test_the_bounds_hold_for_a_request_that_offers_an_upgrade(served: Site) -> None:
    too_large = post(b" " * 100_001, headers=H2C)
    assert statuses(await served.raw(too_large)) == [413]
    without_end = b"GET / HTTP/1.1\r\nHost: x\r\n" + H2C + b"X-Long: " + b"x" * 100_000
    assert statuses(await served.raw(without_end)) == [400]
    wrong = post(SENT, headers=H2C + b"Host: y\r\n")
    answer = await served.raw(GET + wrong)
    assert statuses(answer) == [200, 400]
    assert b"more than one Host" in answer


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
async def test_curl_may_offer_http_2(served: Site) -> None:
    for extra in ((), ("-H", "Transfer-Encoding: chunked")):
        command = [
            *("curl", "-sS", "--noproxy", "*", "--http2", f"{served.url}/message:send", "-d", SENT.decode()),
            *("-H", "A2A-Version: 1.0", "-H", "Content-Type: application/json", "-w", " %{http_code}", *extra),
        ]
        curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await curl.communicate()
        assert out.endswith(b" 200"), out
    assert [call.operation.message.text for call in served.handler.calls] == ["hi", "hi"]  # type: ignore[union-attr]  # only messages were sent


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ([], b"no Host header"),
        ([b"a", b"a"], b"more than one Host"),
        ([b"a", b"b"], b"more than one Host"),
        ([b""], b"empty or malformed"),
        ([b"  "], b"empty or malformed"),
        ([b"a b"], b"empty or malformed"),
        ([b"a/b"], b"empty or malformed"),
        ([b"user@a"], b"empty or malformed"),
        ([b"a:port"], b"empty or malformed"),
        ([b"a:1:2"], b"empty or malformed"),
        ([b"[::1"], b"empty or malformed"),
        ([b"[::1]x"], b"empty or malformed"),
        ([b"\xc3\xa4"], b"empty or malformed"),
        ([b"a<script>"], b"empty or malformed"),
        ([b":80"], b"empty or malformed"),
    ],
)
async def test_a_request_without_one_proper_host_is_refused(served: Site, hosts: list[bytes], said: bytes) -> None:
    """RFC 9112 §3.2."""
    lines = b"".join(b"Host: %s\r\n" % host for host in hosts)
    answer = await served.raw(b"GET /tasks/t1 HTTP/1.1\r\n" + lines + b"A2A-Version: 1.0\r\n\r\n" + GET)
    assert statuses(answer) == [400]
    assert said in answer
    assert b"\r\nconnection: close\r\n" in answer
    assert served.handler.calls == []


@pytest.mark.parametrize(
    "host", [b"localhost", b"A.example.org.", b"a_b:80", b"127.0.0.1:7870", b"[::1]:7870", b"[fe80::1%25eth0]", b"a:"]
)
async def test_a_proper_host_is_taken(served: Site, host: bytes) -> None:
    answer = await served.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\nhOST: " + host + b"\r\n\r\n")
    assert statuses(answer) == [200]


async def test_http_1_0_needs_no_host(served: Site) -> None:
    assert statuses(await served.raw(b"GET /health HTTP/1.0\r\n\r\n")) == [200]
    assert statuses(await served.raw(b"GET /health HTTP/1.0\r\nHost:\r\n\r\n")) == [400]


@pytest.mark.parametrize("version", [b"0.9", b"2.0"])
async def test_a_version_without_answers_of_its_own_is_refused(served: Site, version: bytes) -> None:
    """Otherwise a stream without a length would be followed by the next answer on the same connection."""
    kept = b"GET /health HTTP/%s\r\nHost: x\r\nConnection: keep-alive\r\n\r\n" % version
    answer = await served.raw(GET + kept + LAST)
    assert statuses(answer) == [200, 400]
    assert b"use HTTP/1.1" in answer


@pytest.mark.parametrize(
    ("whole", "path"), [(b"http://x", b"/"), (b"http://x?a=b", b"/?a=b"), (b"http://x/health", b"/health")]
)
async def test_a_target_may_be_a_whole_url(served: Site, whole: bytes, path: bytes) -> None:
    """RFC 9112 §3.2.2: a server accepts this form, although clients send it to proxies alone."""
    answers = [
        await served.raw(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        for target in (whole, path)
    ]
    bodies = [answer.partition(b"\r\n\r\n")[2] for answer in answers]
    assert bodies[0] == bodies[1] != b""
    assert statuses(answers[0]) == statuses(answers[1]) != [400]


async def test_a_client_of_http_1_0_is_not_told_to_continue(served: Site) -> None:
    """RFC 9110 §10.1.1: it would take the 100 for its answer."""
    sent = post(SENT, headers=b"Expect: 100-continue\r\n").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    assert statuses(await served.raw(sent)) == [200]


async def test_this_is_no_proxy(served: Site) -> None:
    answer = await served.raw(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n")
    assert statuses(answer) == [400]
    assert b"not a proxy" in answer


async def test_trailers_are_no_headers(served: Site) -> None:
    request = post(SENT, chunked=True).removesuffix(b"\r\n") + b"Idempotency-Key: late\r\nHost: y\r\n\r\n"
    assert statuses(await served.raw(request + LAST)) == [200, 404]
    assert [call.idempotency_key for call in served.handler.calls] == [None]


async def test_a_head_without_end_is_refused(served: Site) -> None:
    async with asyncio.timeout(DEADLINE_S):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()
        writer.transport.abort()
    async with served.http.get("/health") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", [b"/message:send", b"/health"])
@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"0\r\n", b"X-Trailer: y\r\n" * 1000),
        (b"0\r\nX-Trailer: ", b"y" * 10_000),
        (b"5;x=", b"y" * 10_000),
    ],
    ids=["trailers", "a trailer", "a chunk extension"],
)
async def test_what_is_neither_head_nor_body_is_bounded(served: Site, path: bytes, begun: bytes, more: bytes) -> None:
    """`/health` is answered before its body has come, as a request is that is refused."""
    head = b"Host: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        method = b"GET" if path == b"/health" else b"POST"
        writer.write(b"%s %s HTTP/1.1\r\n%s%s" % (method, path, head, begun))
        if path == b"/health":
            await reader.readuntil(b'{"status":"ok"}')
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                writer.write(more)
                await writer.drain()
        writer.transport.abort()


async def test_a_long_body_of_small_chunks_and_some_trailers_are_read(served: Site) -> None:
    body = SENT + b" " * 20_000
    chunks = b"".join(b"1;name=value\r\n%c\r\n" % byte for byte in body) + b"0\r\n"
    trailers = b"X-Checksum: %s\r\n\r\n" % (b"0" * 30_000)
    head = post(b"abc", chunked=True).partition(b"\r\n\r\n")[0]
    assert statuses(await served.raw(head + b"\r\n\r\n" + chunks + trailers + LAST)) == [200, 404]


async def test_a_head_of_some_size_is_read(served: Site) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: " + b"x" * 30_000 + b"\r\n\r\n"
    assert (await served.raw(head)).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_is_silent_is_cut() -> None:
    async with site(keep_alive_s=0.05) as running:
        for begun in (b"", b"\r\n"):
            assert await running.raw(begun) == b""
        for begun in (b"G", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: "):
            answer = await running.raw(begun)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert answer.endswith(b"\r\n\r\nThe head of the request came too slowly.")
    async with site(keep_alive_s=0.5) as running:
        for after in (b"", b"\r\n"):
            answer = await running.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + after)
            assert answer.startswith(b"HTTP/1.1 200 ")


async def test_an_answer_to_head_does_not_wait_for_the_answer_behind_it() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            asked.set()
            await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"body"})

    listener, bound = Listener(app), bound_socket("127.0.0.1", 0)
    await listener.open(bound)
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + LAST)
        await asked.wait()
        assert statuses(await reader.readuntil(b"\r\n\r\n")) == [200]
        go.set()
        assert (await reader.read()).endswith(b"\r\n\r\nbody")
        writer.close()
    await listener.close(DEADLINE_S)


async def test_a_listener_that_retires_answers_what_has_come_and_takes_no_more() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            asked.set()
            await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    listener, bound = Listener(app), bound_socket("127.0.0.1", 0)
    await listener.open(bound)
    address = bound.getsockname()
    async with asyncio.timeout(DEADLINE_S):
        (idle, idles), (slow, slows), (begun, begins) = [await asyncio.open_connection(*address) for _ in range(3)]
        for reader, writer in ((idle, idles), (begun, begins)):
            writer.write(GET)
            assert statuses(await reader.readuntil(b"\r\n\r\n")) == [200]
        begins.write(GET[:10])
        slows.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await asked.wait()
        await asyncio.sleep(0)
        listener.retire()
        assert await idle.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        go.set()
        assert statuses(await slow.read()) == [200]
        begins.write(GET[10:])
        answer = await begun.read()
        assert statuses(answer) == [200]
        assert b"connection: close" in answer
        for writer in (idles, slows, begins):
            writer.close()
    await listener.close(DEADLINE_S)


@pytest.mark.parametrize("origins", [[], ["https://example.org"]])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_comes_with_its_head_is_bounded(
    monkeypatch: pytest.MonkeyPatch, origins: list[str], chunked: bool
) -> None:
    monkeypatch.setattr("dragoman.bindings.http.LINGER_S", 2 * DEADLINE_S)  # there is no rest of it to wait for
    headers = b"Connection: close\r\nOrigin: https://example.org\r\n" if origins else b"Connection: close\r\n"
    async with site(max_body_bytes=len(SENT), origins=origins) as running:
        assert statuses(await running.raw(post(SENT, headers=headers, chunked=chunked))) == [200]
        assert statuses(await running.raw(post(SENT + b" ", headers=headers, chunked=chunked))) == [413]


async def test_a_client_that_waits_for_an_answer_is_not_cut_before_it_is_idle() -> None:
    loop, pause_s, asked, go = asyncio.get_running_loop(), 0.05, asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    listener, bound = Listener(app, keep_alive_s=pause_s), bound_socket("127.0.0.1", 0)
    await listener.open(bound)
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(GET)
        await asked.wait()
        until_s = loop.time() + 3 * pause_s
        while loop.time() < until_s:  # the timer of the idle connection fires meanwhile
            await asyncio.wait([loop.create_future()], timeout=pause_s)
        assert listener.connections
        go.set()
        assert statuses(await reader.read()) == [204]
        writer.close()
    await listener.close(DEADLINE_S)


async def test_a_head_that_trickles_is_cut() -> None:
    async with site(keep_alive_s=0.2) as running, asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        cut = asyncio.create_task(reader.read())
        while not cut.done():
            writer.write(b"x")
            await asyncio.wait([cut], timeout=0.01)
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            assert (await cut).startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_keeps_coming_may_take_longer_than_silence() -> None:
    async with site(keep_alive_s=0.5) as running, asyncio.timeout(DEADLINE_S):
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: ")
        began_s = loop.time()
        while loop.time() < began_s + 1.0:
            writer.write(b"x" * 100)
            await asyncio.wait([loop.create_future()], timeout=0.01)
        writer.write(b"\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


@pytest.mark.parametrize(
    ("headers", "then"),
    [(b"", b""), (b"Connection: close\r\n", b""), (b"", b"no request\r\n\r\n")],
    ids=["silence", "close", "malformed"],
)
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_closing_does_not_wait_forever_for_a_reader_that_takes_nothing(
    headers: bytes, then: bytes, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """The answer is too short for the server to wait with the rest of it: it has been written, and not yet sent."""

    async def scenario() -> None:
        said = Part(text="x" * 50_000)
        loop = asyncio.get_running_loop()
        async with site(keep_alive_s=0.2, reader_pause_s=0.2, send_buffer_bytes=4096) as running:
            running.handler.answer = lambda call: replace(RECORD, artifacts=(Artifact(artifact_id="a", parts=(said,)),))
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                client.setblocking(False)
                async with asyncio.timeout(DEADLINE_S):
                    await loop.sock_connect(client, ("127.0.0.1", running.port))
                    await loop.sock_sendall(client, post(SENT, headers=headers) + then)
                    assert (await loop.sock_recv(client, 12)) == b"HTTP/1.1 200"
                    assert len(running.connections) == 1
                    while running.connections:
                        await asyncio.sleep(0.01)

    run(scenario())


async def test_a_reader_that_is_cut_off_is_counted_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    streams = Streams()
    said = Part(text="x" * 4_000_000)
    loop = asyncio.get_running_loop()
    async with site(reader_pause_s=0.2, send_buffer_bytes=4096, reader_cut=streams.cut) as running:
        running.handler.answer = lambda call: replace(RECORD, artifacts=(Artifact(artifact_id="a", parts=(said,)),))
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.setblocking(False)
            async with asyncio.timeout(DEADLINE_S):
                await loop.sock_connect(client, ("127.0.0.1", running.port))
                await loop.sock_sendall(client, post(SENT))
                while not streams.readers_cut:
                    await asyncio.sleep(0.01)
    assert streams.readers_cut == 1
    assert "a reader at 127.0.0.1 is cut off: it took nothing of its answer for 0.2 s" in caplog.text


async def test_connections_do_not_wait_for_acknowledgements() -> None:
    """asyncio sets TCP_NODELAY only where the protocol of the listening socket is named."""
    accepted: asyncio.Queue[int] = asyncio.Queue()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            accepted.put_nowait(option)

    with bound_socket("127.0.0.1", 0) as bound:
        server = await asyncio.get_running_loop().create_server(Accepting, sock=bound)
        async with asyncio.timeout(DEADLINE_S), server:
            _, writer = await asyncio.open_connection(*bound.getsockname())
            assert await accepted.get() == 1
            writer.close()
            await writer.wait_closed()


CLOSING_TURNS = 10
"""Turns of the loop in which a listener closes that has nothing to wait for."""


async def opened() -> tuple[Listener, socket.socket]:
    """A listener, and a client that has connected to it. The loop has had no turn since."""
    listener, bound = Listener(CurrentApp(make_app(ScriptedHandler(), ScriptedStore()))), bound_socket("127.0.0.1", 0)
    await listener.open(bound)
    client = socket.create_connection(bound.getsockname(), DEADLINE_S)
    return listener, client


@pytest.mark.parametrize("turns", range(8))
def test_closing_waits_for_nothing_but_answers(turns: int) -> None:
    """The connection may still be in the system's queue then, or be accepted, or wait for a request."""

    async def scenario() -> None:
        listener, client = await opened()
        with client:
            for _ in range(turns):
                await asyncio.sleep(0)
            closing = asyncio.create_task(listener.close(DEADLINE_S))
            for _ in range(CLOSING_TURNS):
                await asyncio.sleep(0)
            assert closing.done()
            assert not listener.connections
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""

    uvloop.run(scenario())  # asyncio (3.11) leaves a connection open that it has just accepted
