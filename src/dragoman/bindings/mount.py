"""Requests that another server, or the application around ours, passes to our application.

Invariant: the path that is routed is the one that the application around ours sees, less the path of the mount: its
bytes on the wire only tell `/` from `%2F`. Nothing is passed on before `open` or after `close`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct

from dragoman.bindings.app import refuse_scope
from dragoman.bindings.http import (
    Asgi,
    Gone,
    Message,
    Receive,
    Scope,
    Send,
    error_response,
    send_response,
)
from dragoman.bindings.request import PARENT_SCOPE, PATH_SAFE
from dragoman.dialects.v1.errors import encode_http_error, http_status
from dragoman.model.errors import A2AError, Unavailable

CUT_S = 0.3
"""How long requests may still run after they were canceled."""

LOOKS = 8
"""How often within the pause that a reader may make the answers under way are looked at."""


class MountedPath(Struct, frozen=True):
    """The path of a request, in two parts: `mount` is decoded, without a slash at the end; `path` begins with one.

    `raw_path` are the bytes of `path` as they were on the wire, as far as the other server tells.
    """

    mount: str
    path: str
    raw_path: bytes


def read_path(scope: Scope) -> MountedPath:
    """Take the path of a request apart, in either convention of ASGI servers.

    `root_path` is the mount's. ASGI lets `path` begin with it, as Starlette and uvicorn do; hypercorn, granian and
    older applications leave it out. A path that begins with `root_path` and a slash is taken for the first, as by
    Starlette's own routes. Below a server of the second kind, Starlette leaves out the server's part alone, which is
    `app_root_path`.
    """
    mount, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    raw = (scope.get("raw_path") or b"").partition(b"?")[0]
    if not mount:
        prefixes: tuple[str, ...] = ()
    elif outer := scope.get("app_root_path", ""):
        prefixes = (mount, mount.removeprefix(outer.rstrip("/")))
    else:
        prefixes = (mount,)
    for prefix in prefixes:
        if prefix and path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/"):
            path = path[len(prefix) :]
            break
    path = path or "/"
    if b"%" not in raw and "%" not in path:
        return MountedPath(mount, path, path.encode())
    return MountedPath(mount, path, _raw_path(raw, prefixes, path))


def _raw_path(raw: bytes, prefixes: Iterable[str], path: str) -> bytes:
    """The end of the path on the wire that decodes to `path`; `path` encoded anew, if none does at a slash."""
    if _decode(raw) == path:
        return raw
    for prefix in prefixes:
        depth = prefix.count("/")
        parts = raw.split(b"/", depth + 1)
        rest = b"/" + parts.pop() if len(parts) > depth + 1 else b"/"
        if _decode(b"/".join(parts)) == prefix and _decode(rest) == path:
            return rest
    return quote(path, safe=PATH_SAFE).encode()


def _decode(raw: bytes) -> str:
    return unquote(raw.decode("latin-1"))


class MountedRequest:
    """A request under way. `since` is when its reader was handed something that it has not taken yet; 0: it has all."""

    __slots__ = ("_task", "canceled", "peer", "since")

    def __init__(self, task: "asyncio.Task[Any]", peer: str) -> None:
        self._task = task
        self.peer = peer
        self.since = 0.0
        self.canceled = False

    def cancel(self) -> None:
        """End it, whether its answer is complete or not."""
        self.canceled = True
        self._task.cancel()


ReaderCut = Callable[[str, float], None]


class MountedRequests:
    """Passes requests to an application while that is open; before, they are answered with 503.

    A reader that takes nothing of its answer for `reader_pause_s` is cut off, as by our own listener. The bounds of
    connections are the other server's.
    """

    def __init__(self) -> None:
        self._app: Asgi | None = None
        self._under_way: set[MountedRequest] = set()
        self._none_left: asyncio.Event | None = None
        """Is set when no request is under way any more, once this closes."""
        self._watch: asyncio.TimerHandle | None = None
        self._reader_pause_s = 0.0
        self._reader_cut: ReaderCut

    def open(self, app: Asgi, reader_pause_s: float, reader_cut: ReaderCut) -> None:
        """Pass requests to `app` from now on. `reader_cut` is called for each reader that is cut off."""
        self._app = app
        self._reader_pause_s, self._reader_cut = reader_pause_s, reader_cut
        self._look()

    async def close(self, within_s: float) -> None:
        """Pass on no more requests, and wait for those under way; what is left then is canceled.

        Returns within `within_s`, or after `CUT_S` if that is longer.
        """
        self._app, self._none_left = None, asyncio.Event()
        if self._watch is not None:
            self._watch.cancel()
        for wait_s in (max(0.0, within_s - CUT_S), CUT_S):
            if not self._under_way:
                break
            try:
                async with asyncio.timeout(wait_s):
                    await self._none_left.wait()
            except TimeoutError:
                for request in tuple(self._under_way):
                    request.cancel()
        self._none_left = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """ASGI 3.0."""
        if scope["type"] != "http":
            return refuse_scope(scope, receive, send)
        return self.answer(read_path(scope), scope, receive, send)

    async def answer(self, at: MountedPath, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer a request as one for the path `at`."""
        try:
            app = self._find_app()
        except Unavailable as error:
            await refuse(error, receive, send)
            return
        task, loop, client = asyncio.current_task(), asyncio.get_running_loop(), scope.get("client")
        assert task is not None
        request = MountedRequest(task, client[0] if client else "")
        one = scope["http_version"][:1] == "1"

        async def send_watched(message: Message) -> None:
            request.since = loop.time()
            if not one and message["type"] == "http.response.start":
                # HTTP/2 has no connections of one answer, and forbids the header (RFC 9113 §8.2.2).
                message = {**message, "headers": [each for each in message["headers"] if each[0] != b"connection"]}
            try:
                await send(message)
            except OSError as error:  # the client has left, as newer servers say it (ASGI, HTTP 2.4)
                raise Gone from error
            request.since = 0.0

        self._under_way.add(request)
        try:
            inner = {**scope, PARENT_SCOPE: scope, "root_path": at.mount, "path": at.path, "raw_path": at.raw_path}
            await app(inner, receive, send_watched)
        except asyncio.CancelledError:
            if not request.canceled or task.uncancel() > 0:
                raise  # the cancellation came from elsewhere
        finally:
            self._under_way.discard(request)
            if self._none_left is not None and not self._under_way:
                self._none_left.set()

    def _find_app(self) -> Asgi:
        """The application that answers now. Raises Unavailable if there is none."""
        if self._app is not None:
            return self._app
        if self._none_left is not None:
            raise Unavailable("this application is stopping: try again")
        raise Unavailable(
            "the lifespan of this application has not been entered: let the application in which it is mounted enter "
            "app.lifespan in its own, as FastAPI(lifespan=app.lifespan) does"
        )

    def _look(self) -> None:
        """Cut off the readers that have taken nothing for too long, now and again."""
        loop, pause_s = asyncio.get_running_loop(), self._reader_pause_s
        late_s = loop.time() - pause_s
        for request in tuple(self._under_way):
            if 0 < request.since < late_s and not request.canceled:
                self._reader_cut(request.peer, pause_s)
                request.cancel()
        self._watch = loop.call_later(pause_s / LOOKS, self._look)


async def refuse(error: A2AError, receive: Receive, send: Send) -> None:
    """Answer a request with an error, as A2A 1.0 does over HTTP+JSON (§11.6)."""
    answer = error_response(error, http_status(error), b"application/json", encode_http_error(error))
    await send_response(answer, receive, send)
