"""`create_app`: agents as an ASGI application, to be mounted in one that exists, or run by any ASGI server.

Invariant: it is the server of `dragoman serve` but for its sockets: assembled by the same code, started and stopped in
the same order. Each time that its lifespan is entered, the server starts anew.
"""

import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dragoman.bindings.app import refuse_scope
from dragoman.bindings.http import Receive, Scope, Send
from dragoman.bindings.mount import MountedPath, MountedRequests, read_path, refuse
from dragoman.bindings.parent import Authenticate, Parent
from dragoman.cli.entries import make_added_agent
from dragoman.cli.loader import load_given
from dragoman.config import Config, load, load_table
from dragoman.engine.api import Runner
from dragoman.model.errors import Unavailable
from dragoman.server import MountedEntrance, StartError, check_mounted, rare_collections, running
from dragoman.server.callers import teams_of
from dragoman.store.api import StoreError

log = logging.getLogger(__name__)

WELL_KNOWN = "/.well-known"


def create_app(
    agents: object = (),
    config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    authenticate: Authenticate | None = None,
) -> "Application":
    """Make an ASGI application of agents, with every binding that `dragoman serve` has over HTTP.

    `agents` is one agent, a list of them, or a mapping of them by id. Each is an `Agent`, an object of a framework, a
    function without arguments that makes one of these when the application starts, a pair of an executor of the
    official A2A SDK and its card, or a reference such as `"module:agent"`. The first one answers at the root.

    `config` is the path of a `dragoman.toml`, or a mapping with the same names and values, `[[agents]]` included; the
    environment (`DRAGOMAN_STORE` …) wins over both. Without it the environment alone counts.

    `authenticate(scope)` returns the `Principal` that a request belongs to, or None for a caller whom it does not know;
    it may be async. With it every caller must be known: by it, or by a key or token of the application's own. Without
    it, nothing counts that the application around this one knows of its callers.

    Raises ConfigError for a setting that cannot be used, AgentReferenceError for an agent that cannot be served,
    StartError for a setting that only a server with sockets can keep, TypeError if `authenticate` is no function. The
    message names the fix.
    """
    if authenticate is not None and not callable(authenticate):
        raise TypeError(f"authenticate is of type {type(authenticate).__name__}: give a function of the ASGI scope")
    if isinstance(config, Mapping):
        settings = load_table("config", config, os.environ, {})
    else:
        settings = load(None if config is None else Path(config), os.environ, {})
    return Application(settings, load_given(agents, settings), authenticate)


class Application:
    """An ASGI application that serves agents. It answers while its lifespan is entered, and is 503 otherwise.

    An ASGI server enters the lifespan of the application that it runs. One that is mounted in another application is
    not told, so the other one enters `lifespan` in its own. `well_known` is an ASGI application for the root of the
    other one, to be mounted at `/.well-known`: the default agent's card, the catalogue, and the keys of signatures.
    """

    def __init__(self, config: Config, agents: Sequence[Runner], authenticate: Authenticate | None = None) -> None:
        """Raises StartError for a setting that only a server with sockets can keep."""
        check_mounted(config)
        # The console's pages and its sign-in belong to the root of a host.
        self._config = replace(config, console=False)
        self._agents = tuple(agents)
        self._requests = MountedRequests()
        self._parent = Parent(authenticate, teams_of(config))
        self._entered = False
        self._well_known = WellKnownPaths(self, self._requests, placed=config.public_url is not None)

    @property
    def well_known(self) -> "WellKnownPaths":
        """The documents for `/.well-known` at the root of the application in which this one is mounted."""
        return self._well_known

    @asynccontextmanager
    async def lifespan(self, parent: object = None) -> AsyncIterator[None]:
        """Serve until the block ends; then running tasks have `shutdown_grace_s`. `parent` counts for nothing.

        It may be entered again afterwards, in another event loop too. Raises StartError or StoreError, which say what
        to change, and RuntimeError if it is entered at this moment.
        """
        if self._entered:
            raise RuntimeError("app.lifespan is entered already: enter it in one application only")
        self._entered = True
        try:
            entrance = MountedEntrance(self._requests, self._parent)
            with rare_collections():
                async with running(self._config, self._agents, entrance=entrance, make_added=make_added_agent):
                    yield
        except BaseExceptionGroup as group:  # from a TaskGroup, around what went wrong within it
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None
        finally:
            self._entered = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3.0."""  # a coroutine function, by which servers tell it from ASGI 2.0
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._requests(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Serve as the ASGI server says that runs this application."""
        await receive()
        phase = "startup"
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"  # what goes wrong from now on is no fault of the start
                await receive()
        except Exception as error:  # the server is told; it logs the message, and ends
            if not isinstance(error, StartError | StoreError):
                log.exception("the %s failed", phase)
            await send({"type": f"lifespan.{phase}.failed", "message": f"dragoman: {error}"})
        else:
            await send({"type": "lifespan.shutdown.complete"})


class WellKnownPaths:
    """The documents below `/.well-known` at the root of the application in which `app` is mounted.

    The other application mounts this at `/.well-known`, or at `/`. The cards name the place of `app`: `public_url` if
    it is set, else the path at which one of the other application's `routes` mounts it, as Starlette and FastAPI list
    them.
    """

    def __init__(self, app: "Application", requests: MountedRequests, *, placed: bool) -> None:
        """`placed`: `public_url` says where `app` is."""
        self._app = app
        self._requests = requests
        self._placed = placed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3.0."""
        if scope["type"] != "http":
            await refuse_scope(scope, receive, send)
            return
        try:
            document = self._find_document(scope)
        except Unavailable as error:
            await refuse(error, receive, send)
        else:
            await self._requests.answer(document, scope, receive, send)

    def _find_document(self, scope: Scope) -> MountedPath:
        """The path of the document below the mount of `app`. Raises Unavailable if nothing says where that is."""
        at = read_path(scope)
        routes = getattr(scope.get("app"), "routes", ())  # of the innermost application around this
        mount = "" if self._placed else find_mount(routes, self._app)
        if mount is None:
            raise Unavailable(
                "the URL of the mounted application is not known here: set public_url to it, for the cards that are "
                "served at the root of the application around it"
            )
        own = find_mount(routes, self)
        root = at.mount.removesuffix(WELL_KNOWN if own is None else own)
        path, raw = at.path.removeprefix(WELL_KNOWN), at.raw_path.removeprefix(WELL_KNOWN.encode())
        return MountedPath(root + mount, WELL_KNOWN + path, WELL_KNOWN.encode() + raw)


def find_mount(routes: Iterable[Any], app: object) -> str | None:
    """The path at which one of the routes, or one below it, mounts `app`; None if none does, or not at a fixed path."""
    for route in routes:
        path = getattr(route, "path", None)
        if not isinstance(path, str) or "{" in path:
            continue
        if getattr(route, "app", None) is app or getattr(route, "_base_app", None) is app:  # without or with middleware
            return path.rstrip("/")
        if (found := find_mount(getattr(route, "routes", None) or (), app)) is not None:
            return path.rstrip("/") + found
    return None
