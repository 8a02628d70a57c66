"""Limits as callers meet them: a whole server, and clients that are slow, many, silent, or want too much."""

import asyncio
import contextlib
import io
import json
import resource
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.model.ids import new_id
from dragoman.server.running import serving

DEADLINE_S = 60.0
V1 = {"A2A-Version": "1.0"}
CHUNK = 16_384


def agent() -> Agent:
    """Gives back its text; or waits for "go", sent to any of its tasks, and then says much."""
    found = Agent("echo")
    go = asyncio.Event()

    @found.skill
    async def answer(ctx: Context) -> AsyncIterator[str]:
        word, _, count = ctx.text.partition(" ")
        match word:
            case "hang":
                yield "begun"
                await asyncio.Event().wait()
            case "go":
                go.set()
                yield "gone"
            case "pour":
                await go.wait()
                for _ in range(int(count)):
                    yield "x" * CHUNK
                    await asyncio.sleep(0)
            case _:
                yield ctx.text

    return found


class Site:
    """A server, and one of its well-behaved callers."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url, self.http = url, http
        self.host, self.port = urlsplit(url).hostname or "", urlsplit(url).port or 0

    def post(self, verb: str, text: str, *, at_once: bool = False) -> "aiohttp.client._RequestContextManager":
        message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {"message": message, "configuration": {"returnImmediately": at_once}}
        return self.http.post(f"{self.url}/message:{verb}", json=body, headers=V1)

    async def send(self, text: str, *, at_once: bool = False) -> Any:
        async with self.post("send", text, at_once=at_once) as answer:
            assert answer.status == 200, await answer.text()
            return (await answer.json())["task"]

    async def rpc(self, method: str, params: Any) -> tuple[aiohttp.ClientResponse, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.http.post(self.url, json=body, headers=V1) as answer:
            return answer, await answer.json()

    async def is_well(self) -> None:
        """Others are answered."""
        async with asyncio.timeout(DEADLINE_S):
            tasks = await asyncio.gather(*(self.send("hi") for _ in range(20)))
        assert {task["status"]["state"] for task in tasks} == {"TASK_STATE_COMPLETED"}


@asynccontextmanager
async def site(directory: Path, **settings: Any) -> AsyncIterator[Site]:
    config = Config(port=0, store=f"sqlite:///{directory}/d.db", shutdown_grace_s=0.1, cancel_grace_s=0.1, **settings)
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with serving(config, [agent()]) as url, aiohttp.ClientSession(timeout=timeout) as http:
        yield Site(url, http)


@asynccontextmanager
async def connections(here: Site, many: int, begun: bytes, answer: bytes = b"") -> AsyncIterator[list[socket.socket]]:
    """So many connections, each with that sent, and that much of an answer read."""
    loop = asyncio.get_running_loop()
    opened: list[socket.socket] = []
    try:
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(many):
                one = socket.socket()
                opened.append(one)
                one.setblocking(False)
                await loop.sock_connect(one, (here.host, here.port))
                await loop.sock_sendall(one, begun)
                if answer:
                    assert (await loop.sock_recv(one, 1 << 16)).startswith(answer)
        yield opened
    finally:
        for one in opened:
            one.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Enough open files for both ends of a few thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4000:
        pytest.skip(f"the machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- slow and silent clients -------------------------------------------------------------------------------------------

HEAD = b"POST /message:send HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("begun", [b"", b"P", HEAD, HEAD + b"Content-Length: 1000\r\n\r\n{"])
async def test_clients_that_never_finish_a_request_hold_nobody_up(tmp_path: Path, begun: bytes) -> None:
    async with site(tmp_path) as here, connections(here, 200, begun) as slow:
        await here.is_well()
        loop = asyncio.get_running_loop()
        for one in slow:
            await loop.sock_sendall(one, b" ")
        await here.is_well()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/agents/echo",
        "/echo",
        "/a2a",
        "/api/v1/a2a/echo",
        "/message:send",
        "/v1/message:send",
        "/v1/chat/completions",
        "/mcp",
    ],
)
async def test_a_body_that_stops_arriving_is_a_408_in_every_binding(tmp_path: Path, path: str) -> None:
    async with site(tmp_path, body_pause_s=0.05) as here, asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(here.host, here.port)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
        )
        writer.write(head.encode())
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 408 ")
        assert "stopped arriving" in answer


async def test_a_thousand_idle_connections_hold_nobody_up(tmp_path: Path, many_files: None) -> None:
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with site(tmp_path) as here, connections(here, 1200, get, b"HTTP/1.1 200 ") as idle:
        await here.is_well()
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(idle[-1], get)
        assert (await loop.sock_recv(idle[-1], 1 << 16)).startswith(b"HTTP/1.1 200 ")


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise AssertionError("no VmRSS")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_clients_that_never_read_cost_no_memory_and_hold_no_reader_up(tmp_path: Path) -> None:
    chunks, stalled = 1000, 20  # 16 MB each: 330 MB, if the server kept what they do not read
    async with site(tmp_path) as here:
        task = await here.send(f"pour {chunks}", at_once=True)
        subscribe = f"POST /tasks/{task['id']}:subscribe HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n"
        async with connections(here, stalled, subscribe.encode(), b"HTTP/1.1 200 "):
            before_mb = resident_mb()
            url = f"{here.url}/tasks/{task['id']}:subscribe"
            async with asyncio.timeout(DEADLINE_S), here.http.post(url, headers=V1) as stream:
                await here.send("go")
                size = 0
                async for piece in stream.content.iter_any():
                    size += len(piece)
            assert size > chunks * CHUNK
            assert resident_mb() - before_mb < 120
            await here.is_well()


# -- answers that nobody reads -----------------------------------------------------------------------------------------

TEXT = "x" * 200_000
PAGE_BYTES = 8_500_000
"""Twice what Linux keeps for a client that does not read."""


def request_of(path: str, body: Any) -> bytes:
    said = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(said) + said


LISTING = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"includeArtifacts": True}}


async def filled(here: Site, many: int) -> None:
    """Make tasks of 400 KB each."""
    for _ in range(many):
        await here.send(TEXT)


@asynccontextmanager
async def reading_nothing(here: Site, many: int, asked: bytes) -> AsyncIterator[list[socket.socket]]:
    """So many clients that have asked and read nothing, with little room in the system for what comes."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as opened:
        clients = []
        for _ in range(many):
            one = opened.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
            one.setblocking(False)
            await loop.sock_connect(one, (here.host, here.port))
            await loop.sock_sendall(one, asked)
            clients.append(one)
        yield clients


async def beginning(client: socket.socket) -> bytes:
    """The first line of an answer, which is left where it is."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(BlockingIOError):
                if b"\r\n" in (seen := client.recv(1000, socket.MSG_PEEK)):
                    return seen.partition(b"\r\n")[0]
            await asyncio.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_pages_that_nobody_reads_cost_what_is_allowed_and_hold_nobody_up(tmp_path: Path) -> None:
    """30 callers, of pages of 8 MB each: 240 MB, if the server kept what they do not read."""
    async with site(tmp_path, max_unread_bytes=24_000_000, max_page_bytes=PAGE_BYTES) as here:
        await filled(here, 20)
        before_mb = resident_mb()
        async with reading_nothing(here, 30, request_of("/", LISTING)) as clients:
            answers = [await beginning(client) for client in clients]
            assert set(answers) == {b"HTTP/1.1 200 OK", b"HTTP/1.1 429 Too Many Requests"}
            assert 2 <= answers.count(b"HTTP/1.1 200 OK") <= 10
            assert resident_mb() - before_mb < 120
            await here.is_well()
            refused = b""
            while b"max_unread_bytes" not in refused:
                refused += await asyncio.get_running_loop().sock_recv(clients[answers.index(answers[-1])], 65_536)
            assert b"\r\nretry-after: 5\r\n" in refused
        async with asyncio.timeout(DEADLINE_S):
            while (await here.rpc("ListTasks", {}))[0].status != 200:
                await asyncio.sleep(0.01)  # until the server has seen that they left


async def test_a_large_task_is_not_sent_to_those_who_read_nothing(tmp_path: Path) -> None:
    async with site(tmp_path, max_unread_bytes=9_000_000) as here:
        message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": "x" * 4_000_000}]}
        sent = io.BytesIO(json.dumps({"message": message}).encode())
        headers = {**V1, "Content-Type": "application/json"}
        async with here.http.post(f"{here.url}/message:send", data=sent, headers=headers) as answer:
            asked = {"id": (await answer.json())["task"]["id"]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": asked}
        async with reading_nothing(here, 1, request_of("/", body)) as (client,):
            assert await beginning(client) == b"HTTP/1.1 200 OK"
            for _ in range(3):
                answer, said = await here.rpc("GetTask", asked)
                assert (answer.status, "max_unread_bytes" in json.dumps(said)) == (429, True)
            await here.is_well()
        async with asyncio.timeout(DEADLINE_S):
            while answer.status != 200:
                await asyncio.sleep(0.01)  # until the server has seen that it left
                answer, said = await here.rpc("GetTask", asked)
        assert len(said["result"]["artifacts"][0]["parts"][0]["text"]) == 4_000_000


async def test_a_page_of_large_tasks_goes_on_with_its_token_in_every_dialect(tmp_path: Path) -> None:
    async with site(tmp_path, max_page_bytes=1_000_000) as here:
        await filled(here, 5)
        for path in ("/", "/agents/echo"):
            found, token = list[str](), ""
            while True:
                params = {"includeArtifacts": True, "pageToken": token}
                body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
                async with here.http.post(f"{here.url}{path}", json=body, headers=V1) as answer:
                    page = (await answer.json())["result"]
                assert 1 <= len(page["tasks"]) <= 2
                assert page["totalSize"] == 5
                found += [task["id"] for task in page["tasks"]]
                token = page["nextPageToken"]
                if not token:
                    break
            assert len(set(found)) == 5
        listed = {"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": {}}
        found = []
        while len(found) < 5:  # BeeOS
            listed["params"] = {"limit": 4, "offset": len(found)}
            async with here.http.post(f"{here.url}/echo", json=listed) as answer:
                page = (await answer.json())["result"]
            assert page["limit"] == (2 if len(found) < 3 else 4)  # the last page is whole
            assert (page["total"], page["offset"]) == (5, len(found))
            found += [task["id"] for task in page["tasks"]]
        assert len(set(found)) == 5


async def test_a_reader_that_takes_nothing_is_cut_off_and_its_room_is_free(tmp_path: Path) -> None:
    async with site(tmp_path, max_unread_bytes=65_536, max_page_bytes=PAGE_BYTES, reader_pause_s=2.0) as here:
        await filled(here, 20)
        async with reading_nothing(here, 1, request_of("/", LISTING)) as (client,):
            assert await beginning(client) == b"HTTP/1.1 200 OK"
            answer, said = await here.rpc("ListTasks", LISTING["params"])
            assert (answer.status, "max_unread_bytes" in json.dumps(said)) == (429, True)
            body = {"model": "echo", "messages": [{"role": "user", "content": TEXT}]}
            async with here.http.post(f"{here.url}/v1/chat/completions", json=body) as chat:
                assert (chat.status, chat.headers["x-should-retry"]) == (429, "false")
            async with asyncio.timeout(DEADLINE_S):
                while answer.status != 200:
                    await asyncio.sleep(0.01)
                    answer, _ = await here.rpc("ListTasks", LISTING["params"])


async def test_a_reader_that_takes_little_at_a_time_is_not_cut_off(tmp_path: Path) -> None:
    async with site(tmp_path, reader_pause_s=1.0) as here:
        await filled(here, 10)
        loop = asyncio.get_running_loop()
        async with reading_nothing(here, 1, request_of("/", LISTING)) as (client,), asyncio.timeout(DEADLINE_S):
            size, ends = 0, loop.time() + 2.0  # twice as long as it may take nothing
            while size < 3_900_000:
                size += len(piece := await loop.sock_recv(client, 65_536))
                assert piece
                if size < 3_000_000 and loop.time() < ends:
                    await asyncio.sleep(0.03)


# -- large bodies ------------------------------------------------------------------------------------------------------


def sent(path: str, text: str, metadata: Any = None) -> Any:
    """A send as it is spelled at that path."""
    tag = {"/echo": "type", "/api/v1/a2a/echo": "type"}.get(path, "kind")
    old = {"messageId": new_id(), "role": "user", "parts": [{tag: "text", "text": text}]}
    new = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}]}
    match path:
        case "/message:send":
            return {"message": new, "metadata": metadata or {}}
        case "/v1/chat/completions":
            return {"model": "echo", "messages": [{"role": "user", "content": text}], "metadata": metadata}
        case "/mcp":
            params = {"name": "echo_answer", "arguments": {"message": text, "data": {"a": metadata or {}}}}
            return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        case "/":
            params = {"message": new, "metadata": metadata or {}}
            return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        case _:
            params = {"message": old, "metadata": metadata or {}}
            return {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/agents/echo",
        "/echo",
        "/a2a",
        "/api/v1/a2a/echo",
        "/message:send",
        "/v1/chat/completions",
        "/mcp",
    ],
)
async def test_a_body_that_takes_long_to_decode_is_refused_and_a_long_text_is_not(tmp_path: Path, path: str) -> None:
    async with site(tmp_path) as here:
        tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        async with here.http.post(f"{here.url}/mcp", json=tools) as answer:
            tool = (await answer.json())["result"]["tools"][0]["name"]

        async def said(text: str, metadata: Any = None) -> str:
            body = io.BytesIO(json.dumps(sent(path, text, metadata)).replace("echo_answer", tool).encode())
            headers = {"Content-Type": "application/json"} | (V1 if path in ("/", "/message:send") else {})
            async with here.http.post(f"{here.url}{path}", data=body, headers=headers) as answer:
                return await answer.text()

        assert "max_values" in await said("hi", {"numbers": [1] * 250_000})
        text = "a, b: [c]; " * 250_000
        told = await said(text)
        assert "error" not in told[:2000]
        assert text in told
        assert "max_text" in await said(text * 2)
        assert "8388608 bytes beside its files" in await said("hi", {"texts": ["x" * 3_000_000] * 3})


# -- too much ----------------------------------------------------------------------------------------------------------


async def test_a_stream_too_many_is_refused_until_another_ends(tmp_path: Path) -> None:
    async with site(tmp_path, max_streams=2) as here, contextlib.AsyncExitStack() as held:
        first = await here.post("stream", "hang")
        await held.enter_async_context(here.post("stream", "hang"))
        async with here.post("stream", "hang") as third:
            assert third.status == 429
            assert int(third.headers["Retry-After"]) >= 1
            assert "max_streams" in (await third.json())["error"]["message"]
        answer, said = await here.rpc("SubscribeToTask", {"id": "nope"})
        assert "max_streams" in said["error"]["message"]
        assert int(answer.headers["Retry-After"]) >= 1
        await here.is_well()  # what is no stream goes on
        first.close()
        async with asyncio.timeout(DEADLINE_S):
            while True:  # the server sees that it is closed in its own time
                async with here.post("stream", "hi") as again:
                    if again.status == 200:
                        assert b"TASK_STATE_COMPLETED" in await again.read()
                        break


async def test_a_request_too_many_is_refused_with_the_time_to_come_back(tmp_path: Path) -> None:
    async with site(tmp_path, max_requests_per_s=1) as here:
        refused = []
        for _ in range(5):
            async with here.http.get(f"{here.url}/tasks", headers=V1) as answer:
                if answer.status != 200:
                    assert answer.status == 429
                    refused.append((answer.headers["Retry-After"], (await answer.json())["error"]["message"]))
        assert len(refused) >= 3
        assert refused[0] == ("1", "more requests than 1 a second (max_requests_per_s)")


async def test_what_is_too_large_is_refused_by_its_name(tmp_path: Path) -> None:
    async with site(tmp_path, max_text=2000, max_parts=3, max_depth=8, max_body_bytes=100_000) as here:

        async def refusal(*parts: Any) -> tuple[int, str]:
            body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": list(parts)}}
            async with here.http.post(f"{here.url}/message:send", json=body, headers=V1) as answer:
                return answer.status, json.dumps(await answer.json())

        status, said = await refusal({"text": "ok"}, {"text": "x" * 2001})
        assert (status, "message.parts[1].text" in said, "max_text" in said) == (400, True, True)
        status, said = await refusal({"data": {"a": ["x" * 2001]}})
        assert (status, "message.parts[0].data" in said, "max_text" in said) == (400, True, True)
        status, said = await refusal(*[{"text": "ok"}] * 4)
        assert (status, "max_parts" in said) == (400, True)
        status, said = await refusal({"data": [[[[[[[[[]]]]]]]]]})
        assert (status, "max_depth" in said) == (400, True)
        status, said = await refusal({"text": "x" * 100_000})
        assert (status, "max_body_bytes" in said) == (413, True)
        assert (await refusal({"text": "x" * 2000}))[0] == 200

        async def said_before(history: Any, **more: Any) -> str:
            said = {"role": "user", "parts": [{"type": "text", "text": "ok"}]}
            params = {"message": said, "history": history, **more}
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
            async with here.http.post(f"{here.url}/api/v1/a2a/echo", json=body) as answer:
                return json.dumps(await answer.json())

        many = {"role": "user", "parts": [{"type": "text", "text": "ok"}] * 4}
        assert "history[0].parts: at most 3 parts are allowed (max_parts)" in await said_before([many])
        assert "max_text" in await said_before([{"role": "user", "parts": [{"type": "text", "text": "x" * 2001}]}])
        assert "metadata: " in await said_before([], metadata={"a": "x" * 2001})
        assert "completed" in await said_before([], metadata={"a": "x" * 2000})
