"""The ASGI application: one callable that routes, answers, and lets no error out.

Invariant: whatever comes in, one proper answer goes out, and nothing of an exception's text with it.
"""

import asyncio
import logging
from collections.abc import Mapping

from dragoman.bindings import http
from dragoman.bindings.calls import Limits
from dragoman.bindings.cards import Cards
from dragoman.bindings.cors import Cors
from dragoman.bindings.health import Health
from dragoman.bindings.http import Answer, Gone, Receive, Request, Scope, Send, Streaming
from dragoman.bindings.jsonrpc import JsonRpc
from dragoman.bindings.rest import Rest
from dragoman.bindings.routes import Routes
from dragoman.bindings.stream import Streams
from dragoman.engine.api import Handler
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, AgentNotFound, InternalError, MethodNotAllowed
from dragoman.model.ids import new_id

log = logging.getLogger(__name__)


class App:
    """The server's HTTP side. `profiles` are the agents by id, `default` is the one that answers at the root."""

    def __init__(
        self,
        handler: Handler,
        profiles: Mapping[str, Profile],
        default: str,
        *,
        limits: Limits,
        cards: Cards,
        health: Health,
        cors: Cors | None,
    ) -> None:
        self._profiles = profiles
        self._routes = Routes(profiles, default)
        self._rpc = JsonRpc(handler, profiles, limits)
        self._rest = Rest(handler, profiles, limits)
        self._cards = cards
        self._health = health
        self._cors = cors
        self._streams = Streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3.0."""
        if scope["type"] != "http":
            await _refuse_scope(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            if self._cors is not None and b"origin" in request.headers:
                send = self._cors.sending(request, send)
            answer = await self._answer(request)
            del request  # a stream may stay open for hours
            if isinstance(answer, Answer):
                await http.respond(answer, receive, send)
            else:
                await self._streams.respond(answer, receive, send)
        except Gone:
            return

    async def _answer(self, request: Request) -> Answer | Streaming:
        """The one door for errors: those that A2A knows are told, all others only logged."""
        try:
            return await self._routed(request)
        except A2AError as error:
            return self._refused(request, error)
        except (Gone, asyncio.CancelledError):
            raise
        except Exception:
            reference = new_id()
            log.exception("%s %s failed: reference %s", request.method, request.scope["path"], reference)
            return self._refused(request, InternalError(reference))

    async def _routed(self, request: Request) -> Answer | Streaming:
        if self._cors is not None and (preflight := self._cors.preflight(request)) is not None:
            return preflight
        scope = request.scope
        route = request.route = self._routes.find(scope.get("raw_path") or scope["path"].encode())
        if route.agent and route.agent not in self._profiles:
            raise AgentNotFound(route.agent)
        if request.method not in route.methods:
            allowed = [*route.methods, "OPTIONS"]
            if request.method != "OPTIONS":
                raise MethodNotAllowed(allowed)
            return Answer(204, [(b"allow", ", ".join(allowed).encode())], b"")
        match route.endpoint:
            case "rpc":
                return await self._rpc.answer(request)
            case "rest":
                return await self._rest.answer(request)
            case "card":
                return self._cards.card(request)
            case "agents":
                return self._cards.directory(request)
            case "health":
                return self._health.alive()
            case "ready":
                return await self._health.ready()

    def _refused(self, request: Request, error: A2AError) -> Answer:
        binding = self._rpc if request.route.endpoint == "rpc" else self._rest
        answer = binding.refuse(request, error)
        if request.stalled:
            answer.headers.append(http.CLOSE)
        return answer


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
