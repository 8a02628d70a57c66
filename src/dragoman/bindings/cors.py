"""Checks of web pages: those of the server's own origin and of configured origins may call it.

CORS lets pages of configured origins read answers (Fetch standard §3.2); without configured origins it is off. The
check of origins keeps all other pages from changing anything, even blindly.

Invariant: no answer names an origin that is not configured, and credentials are never allowed.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from dragoman.bindings.http import HttpRequest, HttpResponse, Message, Send
from dragoman.bindings.request import Header, Request
from dragoman.model.errors import Forbidden

ALLOWED_METHODS = b"GET, POST, DELETE, HEAD, OPTIONS"
ALLOWED_HEADERS = (
    b"content-type, accept, authorization, x-api-key, x-agent-api-key, a2a-version, a2a-extensions, x-a2a-extensions, "
    b"idempotency-key, last-event-id, traceparent, tracestate, cache-control, if-none-match, "
    b"x-dragoman-task-id, x-dragoman-context-id, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, "
    b"x-stainless-arch, x-stainless-lang, x-stainless-os, "
    b"x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, "
    b"x-stainless-timeout, x-stainless-helper-method, x-stainless-async, openai-organization, openai-project"
)
EXPOSED_HEADERS = (
    b"a2a-extensions, x-a2a-extensions, etag, retry-after, x-dragoman-task-id, x-dragoman-context-id, x-should-retry, "
    b"mcp-session-id"
)
PREFLIGHT_MAX_AGE_S = b"600"

READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing here (RFC 9110 §9.2.1)."""

OWN_SITES = frozenset({b"same-origin", b"none"})
"""Values of `Sec-Fetch-Site` for a page of the server's own origin, and for no page at all (Fetch Metadata §2.1).

`same-site` is missing on purpose: the owner of localhost:3000 need not be the owner of localhost:7870."""


class Cors:
    """Answers preflights and adds the CORS headers for `origins`; a `*` among them allows every page.

    Pages may send the `headers` of this server's settings, too: their names are in lower case.
    """

    def __init__(self, origins: Sequence[str], headers: Iterable[bytes] = ()) -> None:
        self._allowed_headers = b", ".join(dict.fromkeys((*ALLOWED_HEADERS.split(b", "), *headers)))
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def _headers(self, origin: bytes | None) -> list[Header]:
        if self._any:
            return [(b"access-control-allow-origin", b"*")]
        if origin in self._origins and origin is not None:
            return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        return [(b"vary", b"Origin")]

    def preflight(self, request: HttpRequest) -> HttpResponse | None:
        """The answer to a preflight, to which `wrap_send` adds the rest; None if the request is not one."""
        origin = request.headers.get(b"origin")
        if request.method != "OPTIONS" or origin is None or b"access-control-request-method" not in request.headers:
            return None
        headers: list[Header] = []
        if self._any or origin in self._origins:
            headers += [
                (b"access-control-allow-methods", ALLOWED_METHODS),
                (b"access-control-allow-headers", self._allowed_headers),
                (b"access-control-max-age", PREFLIGHT_MAX_AGE_S),
            ]
        return HttpResponse(204, headers, b"")

    def wrap_send(self, request: HttpRequest, send: Send) -> Send:
        """Wrap `send` so that it adds the CORS headers to the answer."""
        headers = [*self._headers(request.headers.get(b"origin")), (b"access-control-expose-headers", EXPOSED_HEADERS)]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        return send_with_headers


class Origins:
    """The web pages whose requests may change something: the server's own, and those of `allowed` origins (`*`: all).

    A page can make a browser send a POST without a preflight. On a server that asks for no key, or identifies callers
    by a client certificate, that POST would already take effect (cross-site request forgery). Programs send neither
    `Origin` nor `Sec-Fetch-Site`, so the check does not affect them. `public_url` is the server's URL behind a proxy.
    """

    def __init__(self, allowed: Sequence[str] = (), public_url: str | None = None) -> None:
        self._any = "*" in allowed
        self._allowed = frozenset(origin.encode() for origin in allowed)
        public = urlsplit(public_url or "")
        self._public = f"{public.scheme}://{public.netloc}".lower().encode()
        self._public_host = public.netloc.lower().encode()

    def check(self, request: Request) -> None:
        """Raises Forbidden if a page of another origin sent the request.

        `Sec-Fetch-Site` counts first, because a proxy may change Host. Browsers omit it for addresses without TLS other
        than localhost, and old browsers always do; then `Origin` must match the Host of the request.
        """
        origin = request.headers.get(b"origin")
        if self._any or origin in self._allowed:
            return
        site = request.headers.get(b"sec-fetch-site")
        if site is not None:
            own = site in OWN_SITES
        else:
            own = origin is None or self._is_own(origin.lower(), request.headers.get(b"host", b"").lower())
        if not own:
            raise Forbidden(_describe_refusal(origin))

    def _is_own(self, origin: bytes, host: bytes) -> bool:
        if origin == self._public:
            return True
        scheme, _, place = origin.partition(b"://")
        # Only public_url tells the scheme: a proxy may have ended TLS.
        return place == host != b"" and scheme in (b"http", b"https") and place != self._public_host


def _describe_refusal(origin: bytes | None) -> str:
    if origin is None:
        return "web pages of other sites may not call here: name their origins in cors_origins"
    named = origin[:100].decode("latin-1")
    if named == "null":
        return (
            "web pages without an origin (files, sandboxed frames) may not call here: serve the page over HTTP, and "
            "name its origin in cors_origins"
        )
    return (
        f"web pages of {named!r} may not call here: name that origin in cors_origins, or set public_url if it is this "
        "server's own"
    )
