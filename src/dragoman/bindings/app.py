"""The ASGI application: one callable that routes, answers, and lets no error out.

Invariant: every request gets exactly one proper answer, and no answer contains an exception's text.
"""

import asyncio
import logging
from collections.abc import Collection

from dragoman.bindings import http
from dragoman.bindings.calls import Reception
from dragoman.bindings.cards import Cards
from dragoman.bindings.cors import READS, Cors
from dragoman.bindings.files import FileDoor
from dragoman.bindings.health import Health
from dragoman.bindings.home import Home
from dragoman.bindings.http import Answer, Gone, Pieces, Receive, Request, Scope, Send, Streaming
from dragoman.bindings.jsonrpc import JsonRpc
from dragoman.bindings.mcp import Mcp
from dragoman.bindings.metrics import Exposition
from dragoman.bindings.openai import OpenAi
from dragoman.bindings.rest import Rest
from dragoman.bindings.routes import Routes
from dragoman.bindings.stream import Streams
from dragoman.bindings.unread import SMALL_BYTES
from dragoman.bindings.workers import Workers
from dragoman.dialects.mounts import Mount
from dragoman.dialects.resolve import MOUNTS
from dragoman.engine.handler import Handler
from dragoman.model.errors import A2AError, AgentNotFound, InternalError, MethodNotAllowed, NotFound
from dragoman.model.ids import new_id

log = logging.getLogger(__name__)

ASKED = frozenset({"rpc", "rest", "chat", "models", "mcp", "workers", "metrics"})
"""Endpoints that authenticate their callers. All others are public."""


class App:
    """The server's HTTP side. `default` is the agent that answers at the root.

    `streams` is shared by all applications of the server, so that a reload keeps the count of open streams.
    """

    def __init__(
        self,
        handler: Handler,
        reception: Reception,
        default: str,
        *,
        cards: Cards,
        health: Health,
        home: Home,
        cors: Cors | None,
        mounts: Collection[Mount] = MOUNTS,
        openai: OpenAi | None = None,
        mcp: Mcp | None = None,
        metrics: Exposition | None = None,
        workers: Workers | None = None,
        streams: Streams | None = None,
        files: FileDoor | None = None,
    ) -> None:
        self._profiles = reception.profiles
        self._callers = reception.callers
        self._unread = reception.limits.unread
        self._routes = Routes(self._profiles, default, mounts)
        self._rpc = JsonRpc(handler, reception, cards)
        self._rest = Rest(handler, reception, cards)
        self._cards = cards
        self._health = health
        self._home = home
        self._cors = cors
        self._openai = openai
        self._mcp = mcp
        self._metrics = metrics
        self._workers = workers
        self._files = files
        self._loop: asyncio.AbstractEventLoop | None = None
        self.streams = Streams() if streams is None else streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3.0."""
        if scope["type"] != "http":
            await _refuse_scope(scope, receive, send)
            return
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        request = Request(scope, receive, loop, self._unread)
        try:
            if self._cors is not None and b"origin" in request.headers:
                send = self._cors.sending(request, send)
            answer = await self._answer(request)
            streams, unread, caller, held = self.streams, self._unread, request.principal.id, request.held
            del self, request  # a stream may stay open for hours, while a reload replaces this application
            if isinstance(answer, Answer):
                try:
                    await http.respond(answer, receive, send)
                finally:
                    if held:
                        unread.release(caller, held)
            elif isinstance(answer, Pieces):
                await http.respond_in_pieces(answer, receive, send)
            else:
                await streams.respond(answer, receive, send)
        except Gone:
            return

    async def _answer(self, request: Request) -> Answer | Pieces | Streaming:
        """The one place that catches errors: A2AErrors are sent to the caller, all others are only logged."""
        try:
            answer = await self._dispatch(request)
            if isinstance(answer, Answer) and len(answer.body) > SMALL_BYTES:
                request.release()
                self._take(request, answer)
            return answer
        except A2AError as error:
            return self._refuse(request, error)
        except (Gone, asyncio.CancelledError):
            raise
        except Exception:
            reference = new_id()
            log.exception("%s %s failed: reference %s", request.method, request.scope["path"], reference)
            return self._refuse(request, InternalError(reference))
        finally:
            request.release()

    def _take(self, request: Request, answer: Answer) -> None:
        """Reserve room for a large answer until its reader has it. Raises TooManyRequests or Unavailable."""
        size = len(answer.body)
        try:
            self._unread.take(request.principal.id, size)
            request.held = size
        except A2AError:
            request.done = True
            if answer.refused is not None:
                answer.refused()
            raise

    async def _dispatch(self, request: Request) -> Answer | Pieces | Streaming:
        if self._cors is not None and (preflight := self._cors.preflight(request)) is not None:
            return preflight
        if request.method != "POST" and (page := self._home.page(request)) is not None:
            return page
        scope = request.scope
        route = request.route = self._routes.find(scope.get("raw_path") or scope["path"].encode())
        if route.others:
            route = request.route = route.others.get(request.method, route)
        if route.agent and route.agent not in self._profiles:
            if route.endpoint == "workers" and self._workers is not None and self._workers.serves(route.agent):
                pass  # the agent is no longer served, but its workers may finish their tasks
            elif route.endpoint != "rpc":
                raise AgentNotFound(route.agent)
            if request.method not in route.methods and route.kind.catches_all:
                request.route = http.NOWHERE
                raise NotFound(self._routes.not_here)  # at a tenant mount, any path looks like an agent's
            # JSON-RPC raises AgentNotFound itself, so that the error carries the caller's id
        if request.method not in route.methods:
            allowed = [*route.methods, *route.others, "OPTIONS"]
            if request.method != "OPTIONS":
                raise MethodNotAllowed(
                    allowed, f"POST JSON-RPC; {self._routes.where}" if route.endpoint == "rpc" else ""
                )
            return Answer(204, [(b"allow", ", ".join(allowed).encode())], b"")
        headers = request.headers
        # MCP 2025-11-25, Transports, Security Warning: check Origin on every request to its endpoint.
        if (b"origin" in headers or b"sec-fetch-site" in headers) and (
            request.method not in READS or route.endpoint == "mcp"
        ):
            self._callers.admit_page(request)
        if route.endpoint in ASKED:
            request.principal = self._callers.known(request) or await self._callers.identify(request)
            if route.agent and route.mount != "/":  # at the root, the tenant may name another
                self._callers.admit(request, route.agent)
        match route.endpoint:
            case "rpc":
                return await self._rpc.answer(request)
            case "rest":
                return await self._rest.answer(request)
            case "card":
                return await self._cards.card(request)
            case "jwks":
                return await self._cards.jwks()
            case "agents":
                return self._cards.directory(request)
            case "health":
                return self._health.alive()
            case "ready":
                return await self._health.ready()
            case "chat" if self._openai is not None:
                return await self._openai.answer(request)
            case "models" if self._openai is not None:
                return self._openai.models(request)
            case "mcp" if self._mcp is not None:
                return await self._mcp.answer(request)
            case "metrics" if self._metrics is not None:
                self._callers.admit_operator(request)
                return await self._metrics.answer(request, self.streams.open)
            case "workers" if self._workers is not None:
                self._callers.admit_worker(request, route.agent)
                return await self._workers.answer(request)
            case "files" if self._files is not None:
                return await self._files.answer(request)
            case "workers":
                raise NotFound(f'{request.route.agent} is not served by workers: declare it with run = "worker"')
            case "chat" | "files" | "models" | "mcp" | "metrics":
                raise NotFound("no such path here: this server was started without it")

    def _refuse(self, request: Request, error: A2AError) -> Answer:
        binding: JsonRpc | Rest | OpenAi | Mcp | Workers = self._rest
        if request.route.endpoint == "rpc":
            binding = self._rpc
        elif request.route.endpoint in ("chat", "models") and self._openai is not None:
            binding = self._openai
        elif request.route.endpoint == "mcp" and self._mcp is not None:
            binding = self._mcp
        elif request.route.endpoint == "workers" and self._workers is not None:
            binding = self._workers
        return binding.refuse(request, error)


async def _refuse_scope(scope: Scope, receive: Receive, send: Send) -> None:
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
