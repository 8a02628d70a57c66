"""A call's metadata as a Request, and the metadata of its answer.

Invariant: everything else sees a gRPC call as a Request, with metadata as headers and the procedure as method. gRPC
itself checks that names are lower case, and that a value has no control character.
"""

from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote

from msgspec import Struct

from dragoman.bindings.grpc.services import AGENT_HEADER
from dragoman.bindings.limits import Unread
from dragoman.bindings.request import IDEMPOTENCY_KEY, RESUMES_AFTER, Header, Request
from dragoman.bindings.routes import Route
from dragoman.model.errors import InvalidRequest

Metadata = Sequence[tuple[str, str | bytes]]
"""Names and values; a value is bytes if its name ends in `-bin`."""


SINGLE = (b"authorization", b"x-api-key", IDEMPOTENCY_KEY, RESUMES_AFTER, AGENT_HEADER)
"""The metadata that the server reads and that are no lists.

`a2a-version` is not among them: the official Python client (1.3.0) sends its own before the one that its caller names,
so the last one counts. gRPC's library itself keeps the last of several `traceparent`.
"""


class HttpSide(Struct, frozen=True):
    """Where the server's HTTP side is reached, for links."""

    scheme: str
    host: str
    port: int


def read_request(method: str, metadata: Metadata, peer: str, route: Route, server: HttpSide, unread: Unread) -> Request:
    """Make the Request of a call."""
    headers: list[Header] = []
    for name, value in metadata:
        headers.append((name.encode(), value if isinstance(value, bytes) else value.encode()))
    return Request(
        method=method,
        headers=dict(headers),
        header_list=headers,
        peer=peer_address(peer),
        scheme=server.scheme,
        server=(server.host, server.port),
        route=route,
        unread=unread,
    )


def check_repeats(request: Request) -> None:
    """Check that metadata with one meaning has one value. Raises InvalidRequest.

    gRPC allows a key to be repeated, as an interceptor does that adds what is already there. Lists are joined, as over
    HTTP, and a value may be repeated. Two different values contradict each other.
    """
    if len(request.headers) == len(request.header_list):
        return
    for name in SINGLE:
        if len({value for key, value in request.header_list if key == name}) > 1:
            text = name.decode()
            raise InvalidRequest(f"the metadata {text} is there more than once, with different values: send it once")


@lru_cache(maxsize=1024)
def peer_address(peer: str) -> str:
    """Return the address in gRPC's name of a peer: `ipv4:127.0.0.1:5000`, `ipv6:%5B::1%5D:5000`; empty for others."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
