"""The call of a stream that was sent before anybody waits for it, while the agent's card changes."""

import asyncio
import json
from typing import Any

from dragoman.client import connect
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import StreamMessage
from tests.kit import loopback
from tests.net.peer import Asked, read_request

TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
HELLO = StreamMessage(message=Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),)))


class Moving:
    """An agent with a card that keeps its connections. A send to any place but `at` is 404, once `answers` is set."""

    def __init__(self) -> None:
        self.at = "/old"
        self.streams = True
        self.answers = asyncio.Event()
        self.asked: list[tuple[str, str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await read_request(reader)
                if asked.method == "GET":
                    self._write(writer, "200 OK", "application/json", self._card(asked))
                    continue
                self.asked.append((asked.path, asked.json["method"]))
                await self.answers.wait()
                if asked.path != self.at:
                    self._write(writer, "404 Not Found", "text/plain", b"")
                    continue
                frame = json.dumps({"jsonrpc": "2.0", "id": asked.json["id"], "result": {"task": TASK}})
                self._write(writer, "200 OK", "text/event-stream", f"data: {frame}\n\n".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _write(self, writer: asyncio.StreamWriter, status: str, kind: str, body: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    def _card(self, asked: Asked) -> bytes:
        url = f"http://{asked.headers['host']}{self.at}"
        entry = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        card: dict[str, Any] = {"name": "a", "supportedInterfaces": [entry]}
        return json.dumps({**card, "capabilities": {"streaming": self.streams}}).encode()


async def sent_while_the_card_changes(there: Moving, **changed: Any) -> None:
    """Send HELLO at once, change the agent while it is under way, and read the answer."""
    async with loopback.listening(there.serve) as port, connect(f"http://127.0.0.1:{port}") as agent:
        begun = agent.begin_stream(HELLO)
        assert begun is not None
        for name, value in changed.items():
            setattr(there, name, value)
        await agent.refresh(anew=True)
        there.answers.set()
        await begun.waiting
        stream = agent.task_stream(HELLO, begun=begun)
        assert [getattr(update, "id", "") for update in await stream.next() or ()] == ["t"]
        stream.close()


async def test_a_call_whose_endpoint_is_gone_when_it_answers_goes_to_the_new_one() -> None:
    there = Moving()
    await sent_while_the_card_changes(there, at="/new")
    assert there.asked == [("/old", "SendStreamingMessage"), ("/new", "SendStreamingMessage")]


async def test_a_call_is_read_although_the_agent_has_no_streams_any_more() -> None:
    there = Moving()
    await sent_while_the_card_changes(there, streams=False)
    assert there.asked == [("/old", "SendStreamingMessage")]
