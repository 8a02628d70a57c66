"""Anything at all, sent to a server that runs: never a 500, never a word of its insides, and well afterwards.

Invariant 11 of docs/architecture.md: bad bytes raise one thing.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote_from_bytes

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

from dragoman.server import serving
from tests.spec.agents import Gates, house
from tests.spec.anything import (
    BODIES,
    CALLS,
    HEADERS,
    IDS,
    LEAVES,
    METHOD_NAMES,
    QUERIES,
    SEGMENTS,
    VALUES,
    VERSIONS,
    broken,
    json_bytes,
    request,
)
from tests.spec.caller import DEADLINE_S
from tests.spec.conftest import CONFIG, House
from tests.spec.failures import INNARDS
from tests.spec.lanes import LANES, RPC_1

pytestmark = pytest.mark.slow

PATIENCE_S = 0.15
"""How long an answer may take before we stop sending: a stream, a blocking send, or a body that never comes."""

RPC_PATHS = [b"/", b"/a2a"] + [
    base + agent
    for base in (b"/agents/", b"/", b"/api/v1/a2a/")
    for agent in (b"script", b"direct", b"plain", b"nobody")
]


class Errors(logging.Handler):
    """The errors in the log: an exception that nobody foresaw, a task of the server's that broke."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


class Besieged(Struct):
    """A server that gets everything; `tasks` are the ids that the names in requests stand for."""

    house: House
    tasks: dict[bytes, bytes]
    asked: int = 0
    answered: int = 0

    async def exchange(self, sent: bytes) -> None:
        """Send these bytes, and look at all that comes back until the server closes."""
        for name, task_id in self.tasks.items():
            sent = sent.replace(name, task_id)
        host, _, port = self.house.url.removeprefix("http://").partition(":")
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(sent)
                answer = b""
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_S):
                        answer = await reader.read()
                if not reader.at_eof():
                    writer.write_eof()
                    answer += await reader.read()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        self.asked += 1
        self.answered += bool(answer)
        check(sent, answer)


@pytest.fixture(scope="module")
async def besieged() -> AsyncIterator[Besieged]:
    """At the end it must be well, have answered, and have logged no error."""
    gates, errors = Gates(), Errors()
    logging.getLogger().addHandler(errors)
    async with serving(CONFIG, house(gates)) as url, aiohttp.ClientSession() as http:
        standing = House(url, http, gates)
        caller = standing.caller(RPC_1)
        done, waiting = [(await caller.send(text)).task.id for text in ("say hi", "ask")]
        working = await standing.working(caller, "for ever")
        tasks = {b"DONE": done.encode(), b"WAITING": waiting.encode(), b"WORKING": working.encode()}
        besieged = Besieged(standing, tasks)
        yield besieged
        for path in ("/health", "/ready"):
            async with http.get(url + path) as answer:
                assert answer.status == 200
        for lane in LANES:
            assert (await standing.caller(lane).send("say well")).task.text == "say well"
    logging.getLogger().removeHandler(errors)
    assert not errors.messages
    assert besieged.answered > besieged.asked // 2


def check(sent: bytes, answer: bytes) -> None:
    """A proper answer: its status is no fault of the server's, it says nothing of the inside, and its JSON is JSON."""
    if not answer:
        return  # what is not even HTTP may just be hung up on
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), answer
    status = int(head.split(b" ", 2)[1])
    assert status < 500 or status == 501, answer  # 501: 0.3 says so of what is not supported
    said = sent.decode("utf-8", "replace")
    for found in INNARDS.finditer(answer.decode("utf-8", "replace")):
        assert found[0] in said, (found[0], answer)
    if b"\r\ncontent-type: application/" in head.lower() and not sent.startswith(b"HEAD "):
        told = json.loads(body)
        assert isinstance(told, dict)
        assert status == 200 or told.keys() & {"error", "code", "detail"}, told


@given(
    params=broken() | VALUES,
    method=METHOD_NAMES | IDS,
    request_id=LEAVES,
    version=VERSIONS,
    path=st.sampled_from(RPC_PATHS),
    last=st.none() | IDS,
)
async def test_any_params_over_json_rpc(
    besieged: Besieged, params: Any, method: str, request_id: Any, version: str, path: bytes, last: str | None
) -> None:
    """JSON-RPC 2.0 §5: a result or an error, whatever the params."""
    body = json_bytes({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
    headers = {"A2A-Version": version.encode()}
    if last is not None:
        headers["Last-Event-ID"] = last.encode().translate(None, b"\r\n\0")
    await besieged.exchange(request("POST", path, body, headers))


@given(body=BODIES, called=CALLS, version=VERSIONS, query=QUERIES)
async def test_any_body_over_http(
    besieged: Besieged, body: bytes, called: tuple[str, bytes], version: str, query: bytes
) -> None:
    """A2A 1.0 §11.3: each route with any body and any query."""
    verb, path = called
    await besieged.exchange(request(verb, path + b"?" + query, body, {"A2A-Version": version.encode()}))


@given(
    verb=st.sampled_from(["GET", "POST", "HEAD", "DELETE", "OPTIONS", "PUT", "BREW"]),
    segments=st.lists(SEGMENTS, max_size=6),
    quoted=st.booleans(),
    headers=HEADERS,
    body=st.binary(max_size=20),
)
async def test_any_path_and_any_headers(
    besieged: Besieged, verb: str, segments: list[bytes], quoted: bool, headers: dict[str, bytes], body: bytes
) -> None:
    """Paths and headers that nobody thought of."""
    path = b"/" + b"/".join(quote_from_bytes(each, safe=b":").encode() if quoted else each for each in segments)
    await besieged.exchange(request(verb, path.translate(None, b" \r\n"), body, headers))


@given(sent=st.binary(max_size=200) | st.binary(max_size=80).map(lambda tail: b"GET /health HTTP/1.1\r\n" + tail))
@example(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
@example(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")
@example(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nhello!")
@example(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
@example(b"GET http://[::1]/ HTTP/1.1\r\n\r\n")
async def test_bytes_that_are_hardly_http(besieged: Besieged, sent: bytes) -> None:
    """RFC 9112 §2.2: what is not HTTP is told so, or hung up on."""
    await besieged.exchange(sent)
