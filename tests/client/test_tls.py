"""A client's TLS, a card that the caller already has, and the log of what goes over the wire."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from dragoman.client import BadTls, ClientTls, FoundCard, NoCard, NotReached, connect, find_card
from dragoman.model.task import Task, TaskState
from dragoman.net.egress import Egress
from tests.certificates import Authority
from tests.net.lines import Line, speaking

CARD = b'{"name":"far","supportedInterfaces":[{"url":"/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}'
TASK = (
    b'{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}'
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


async def serve_agent(line: Line) -> None:
    """Serve a card, and a task that is complete."""
    while True:
        head, _ = await line.asked()
        body = CARD if head.startswith("GET") else TASK
        await line.says(HEAD % len(body) + body)


async def test_an_authority_that_the_caller_names_is_trusted_in_place_of_the_machines(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with speaking(serve_agent, tls=authority.server("127.0.0.1")) as lines:
        url = f"https://127.0.0.1:{lines.port}"
        async with connect(url, tls=ClientTls(ca_file=str(authority.path))) as agent:
            task = await agent.send("hi")
        assert isinstance(task, Task)
        assert task.status.state is TaskState.COMPLETED
        with pytest.raises(NotReached, match="certificate"):
            async with connect(url):
                pass
        async with connect(url, tls=ClientTls(verify=False)) as agent:
            assert agent.card is not None
            assert agent.card.name == "far"


async def test_a_certificate_is_shown_to_a_server_that_asks_for_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server("127.0.0.1")
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(authority.path)
    authority.server("localhost")  # the client's certificate and its key, in one file
    async with speaking(serve_agent, tls=server) as lines:
        url, trusted = f"https://127.0.0.1:{lines.port}", str(authority.path)
        shown = ClientTls(ca_file=trusted, certificate_file=str(tmp_path / "localhost.pem"))
        async with connect(url, tls=shown) as agent:
            assert isinstance(await agent.send("hi"), Task)
        with pytest.raises((NotReached, NoCard)):
            async with connect(url, tls=ClientTls(ca_file=trusted)):
                pass


@pytest.mark.parametrize(
    ("tls", "names"),
    [
        (ClientTls(ca_file="nowhere.pem"), "nowhere.pem: no such file"),
        (ClientTls(ca_file=__file__), "test_tls.py: .*name a PEM file"),
        (ClientTls(certificate_file="cert.pem", key_file="key.pem"), "cert.pem and key.pem: no such file"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_with_the_fix(tls: ClientTls, names: str) -> None:
    with pytest.raises(BadTls, match=f"(?i){names}"):
        async with connect("https://127.0.0.1:1", tls=tls):
            pass


async def test_a_card_that_the_caller_has_is_not_fetched_again() -> None:
    async with speaking(serve_agent) as lines:
        egress = Egress()
        found = await find_card(f"http://127.0.0.1:{lines.port}", egress=egress)
        assert found.card["name"] == "far"
        elsewhere = FoundCard(found.card, "http://127.0.0.1:1/.well-known/agent-card.json")
        async with connect("http://127.0.0.1:1", card=elsewhere, egress=egress) as agent:
            assert agent.interface.url == "http://127.0.0.1:1/rpc"  # relative to where the caller says it is from
        async with connect(f"http://127.0.0.1:{lines.port}", card=found, egress=egress) as agent:
            assert isinstance(await agent.send("hi"), Task)
        await egress.close()


class Recorder:
    """Records what goes over the wire."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def request(self, verb: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.lines.append(f"> {verb} {url} {body.decode()}")

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.lines.append(f"< {status} {body.decode()}")

    def piece(self, data: bytes) -> None:
        self.lines.append(f"< {data.decode()}")


async def stream_task(line: Line) -> None:
    """Serve a card, and a stream whose only event is a task that is complete."""
    head, _ = await line.asked()
    await line.says(HEAD % len(CARD) + CARD)
    await line.asked()
    event = b"data: " + TASK + b"\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(event)
    await line.says(head + event)
    await line.ended()


async def test_a_stream_whose_wire_log_fails_holds_no_connection() -> None:
    async def serve_streams(line: Line) -> None:
        while True:
            head, _ = await line.asked()
            event = b"data: " + TASK + b"\n\n"
            kind = b"Content-Type: text/event-stream\r\n"
            streamed = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (kind, len(event)) + event
            await line.says(HEAD % len(CARD) + CARD if head.startswith("GET") else streamed)

    class Full(Recorder):
        def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            raise OSError("no space left")

    egress = Egress(connections_max=1)
    async with (
        asyncio.timeout(60),
        speaking(serve_streams) as lines,
        connect(f"http://127.0.0.1:{lines.port}", wire=Full(), egress=egress) as agent,
    ):
        for _ in range(2):
            with pytest.raises(OSError, match="no space left"):
                _ = [update async for update in agent.stream("hello there")]
    await egress.close()


async def test_the_wire_log_is_told_of_requests_answers_and_streams() -> None:
    recorder = Recorder()
    async with speaking(serve_agent) as lines, connect(f"http://127.0.0.1:{lines.port}", wire=recorder) as agent:
        await agent.send("hello there")
    assert len(recorder.lines) == 2
    assert "SendMessage" in recorder.lines[0]
    assert "hello there" in recorder.lines[0]
    assert recorder.lines[1] == f"< 200 {TASK.decode()}"
    streamed = Recorder()
    async with (
        asyncio.timeout(60),
        speaking(stream_task) as lines,
        connect(f"http://127.0.0.1:{lines.port}", wire=streamed) as agent,
    ):
        async for _ in agent.stream("hello there"):
            pass
    assert "SendStreamingMessage" in streamed.lines[0]
    assert TASK.decode() in "".join(streamed.lines[1:])
