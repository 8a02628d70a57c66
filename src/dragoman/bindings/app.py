"""The ASGI application: one callable that routes, answers, and lets no error out.

Invariant: every request gets exactly one proper answer, and no answer contains an exception's text. One application
answers a request from its first byte to its last.
"""

import asyncio
import logging
from collections.abc import Collection, Container, Coroutine
from time import perf_counter
from types import MappingProxyType
from typing import Any

from dragoman.bindings.a2a import A2a
from dragoman.bindings.calls import Backend
from dragoman.bindings.cors import READS, Cors
from dragoman.bindings.endpoints import Answer, Endpoints, HttpEndpoint, PageSessions, add_absent, public
from dragoman.bindings.event_sender import send_events
from dragoman.bindings.home import Home
from dragoman.bindings.http import (
    Gone,
    HttpRequest,
    HttpResponse,
    Receive,
    Scope,
    Send,
    StreamingResponse,
    send_response,
    stream_response,
)
from dragoman.bindings.http1.exchange import Address, AsgiExchange
from dragoman.bindings.limits import SMALL_BYTES
from dragoman.bindings.monitoring import Health
from dragoman.bindings.routes import NOWHERE, Routes
from dragoman.dialects.resolve import MOUNTS
from dragoman.dialects.system import Mount
from dragoman.model.errors import A2AError, AgentNotFound, InternalError, MethodNotAllowed, NotFound
from dragoman.model.ids import new_id

log = logging.getLogger(__name__)

LEFT_STATUS = 499
"""The status in the log of a request whose caller left before it was answered. nginx has made it the usual one."""


class App:
    """The server's HTTP side. `backend` is what other transports answer with, too.

    `optional` are the endpoints of those parts that a server may do without, `sessions` those of operators who are
    signed in with a browser. Workers may finish the tasks of the agents in `leaving`, which are no longer served.
    """

    def __init__(
        self,
        backend: Backend,
        health: Health,
        home: Home,
        cors: Cors | None = None,
        mounts: Collection[Mount] = MOUNTS,
        optional: Endpoints = MappingProxyType({}),
        sessions: PageSessions | None = None,
        leaving: Container[str] = (),
    ) -> None:
        reception, cards = backend.reception, backend.cards
        self.backend = backend
        self._agents = frozenset(reception.agents)
        self._callers = reception.callers
        self._unread = reception.limits.unread
        self._proxies = reception.proxies
        self._routes = Routes(self._agents, backend.default, mounts)
        self._home = home
        self._cors = cors
        self._traffic = backend.traffic
        self._sessions = sessions
        self._leaving = leaving
        self._streams = backend.streams
        a2a = A2a(backend.handler, reception, cards, backend.streams)
        self._refuse_rest = a2a.refuse_rest
        self._endpoints = add_absent(
            {
                "rpc": HttpEndpoint(a2a.answer, a2a.refuse_rpc),
                "rest": HttpEndpoint(a2a.answer),
                "card": public(cards.answer_card),
                "jwks": public(lambda request: cards.keys()),
                "agents": public(cards.answer_list),
                "health": public(lambda request: health.alive()),
                "ready": public(lambda request: health.ready()),
                **optional,
            }
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """ASGI 3.0."""
        if scope["type"] != "http":
            return refuse_scope(scope, receive, send)
        client = scope.get("client")
        request = HttpRequest(
            method=scope["method"],
            path=scope["path"],
            headers=dict(scope["headers"]),
            header_list=scope["headers"],
            peer=client[0] if client else "",
            query=scope["query_string"],
            scheme=scope.get("scheme", "http"),
            server=scope.get("server") or ("127.0.0.1", 80),
            scope=scope,
            unread=self._unread,
            receive=receive,
        )
        return self._respond(request, scope.get("raw_path") or scope["path"].encode(), receive, send)

    def answer_exchange(
        self, exchange: AsgiExchange, client: Address | None, server: Address | None, scheme: str
    ) -> Coroutine[Any, Any, None]:
        """Answer a request of the listener: see `http1.connection.ExchangeApp`."""
        target, receive = exchange.target, exchange.receive
        request = HttpRequest(
            method=exchange.method,
            path=target.path,
            headers=exchange.headers,
            header_list=exchange.header_list,
            peer="" if client is None else client[0],
            query=target.query,
            scheme=scheme,
            server=server or ("127.0.0.1", 80),
            unread=self._unread,
            receive=receive,
            body=exchange.take_body(),
        )
        return self._respond(request, target.raw_path, receive, exchange.send, exchange)

    async def _respond(
        self, request: HttpRequest, path: bytes, receive: Receive, send: Send, exchange: AsgiExchange | None = None
    ) -> None:
        """Answer a request for the raw `path`. This is the one place that catches errors: A2AErrors are answered, all
        others are only logged."""
        # One function: a coroutine for each step would cost every request a call at each of its waits.
        traffic, began_s, plain = self._traffic, perf_counter(), exchange
        if self._proxies is not None:
            request.take_forwarded(self._proxies)
        if self._cors is not None and b"origin" in request.headers:
            send, plain = self._cors.wrap_send(request, send), None
        answer: Answer
        found: HttpEndpoint | HttpResponse | None = None
        try:
            try:
                found = self._find(request, path)
                if isinstance(found, HttpResponse):
                    answer = found
                else:
                    if found.asks:
                        if found.identify is not None:
                            request.principal = await found.identify(request)
                        elif self._sessions is not None and self._sessions.proof in request.headers:
                            request.principal = await self._sessions.identify(request)
                        else:
                            request.principal = self._callers.known(request) or await self._callers.identify(request)
                        if request.route.agent and request.route.mount != "/":  # at the root, the tenant names it
                            self._callers.admit(request, request.route.agent)
                        if found.admit is not None:
                            found.admit(request)
                    answer = await found.answer(request)
                    if isinstance(answer, HttpResponse) and len(answer.body) > SMALL_BYTES:
                        self._hold(request, answer)
            except A2AError as error:
                refusal = await self.backend.locate(error)
                request.refusal = type(refusal)
                answer = self._refuse(request, refusal)
                del refusal  # it refers to this frame
            except (Gone, asyncio.CancelledError):
                if traffic is not None:
                    traffic.answered(request, began_s, LEFT_STATUS, 0, left=True)
                raise
            except Exception:  # the outermost door: the log has the text, the caller gets a reference
                reference = new_id()
                log.exception("%s %s failed: reference %s", request.method, request.path, reference)
                request.refusal = InternalError
                answer = self._refuse(request, InternalError(reference))
            finally:
                if request.reserved:
                    request.release()
            streams, unread, held = self._streams, self._unread, request.held
            caller, key = request.principal.id, request.principal.key
            del self, found  # a stream may stay open for hours, while a reload replaces this application
            if isinstance(answer, HttpResponse):
                try:
                    lingers = answer.lingers and (exchange is None or exchange.arriving)
                    short = not lingers and len(answer.body) <= SMALL_BYTES
                    if plain is None or not short or not plain.send_whole(answer.status, answer.headers, answer.body):
                        await send_response(answer, receive, send, lingers=lingers)
                finally:
                    if held:
                        unread.release(caller, held)
                    if traffic is not None:
                        traffic.answered(request, began_s, answer.status, len(answer.body))
                return
            visit = None if traffic is None else traffic.opened(request, began_s)
            del request
            if isinstance(answer, StreamingResponse):
                await stream_response(answer, receive, send, visit)
            else:
                await send_events(answer, streams, receive, send, visit, key, exchange)
        except Gone:
            return

    def _find(self, request: HttpRequest, path: bytes) -> HttpEndpoint | HttpResponse:
        """Find the endpoint of a request and set its route, or answer what needs none. Raises A2AError."""
        if self._cors is not None and (preflight := self._cors.preflight(request)) is not None:
            return preflight
        method = request.method
        if method != "POST" and (page := self._home.page(request)) is not None:
            return page
        route = request.route = self._routes.exact.get(path) or self._routes.find(path)
        if route.others:
            route = request.route = route.others.get(method, route)
        if route.agent and route.agent not in self._agents:
            if route.endpoint != "rpc" and not (route.endpoint == "workers" and route.agent in self._leaving):
                raise AgentNotFound(route.agent)
            if method not in route.methods and route.kind.catches_all:
                request.route = NOWHERE
                raise NotFound(self._routes.not_here)  # at a tenant mount, any path looks like an agent's
            # JSON-RPC raises AgentNotFound itself, so that the error carries the caller's id
        if method not in route.methods:
            allowed = [*route.methods, *route.others, "OPTIONS"]
            if method != "OPTIONS":
                raise MethodNotAllowed(
                    allowed, f"POST JSON-RPC; {self._routes.where}" if route.endpoint == "rpc" else ""
                )
            return HttpResponse(204, [(b"allow", ", ".join(allowed).encode())], b"")
        headers = request.headers
        # MCP 2025-11-25, Transports, Security Warning: check Origin on every request to its endpoint.
        if (b"origin" in headers or b"sec-fetch-site" in headers) and (method not in READS or route.endpoint == "mcp"):
            self._callers.admit_page(request)
        return self._endpoints[route.endpoint]

    def _hold(self, request: HttpRequest, answer: HttpResponse) -> None:
        """Reserve room for a large answer until its reader has it. Raises TooManyRequests or Unavailable."""
        request.release()
        size = len(answer.body)
        try:
            self._unread.take(request.principal.id, size)
            request.held = size
        except A2AError:
            request.done = True
            if answer.refused is not None:
                answer.refused()
            raise

    def _refuse(self, request: HttpRequest, error: A2AError) -> HttpResponse:
        refuse = self._endpoints[request.route.endpoint].refuse or self._refuse_rest
        return refuse(request, error)


class CurrentApp:
    """An ASGI application that forwards to `app`, which may be replaced at any time for later requests.

    A listener refers to its application as long as it is open. That must not keep an `App` alive that was replaced.
    """

    __slots__ = ("app",)

    def __init__(self, app: App) -> None:
        self.app = app

    def replace(self, app: App) -> None:
        """Forward later requests to `app`."""
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """ASGI 3.0."""
        return self.app(scope, receive, send)

    def answer_exchange(
        self, exchange: AsgiExchange, client: Address | None, server: Address | None, scheme: str
    ) -> Coroutine[Any, Any, None]:
        """See `http1.connection.ExchangeApp`."""
        return self.app.answer_exchange(exchange, client, server, scheme)


async def refuse_scope(scope: Scope, receive: Receive, send: Send) -> None:
    """End what is no HTTP: a websocket is refused, a lifespan has nothing to do. Raises ValueError for other types."""
    match scope["type"]:
        case "websocket":
            await receive()
            await send({"type": "websocket.close"})  # before accept, this is 403 (ASGI, WebSocket close)
        case "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        case other:
            raise ValueError(f"ASGI scope {other!r}: use http")
