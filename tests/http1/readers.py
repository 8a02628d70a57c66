"""Two readers of the same bytes: Dragoman and h11."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import h11

from dragoman.bindings.http import Receive, Scope, Send
from dragoman.bindings.http1.connection import Connections, ServerConnection
from dragoman.net.exchange import HttpAnswer, NotHttp, Want


class Read(NamedTuple):
    """A request or an answer that was taken for whole."""

    start: bytes
    """Method and target, or the status."""
    body: bytes


class Reading(NamedTuple):
    """The messages that a reader took from some bytes, in order, and whether it refused the rest."""

    read: tuple[Read, ...]
    refused: bool


class ReaderTransport:
    """A socket whose other side takes everything."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def read_requests(pieces: Sequence[bytes]) -> Reading:
    """The requests that an application is given by a connection of the server."""
    return asyncio.run(_read_requests(pieces))


async def _read_requests(pieces: Sequence[bytes]) -> Reading:
    found: list[Read] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
                found.append(Read(scope["method"].encode() + b" " + target, body))
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
                await send({"type": "http.response.body", "body": b""})
                return

    connections = Connections(app, keep_alive_s=60, reader_pause_s=60)
    connection = ServerConnection(connections, asyncio.get_running_loop())
    transport = ReaderTransport()
    connection.connection_made(cast("asyncio.Transport", transport))
    for piece in pieces:
        if transport.closed:
            break
        connection.data_received(piece)
        await _quiet()
    refused = any(f"HTTP/1.1 {status}".encode() in transport.written for status in (400, 408, 501, 503))
    connection.connection_lost(None)
    await asyncio.gather(*connections.tasks.values())
    return Reading(tuple(found), refused)


async def _quiet() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def read_requests_h11(pieces: Sequence[bytes]) -> Reading:
    """The requests that h11 takes from the same bytes, each answered at once."""
    connection, found = h11.Connection(h11.SERVER), list[Read]()
    start, body = b"", b""
    try:
        for piece in pieces:
            connection.receive_data(piece)
            while True:
                match connection.next_event():
                    case h11.Request() as request:
                        start, body = request.method + b" " + request.target, b""
                    case h11.Data() as data:
                        body += data.data
                    case h11.EndOfMessage():
                        found.append(Read(start, body))
                        connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                        connection.send(h11.EndOfMessage())
                        if connection.our_state is h11.MUST_CLOSE:
                            return Reading(tuple(found), refused=False)
                        connection.start_next_cycle()
                    case h11.NEED_DATA | h11.PAUSED:
                        break
                    case _:
                        break
    except h11.RemoteProtocolError:
        return Reading(tuple(found), refused=True)
    return Reading(tuple(found), refused=False)


class AnswerReading(NamedTuple):
    """An answer that was read, and whether its connection may carry another request."""

    reading: Reading
    clean: bool


def read_answer(pieces: Sequence[bytes]) -> AnswerReading:
    """The answer that a connection of the client takes from bytes, after which the other side closes."""
    answer = HttpAnswer(want=Want.ALL)
    try:
        for piece in pieces:
            answer.receive(piece)
        clean = answer.clean
        answer.end()
    except NotHttp:
        return AnswerReading(Reading((), refused=True), clean=False)
    if not answer.whole or answer.is_compressed:
        return AnswerReading(Reading((), refused=True), clean)
    return AnswerReading(Reading((Read(str(answer.status).encode(), answer.body),), refused=False), clean)


def read_answer_h11(pieces: Sequence[bytes]) -> Reading:
    """The answer that h11 takes from the same bytes."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    status, body = b"", b""
    try:
        for piece in [*pieces, b""]:
            connection.receive_data(piece)
            while True:
                event: Any = connection.next_event()
                if isinstance(event, h11.Response):
                    status = str(event.status_code).encode()
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    return Reading((Read(status, body),), refused=False)
                elif isinstance(event, h11.InformationalResponse):
                    continue
                else:
                    break
    except h11.RemoteProtocolError:
        pass
    return Reading((), refused=True)
