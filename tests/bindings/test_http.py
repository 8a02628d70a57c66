"""The body: JSON, and not too much of it."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from dragoman.bindings.http import HttpRequest, error_response, is_json, read_json, send_response
from dragoman.bindings.limits import BODIES_AT_ONCE, LARGE_BYTES, Offload, make_limits
from dragoman.bindings.request import Parameters, RepeatedHeaders, Request, read_parameters
from dragoman.model.errors import PayloadTooLarge
from tests.bindings.conftest import DEADLINE_S, V1, Site, message, site

T = TypeVar("T")

V1_JSON = {**V1, "Content-Type": "application/json"}
SEND = json.dumps({"message": message()}).encode()
RPC = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": message()}}).encode()


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/a2a+json",
        "application/json; charset=utf-8",
        'Application/JSON;charset="UTF-8"',
        "application/vnd.api+json; profile=x",
    ],
)
async def test_json_in_any_spelling_is_taken(served: Site, content_type: str) -> None:
    async with served.http.post("/message:send", data=SEND, headers={**V1, "Content-Type": content_type}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "text/plain; application/json",
        "application/json; charset=latin-1",
        "text/json",
        "",
        "application/jsonx",
        "+json",
    ],
)
async def test_what_a_web_form_can_send_is_refused(served: Site, content_type: str) -> None:
    headers = {**V1, "Content-Type": content_type}
    async with served.http.post("/message:send", data=SEND, headers=headers) as answer:
        assert answer.status == 415
        assert (await answer.json(content_type=None))["error"]["code"] == 415
    async with served.http.post("/", data=RPC, headers=headers) as answer:
        assert answer.status == 415
        body = await answer.json()
        assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, -32600)
    assert served.handler.calls == []
    assert not is_json(content_type.encode())


async def test_a_body_without_a_content_type_is_refused(served: Site) -> None:
    for path, body in (("/", RPC), ("/message:send", SEND), ("/tasks/t1:cancel", b"{}")):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nConnection: close\r\n"
        answer = await served.raw(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert answer.startswith(b"HTTP/1.1 415 ")


async def test_cancel_and_subscribe_need_no_body_but_a_form_is_refused_even_empty(served: Site) -> None:
    head = b"POST /tasks/t1:cancel HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nConnection: close\r\n"
    assert (await served.raw(head + b"Content-Length: 0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert (await served.raw(head + b"\r\n")).startswith(b"HTTP/1.1 200 ")
    form = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n\r\n"
    assert (await served.raw(head + form)).startswith(b"HTTP/1.1 415 ")
    assert (await served.raw(head.replace(b":cancel", b":subscribe") + b"\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_declared_length_over_the_limit_is_refused_unread(served: Site) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
    answer = await served.raw(head + b"Expect: 100-continue\r\nContent-Length: 100001\r\n\r\n", until_closed=False)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


async def test_a_chunked_body_is_counted_while_it_is_read(served: Site) -> None:
    async def pieces():  # type: ignore[no-untyped-def]
        for _ in range(300):
            yield b" " * 1000

    headers = {**V1, "Content-Type": "application/json"}
    async with served.http.post("/message:send", data=pieces(), headers=headers) as answer:
        assert answer.status == 413
        assert "max_body_bytes" in (await answer.json(content_type=None))["error"]["message"]
    async with served.http.get("/health") as answer:
        assert answer.status == 200


async def test_the_rest_of_a_body_over_the_limit_is_read_before_the_connection_is_given_up() -> None:
    """Closing with unread bytes would reset it, and the caller might never see the answer (RFC 9112 §9.6)."""
    arriving = [{"type": "http.request", "body": b"x", "more_body": more} for more in (True, True, False)]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        assert b"".join(each.get("body", b"") for each in sent) == b"{}", "the whole answer goes first"
        assert sent[-1]["more_body"], "the answer has not ended yet"
        return arriving.pop(0)

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await send_response(
        error_response(PayloadTooLarge(9), 413, b"application/json", b"{}"), receive, send, lingers=True
    )
    assert arriving == []
    assert not sent[-1].get("more_body")


async def test_a_body_of_just_the_limit_is_read() -> None:
    async with site(max_body_bytes=2000) as running:
        for size, status in ((2000, 200), (2001, 413)):
            body = SEND + b" " * (size - len(SEND))
            headers = {**V1, "Content-Type": "application/json"}
            async with running.http.post("/message:send", data=body, headers=headers) as answer:
                assert answer.status == status


async def test_a_client_that_leaves_within_its_body_is_not_answered(
    served: Site, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(DEADLINE_S), served.http.get("/health") as answer:
        assert answer.status == 200
    assert served.handler.calls == []
    assert caplog.records == []


async def test_a_body_that_stops_arriving_is_given_up() -> None:
    async with site(body_pause_s=0.05) as running:
        for path in ("/", "/message:send", "/tasks/t1:cancel"):
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
            for sent in (b"", b"{"):
                answer = await running.raw(head.encode() + b"Content-Length: 9\r\n\r\n" + sent)
                assert answer.startswith(b"HTTP/1.1 408 ")
                assert b"stopped arriving" in answer
                assert b"connection: close" in answer.lower()


async def test_a_body_that_trickles_is_given_up() -> None:
    async with site(body_pause_s=0.2) as running, asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        head = b"POST /message:send HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: 90000\r\n\r\n")
        answer = asyncio.create_task(reader.read(1 << 16))
        while not answer.done():
            writer.write(b" ")
            await asyncio.wait([answer], timeout=0.01)
        writer.transport.abort()
        assert (await answer).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_keeps_coming_may_take_longer_than_a_pause() -> None:
    async with site(body_pause_s=0.2) as running, asyncio.timeout(DEADLINE_S):
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        head = b"POST /message:send HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
        size, began_s = 90_000, loop.time()
        writer.write(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % size + SEND)
        sent = len(SEND)
        while loop.time() < began_s + 0.6:  # three times as long as nothing may come
            writer.write(b" " * 100)
            sent += 100
            await asyncio.wait([loop.create_future()], timeout=0.01)
        writer.write(b" " * (size - sent))
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","method":"GetTask","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":NaN}}', -32700),
        (b"[" * 90_000, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"Nope"}', -32601),
    ],
)
async def test_a_body_that_is_no_call_is_a_json_rpc_error(served: Site, body: bytes, code: int) -> None:
    headers = {**V1, "Content-Type": "application/json"}
    async with served.http.post("/", data=body, headers=headers) as answer:
        assert answer.status == 200
        assert (await answer.json())["error"]["code"] == code


async def test_too_many_parts_are_refused(served: Site) -> None:
    many = {**message(), "parts": [{"text": "x"}] * 11}
    answer = await served.rpc("SendMessage", {"message": many})
    assert answer["error"]["code"] == -32602
    assert "max_parts" in answer["error"]["message"]


async def test_bodies_on_their_way_are_bounded_all_together_and_let_go_of_when_given_up() -> None:
    async with site(max_body_bytes=10_000) as running, contextlib.AsyncExitStack() as held:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n"
        writers = []
        for _ in range(BODIES_AT_ONCE):
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            held.callback(writer.close)
            writers.append(writer)
            writer.write(head + b"x" * 9_999)
        refused = b""
        while b" 503 " not in refused:  # as soon as theirs have come
            async with asyncio.timeout(DEADLINE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(head + b"x" * 5_000)
                await asyncio.sleep(0)
                writer.write(b"x" * 4_999)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        refused = await reader.readuntil(b"\r\n\r\n")
                writer.close()
        assert b"retry-after: 5" in refused.lower()
        for writer in writers:
            writer.close()
        status = 503
        async with asyncio.timeout(DEADLINE_S):
            while status == 503:
                async with running.http.post("/message:send", data=SEND + b" " * 9_000, headers=V1_JSON) as answer:
                    status = answer.status
        assert status == 200


class CountingOffload(Offload):
    """The thread for large bodies, which counts its jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0

    async def run(self, job: Callable[[], T]) -> T:
        self.jobs += 1
        return await super().run(job)


@pytest.mark.parametrize(("pieces", "jobs"), [(1, 0), (2, 0), (LARGE_BYTES // 1000 + 1, 1)])
async def test_a_large_body_is_put_together_beside_the_loop(pieces: int, jobs: int) -> None:
    """That takes 20 to 40 ms for 30 MB, and everybody else would wait for it."""
    sent = [{"type": "http.request", "body": bytes([n]) * 1000, "more_body": n < pieces - 1} for n in range(pieces)]
    arriving = iter(sent)

    async def receive() -> dict[str, object]:
        return next(arriving)

    offload = CountingOffload()
    limits = replace(make_limits(1_000_000, 64, 10), offload=offload)
    headers = {b"content-type": b"application/json"}
    request = HttpRequest("POST", headers, list(headers.items()), receive=receive, path="/")
    assert await read_json(request, limits) == b"".join(bytes([n]) * 1000 for n in range(pieces))
    assert (offload.jobs, limits.arriving.bytes, request.size) == (jobs, 0, pieces * 1000)


def repeated(headers: RepeatedHeaders, query: bytes = b"") -> Parameters:
    return read_parameters(Request("POST", headers, list(headers.items()), query=query))


def test_headers_that_come_again_are_read_once_and_a_query_each_time() -> None:
    headers = RepeatedHeaders({b"a2a-version": b"1.0", b"idempotency-key": b"k"})
    first = repeated(headers)
    assert first == Parameters(version="1.0", idempotency_key="k")
    assert repeated(headers) is first
    assert repeated(headers, b"since=7") == Parameters(version="1.0", idempotency_key="k", after="7")
    assert repeated(headers) is first
