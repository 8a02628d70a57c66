"""A request as every transport presents it, and the parameters that its headers carry.

Invariant: authentication, admission, limits, audit and traces read nothing of a request beyond this module, so a
transport other than HTTP needs no stack of its own.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from dragoman.auth.proxies import TrustedProxies
from dragoman.bindings.limits import Unread
from dragoman.bindings.routes import NOWHERE, Route
from dragoman.model.errors import A2AError, InvalidParams
from dragoman.model.operations import Operation
from dragoman.model.principal import ANONYMOUS, Principal

Header = tuple[bytes, bytes]

QUERY_FIELDS_MAX = 100
"""Most fields that a query may have; ListTasks has nine."""

VERSION = b"a2a-version"
RESUMES_AFTER = b"last-event-id"
IDEMPOTENCY_KEY = b"idempotency-key"
TRACE = b"traceparent"

EXTENSIONS = (b"a2a-extensions", b"x-a2a-extensions")
"""The header's name in 1.0 (§3.2.6), and its name in 0.3."""

FORWARDED_FOR = b"x-forwarded-for"
FORWARDED_PROTO = b"x-forwarded-proto"

PARENT_SCOPE = "dragoman.parent_scope"
"""A key in the scope of a request that another application has passed on: the scope as that application has it."""

NO_SCOPE: Mapping[str, Any] = MappingProxyType({})

PATH_SAFE = "/:@!$&'()*+,;=~"
"""The characters that a path has as they are, beside letters, digits, `-`, `.` and `_` (RFC 3986 §3.3)."""

PARAMETERS = frozenset({VERSION, RESUMES_AFTER, IDEMPOTENCY_KEY, TRACE, *EXTENSIONS})

TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{1,100})?", re.ASCII)

HOST = re.compile(rb"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


class Request(Struct, eq=False):
    """A request: where it goes, who sent it, and its headers. gRPC calls its headers metadata.

    `method` is the method of the transport: of HTTP, or the name of a remote procedure. The names in `headers` are in
    lower case; of a repeated header the last one counts, and `header_list` has them all. `peer` is the client's
    address, without port; empty if it is unknown. `proxy` is the address of the trusted proxy that named it; empty if
    the client's own socket did. `server` is the address at which the request arrived. `query` is the URL's, as sent.
    `scope` is ASGI's; empty for another transport.
    `principal` is set by authentication. `size` is the size of the body in bytes, once it was read.
    `unread` counts the large answers that wait for their readers; None: nothing is counted.

    The last five say what became of it: the kind of the operation, the agent and the dialect's name of the call that it
    made, if it has come to that; the task that this is about; the class of the error that it was refused with.
    """

    method: str
    headers: Mapping[bytes, bytes]
    header_list: Sequence[Header]
    peer: str = ""
    proxy: str = ""
    query: bytes = b""
    scheme: str = "http"
    server: tuple[str, int] = ("127.0.0.1", 80)
    scope: Mapping[str, Any] = NO_SCOPE
    route: Route = NOWHERE
    principal: Principal = ANONYMOUS
    size: int = 0
    unread: Unread | None = None
    reserved: int = 0
    operation: type[Operation] | None = None
    agent: str = ""
    dialect_name: str = ""
    task_id: str = ""
    refusal: type[A2AError] | None = None

    @property
    def shown_path(self) -> str:
        """The path, for logs; empty if the transport has none."""
        return ""

    def text(self, name: bytes) -> str | None:
        """A header's value; the last one, if the header was sent twice."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def items(self, name: bytes) -> tuple[str, ...]:
        """The distinct items of a comma-separated list, from all headers of that name (RFC 9110 §5.3)."""
        if name not in self.headers:
            return ()
        joined = b",".join(value for key, value in self.header_list if key == name)
        return tuple(dict.fromkeys(item for part in joined.decode("latin-1").split(",") if (item := part.strip())))

    def query_fields(self) -> dict[str, str]:
        """The fields of the query; the last value, if a field is repeated. Raises InvalidParams for too many fields."""
        if not self.query:
            return {}
        try:
            pairs = parse_qsl(self.query.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError as error:
            raise InvalidParams("query", f"has more than {QUERY_FIELDS_MAX} fields: send fewer") from error
        return dict(pairs)

    def take_forwarded(self, proxies: TrustedProxies) -> None:
        """If the request came through one of these proxies, take the client's address and the scheme from its headers.

        `X-Forwarded-Proto` counts only with one value, `http` or `https`.
        """
        if not proxies.trusts(self.peer):
            return
        if FORWARDED_FOR in self.headers:
            named = proxies.client([value for name, value in self.header_list if name == FORWARDED_FOR])
            if named is not None:
                self.peer, self.proxy = named, self.peer
        scheme = self.headers.get(FORWARDED_PROTO, b"").strip().lower()
        if scheme in (b"http", b"https"):
            self.scheme = scheme.decode()

    def reserve(self, size: int) -> None:
        """Reserve room for an answer of `size` bytes until it is made. Raises TooManyRequests or Unavailable."""
        if self.unread is not None:
            self.unread.take(self.principal.id, size)
            self.reserved += size

    def release(self) -> None:
        """Release what `reserve` took."""
        if self.reserved and self.unread is not None:
            self.unread.release(self.principal.id, self.reserved)
            self.reserved = 0

    def base_url(self, public_url: str | None) -> str:
        """The URL under which the request reached the server, without a slash at the end, for cards and links.

        The operator's `public_url` counts first; a Host header counts only if it is well-formed. A server that is
        mounted in an application is below its mount's path.
        """
        if public_url is not None:
            return public_url
        below = quote(self.scope.get("root_path", ""), safe=PATH_SAFE)
        host = self.headers.get(b"host", b"")
        if HOST.fullmatch(host):
            return f"{self.scheme}://{host.decode()}{below}"
        address, port = self.server
        named = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{named}:{port}{below}"


class Parameters(Struct, frozen=True):
    """The service parameters of a request (A2A 1.0 §3.2.6), and those of this server.

    `version` is `A2A-Version` as sent, and `extensions` are the URIs that the caller declares. `after` is the id of the
    last event that the caller has seen, after which a stream resumes. `traceparent` is the trace that the caller
    continues.
    """

    version: str | None = None
    extensions: tuple[str, ...] = ()
    idempotency_key: str | None = None
    after: str | None = None
    traceparent: str | None = None


class RepeatedHeaders(dict[bytes, bytes]):
    """The headers of a request that come again with the next ones of its connection, and what was read of them."""

    _parameters: Parameters | None = None

    def parameters_of(self, request: Request) -> Parameters:
        """The parameters of one of the requests, which has no query. They are read once."""
        if self._parameters is None:
            self._parameters = _read_parameters(request, self)
        return self._parameters


def read_parameters(request: Request) -> Parameters:
    """Read the parameters of a request, once for headers that come again.

    The query names the version (A2A 1.0 §3.6.1) and the last event seen for clients that cannot set a header. A
    malformed `traceparent` is ignored (W3C Trace Context §4.3). Raises InvalidParams for a query with too many fields.
    """
    headers = request.headers
    if type(headers) is not RepeatedHeaders or request.query:
        return _read_parameters(request, headers)
    return headers.parameters_of(request)


def _read_parameters(request: Request, headers: Mapping[bytes, bytes]) -> Parameters:
    texts = {name: headers[name].decode("latin-1").strip() for name in PARAMETERS & headers.keys()}
    declared: tuple[str, ...] = ()
    for name in EXTENSIONS:
        if name in texts:
            declared += request.items(name)
    version, after, trace = texts.get(VERSION), texts.get(RESUMES_AFTER) or None, texts.get(TRACE)
    if request.query:
        query = request.query_fields()
        if version is None:
            version = query.get("A2A-Version")
        if after is None:
            after = query.get("since", query.get("fromSeq"))
    return Parameters(
        version=version,
        extensions=declared,
        idempotency_key=texts.get(IDEMPOTENCY_KEY) or None,
        after=after,
        traceparent=trace if trace is not None and TRACEPARENT.fullmatch(trace) else None,
    )
