"""The targets. Each takes bytes, and raises only if a property is broken."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from dragoman.client.card import interfaces, read_card
from dragoman.dialects import sse
from dragoman.dialects.api import Dialect
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.scalars import Unfit
from dragoman.dialects.jsonrpc import decode_request
from dragoman.dialects.registry import load_systems
from dragoman.dialects.v1.protobuf import GRPC
from dragoman.dialects.v1.protobuf.decode import METHODS
from dragoman.model.errors import A2AError, InvalidAgentResponse
from tests.http1.readers import read_answer, read_requests

Target = Callable[[bytes], None]

DIALECTS: tuple[tuple[Dialect, tuple[str, ...]], ...] = tuple(
    (system.dialect, tuple(sorted(system.methods))) for system in load_systems() if system.dialect is not None
)
"""Each dialect of the server over JSON-RPC, with its methods."""

EVENT_BYTES = 4096


def cut(data: bytes) -> Iterator[list[bytes]]:
    """The same bytes in pieces: cut where their first byte says, and byte by byte."""
    at = data[0] % (len(data) + 1) if data else 0
    yield [piece for piece in (data[:at], data[at:]) if piece]
    yield [data[i : i + 1] for i in range(len(data))]


def http1_request(data: bytes) -> None:
    """A server takes the same requests from the same bytes, however they are cut."""
    whole = read_requests([data])
    for pieces in cut(data):
        assert read_requests(pieces) == whole


def http1_answer(data: bytes) -> None:
    """A client takes the same answer from the same bytes, however they are cut."""
    whole = read_answer([data])
    for pieces in cut(data):
        assert read_answer(pieces) == whole


def json_request(data: bytes) -> None:
    """A request over JSON-RPC is an operation of its dialect, or is refused with an error of the protocol."""
    with suppress(A2AError):
        request = decode_request(data)
        for dialect, methods in DIALECTS:
            for method in {request.method, methods[len(data) % len(methods)]}:
                with suppress(A2AError):
                    dialect.decode(method, request.params)


def protobuf_request(data: bytes) -> None:
    """A request over gRPC is an operation, or is refused with an error of the protocol."""
    methods = sorted(METHODS)
    with suppress(A2AError):
        GRPC.decode(methods[data[0] % len(methods)] if data else methods[0], data[1:])


def event_stream(data: bytes) -> None:
    """A stream holds the same events, however it is cut; one that is too large is refused."""
    whole = _events([data])
    for pieces in cut(data):
        assert _events(pieces) == whole


def _events(pieces: list[bytes]) -> list[sse.ServerSentEvent] | None:
    parser, found = sse.Parser(max_event_bytes=EVENT_BYTES), list[sse.ServerSentEvent]()
    try:
        for piece in pieces:
            found += parser.feed(piece)
    except InvalidAgentResponse:
        return None
    return found


def agent_card(data: bytes) -> None:
    """A card is read, or says why it does not fit. What it names is a URL that can be called."""
    try:
        card = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(card, dict):
        return
    read_card(card)
    with suppress(Unfit):
        decode_card(card)
    for interface in interfaces(card, "https://agents.example.org/.well-known/agent-card.json", "https://example.org"):
        assert interface.to.host


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        target.__name__: target
        for target in (http1_request, http1_answer, json_request, protobuf_request, event_stream, agent_card)
    }
)
