"""CORS: which pages of other origins may call the server (Fetch standard §3.2). Off unless origins are configured.

Invariant: no answer names an origin that is not configured, and credentials are never allowed.
"""

from collections.abc import Sequence

from dragoman.bindings.http import Answer, Header, Message, Request, Send

ALLOWED_METHODS = b"GET, POST, DELETE, HEAD, OPTIONS"
ALLOWED_HEADERS = (
    b"content-type, accept, authorization, x-api-key, x-agent-api-key, a2a-version, a2a-extensions, x-a2a-extensions, "
    b"idempotency-key, last-event-id, traceparent, tracestate, cache-control, if-none-match, "
    b"x-dragoman-task-id, x-dragoman-context-id, mcp-protocol-version, mcp-session-id, "
    b"x-stainless-arch, x-stainless-lang, x-stainless-os, "
    b"x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, "
    b"x-stainless-timeout, x-stainless-helper-method, x-stainless-async, openai-organization, openai-project"
)
EXPOSED_HEADERS = (
    b"a2a-extensions, x-a2a-extensions, etag, retry-after, x-dragoman-task-id, x-dragoman-context-id, x-should-retry, "
    b"mcp-session-id"
)
PREFLIGHT_MAX_AGE_S = b"600"


class Cors:
    """Says to browsers what `origins` may do; `*` among them lets every page call."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def _headers(self, origin: bytes | None) -> list[Header]:
        if self._any:
            return [(b"access-control-allow-origin", b"*")]
        if origin in self._origins and origin is not None:
            return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        return [(b"vary", b"Origin")]

    def preflight(self, request: Request) -> Answer | None:
        """The answer to a preflight; None if the request is not one."""
        origin = request.headers.get(b"origin")
        if request.method != "OPTIONS" or origin is None or b"access-control-request-method" not in request.headers:
            return None
        headers = self._headers(origin)
        if self._any or origin in self._origins:
            headers += [
                (b"access-control-allow-methods", ALLOWED_METHODS),
                (b"access-control-allow-headers", ALLOWED_HEADERS),
                (b"access-control-max-age", PREFLIGHT_MAX_AGE_S),
            ]
        return Answer(204, headers, b"")

    def sending(self, request: Request, send: Send) -> Send:
        """`send`, with what the page's browser must be told."""
        headers = [*self._headers(request.headers.get(b"origin")), (b"access-control-expose-headers", EXPOSED_HEADERS)]

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        return tell
