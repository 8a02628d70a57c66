"""An endpoint of chat completions over real HTTP, that answers as a test says: well, slowly, brokenly, not at all.

Invariant: what it sends is bytes that the test can name; what it was asked is kept, and whether the asker left early.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

Json = dict[str, Any]

DONE = b"data: [DONE]\n\n"


class Asked(Struct):
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Json:
        """The JSON of it."""
        found: Json = json.loads(self.raw)
        return found


class Answering:
    """One answer on its way: what a test's script writes with."""

    def __init__(self, asked: Asked, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        self.asked = asked
        self.gone = gone
        self._writer = writer

    async def head(
        self, status: int = 200, kind: str = "text/event-stream", headers: Mapping[str, str] | None = None
    ) -> None:
        """The status and the headers; the body comes in chunks."""
        lines = {"Content-Type": kind, "Transfer-Encoding": "chunked", **(headers or {})}
        said = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await self._send(f"HTTP/1.1 {status} Status\r\n{said}\r\n".encode())

    async def write(self, data: bytes) -> None:
        """A piece of the body, in a packet of its own."""
        await self._send(b"%x\r\n%b\r\n" % (len(data), data))

    async def events(self, *chunks: Json) -> None:
        """Events of a stream, in one packet."""
        await self.write(b"".join(event(chunk) for chunk in chunks))

    async def end(self) -> None:
        """The end of the body."""
        await self._send(b"0\r\n\r\n")

    async def cut(self) -> None:
        """End the connection in the middle."""
        self._writer.transport.abort()

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


Script = Callable[[Answering], Awaitable[None]]


class Completions:
    """The endpoint: `scripts` answer the requests in turn, the last one all that follow."""

    def __init__(self) -> None:
        self.url = ""
        self.scripts: list[Script] = [said("Hello.")]
        self.asked: list[Asked] = []
        self.models: Json | None = {"object": "list", "data": [{"id": "small", "object": "model"}]}
        self.model_status = 200
        self.completion_status: int | None = None
        """The answer to a GET where completions are asked for; None: as for models."""
        self.arrived = asyncio.Event()
        """Something was asked."""
        self.left = asyncio.Event()
        """An asker has left before its answer was over."""
        self._tasks: set[asyncio.Task[None]] = set()

    def answers(self, *scripts: Script) -> None:
        """The next answer."""
        self.scripts = list(scripts)

    @property
    def body(self) -> Json:
        """The last request."""
        return self.asked[-1].body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ahead = b""
        try:
            while (asked := await _read(reader, ahead)) is not None:
                ahead = await self._answer(asked, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        except asyncio.CancelledError:
            return  # the test is over; asyncio's streams would log it
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Answer, and say what came meanwhile of the next request."""
        gone = asyncio.Event()
        answering = Answering(asked, writer, gone)
        if asked.method == "GET":
            status = self.completion_status if asked.path.endswith("/chat/completions") else None
            await answering.head(status or self.model_status, "application/json")
            await answering.write(json.dumps(self.models).encode())
            await answering.end()
            return b""
        self.asked.append(asked)
        self.arrived.set()
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        ahead: list[bytes] = []

        async def watch() -> None:
            try:
                ahead.append(await reader.read(1))
            except ConnectionError:
                ahead.append(b"")
            if not ahead[0]:
                gone.set()

        speaking, watching = asyncio.ensure_future(script(answering)), asyncio.ensure_future(watch())
        await asyncio.wait({speaking, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not gone.is_set():
            await asyncio.wait({speaking})
        for each in (speaking, watching):
            each.cancel()
        await asyncio.gather(speaking, watching, return_exceptions=True)
        if gone.is_set() or writer.transport.is_closing():
            self.left.set()
            raise ConnectionResetError
        return b"".join(ahead)

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def completions() -> AsyncIterator[Completions]:
    """An endpoint at a free port, gone with the block."""
    endpoint = Completions()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield endpoint
    finally:
        server.close()
        await endpoint.close()
        await server.wait_closed()


async def _read(reader: asyncio.StreamReader, ahead: bytes) -> Asked | None:
    line = ahead + await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


# -- what it says ------------------------------------------------------------------------------------------------------


def event(chunk: Json) -> bytes:
    """An event of a stream."""
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> Json:
    """A chunk as OpenAI sends it."""
    made: Json = {"content": content} if content is not None else {}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "delta": made | more, "logprobs": None, "finish_reason": finish}],
    }


def usage(given: int = 7, made: int = 3) -> Json:
    """The last chunk."""
    counts = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": counts}


def said(*texts: str, finish: str = "stop") -> Script:
    """An answer, at once."""

    async def script(answering: Answering) -> None:
        await answering.head()
        chunks = [delta("", role="assistant"), *(delta(text) for text in texts), delta(finish=finish), usage()]
        await answering.write(b"".join(map(event, chunks)) + DONE)
        await answering.end()

    return script


def called(*calls: tuple[str, str, str], text: str = "") -> Script:
    """Calls of tools, each an id, a name and arguments, which come in pieces."""

    async def script(answering: Answering) -> None:
        await answering.head()
        if text:
            await answering.events(delta(text))
        for index, (call_id, name, arguments) in enumerate(calls):
            first = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            await answering.events(delta(tool_calls=[first]))
            for at in range(0, len(arguments), 3):
                piece = {"index": index, "function": {"arguments": arguments[at : at + 3]}}
                await answering.events(delta(tool_calls=[piece]))
        await answering.write(event(delta(finish="tool_calls")) + event(usage()) + DONE)
        await answering.end()

    return script


def refused(status: int, error: Json | None = None, headers: Mapping[str, str] | None = None) -> Script:
    """An answer with an error's status."""

    async def script(answering: Answering) -> None:
        await answering.head(status, "application/json", headers)
        await answering.write(json.dumps({"error": error or {"message": "no", "type": "t", "code": None}}).encode())
        await answering.end()

    return script


def written(*pieces: bytes, kind: str = "text/event-stream", ends: bool = True) -> Script:
    """Those bytes, each in a packet of its own; then the end, or the end of the connection."""

    async def script(answering: Answering) -> None:
        await answering.head(kind=kind)
        for piece in pieces:
            await answering.write(piece)
            await asyncio.sleep(0)
        await (answering.end() if ends else answering.cut())

    return script


def silent(*texts: str) -> Script:
    """Some of an answer, and then nothing, for as long as the asker stays."""

    async def script(answering: Answering) -> None:
        await answering.head()
        if texts:
            await answering.events(*map(delta, texts))
        await answering.gone.wait()

    return script


def told(texts: Sequence[str]) -> bytes:
    """The bytes of a whole stream."""
    return b"".join(event(delta(text)) for text in texts) + event(delta(finish="stop")) + event(usage()) + DONE
