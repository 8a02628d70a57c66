"""The threads in which plain functions run, and their view of their task.

Invariant: never more than `maximum` threads live at once, including those that a canceled run left behind. The run's
own coroutine does what a thread needs done on the event loop, so that canceling the run reaches the thread. SyncContext
has no behaviour of its own: each of its calls is the one of the same name in Context.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from functools import wraps
from threading import Lock, Thread, get_ident
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from msgspec import Struct

from dragoman.agents.content import Artifacts
from dragoman.agents.python.context import Context, Facts, FinalWord
from dragoman.engine.api import Run

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

THREADS_MAX = 32
"""Enough for functions that wait for a network or a program; more busy threads would only wait for each other."""


class _Asked(Struct, eq=False):
    """A call that a thread wants awaited on the loop, and the receiver of its error."""

    serve: Callable[[], Awaitable[None]]
    fail: Callable[[BaseException], None]


class _Ended(Struct, Generic[T], eq=False):
    """The end of a thread: its result or its error."""

    result: T | None
    error: BaseException | None


class Crossing(Generic[T]):
    """The connection between a thread and the event loop of its run."""

    def __init__(self) -> None:
        self.canceled = False
        """Whether the run is over while its thread still runs."""
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._loop_thread = get_ident()
        self._inbox: asyncio.Queue[_Asked | _Ended[T]] = asyncio.Queue()  # one entry for each thread that waits
        self._closed = False

    def call(self, make: Callable[[], Awaitable[R]]) -> R:
        """Await `make()` on the loop, and return its result to the calling thread, which blocks.

        Raises CancelledError once the run has been canceled or has ended, and RuntimeError on the loop's own thread.
        """
        if get_ident() == self._loop_thread:
            raise RuntimeError("a SyncContext blocks: use it in the thread of its function, not on the event loop")
        future: Future[R] = Future()

        async def serve() -> None:
            future.set_result(await make())

        self._post(_Asked(serve, future.set_exception))
        return future.result()

    def cancel(self) -> None:
        """The run is over, and its thread still runs."""
        self.canceled = True

    def finish(self) -> None:
        """The thread's work is over."""
        self.ended = True

    def end(self, result: T | None, error: BaseException | None = None) -> None:
        """Report the thread's end; its last call."""
        try:
            self._post(_Ended(result, error))
        except asyncio.CancelledError:  # nobody waits for it any more
            pass

    async def serve(self) -> T:
        """Serve the thread's calls until it ends. Returns the thread's result, or raises its exception."""
        asked: _Asked | None = None
        try:
            while True:
                entry = await self._inbox.get()
                if isinstance(entry, _Ended):
                    if entry.error is not None:
                        raise entry.error
                    return entry.result  # type: ignore[return-value]  # without an error, it is the work's own
                asked = entry
                try:
                    await asked.serve()
                except (Exception, FinalWord) as error:  # noqa: BLE001  it belongs to the thread: raised there
                    asked.fail(error)
                asked = None
        finally:
            self._closed = True
            if asked is not None:
                asked.fail(asyncio.CancelledError())
            while not self._inbox.empty():
                if isinstance(entry := self._inbox.get_nowait(), _Asked):
                    entry.fail(asyncio.CancelledError())

    def _post(self, entry: "_Asked | _Ended[T]") -> None:
        try:
            self._loop.call_soon_threadsafe(self._put, entry)
        except RuntimeError as closed:
            raise asyncio.CancelledError("the event loop of the run is closed") from closed

    def _put(self, entry: "_Asked | _Ended[T]") -> None:
        if not self._closed:
            self._inbox.put_nowait(entry)
        elif isinstance(entry, _Asked):
            entry.fail(asyncio.CancelledError())


class Threads:
    """At most `maximum` threads. If all are taken, runs wait for one, first come, first served."""

    def __init__(self, maximum: int = THREADS_MAX) -> None:
        if maximum < 1:
            raise ValueError(f"threads_max {maximum}: at least 1")
        self.maximum = maximum
        self._lock = Lock()
        self._taken = 0
        self._left_behind = 0
        self._queue: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        """How many threads live, including those left behind."""
        return self._taken

    @property
    def left_behind(self) -> int:
        """How many threads still run although their run was canceled."""
        return self._left_behind

    @property
    def full(self) -> bool:
        """Whether the next run has to wait."""
        return self._taken >= self.maximum

    async def run(self, work: Callable[[Crossing[T]], T]) -> T:
        """Call `work` in a thread of its own, with a Crossing to this event loop, and return its result.

        Canceling returns at once: `work` gets CancelledError at its next call across, and until it ends, its thread
        counts as left behind. The threads are daemons, so they do not delay an exit.
        """
        await self._take()
        crossing: Crossing[T] = Crossing()
        context = copy_context()
        try:
            Thread(target=context.run, args=(self._work, work, crossing), name="dragoman-skill", daemon=True).start()
        except RuntimeError:  # the system gives no more threads
            self._give_back()
            raise
        try:
            return await crossing.serve()
        finally:
            with self._lock:
                if not crossing.ended:
                    crossing.cancel()
                    self._left_behind += 1

    def _work(self, work: Callable[[Crossing[T]], T], crossing: Crossing[T]) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work(crossing)
        except (Exception, asyncio.CancelledError, FinalWord) as raised:  # noqa: BLE001  it is raised again in the run
            error = raised
        except BaseException as raised:  # noqa: BLE001  sys.exit() in an agent must not end the server
            error = RuntimeError(f"{type(raised).__name__} in the thread of a skill")
            error.__cause__ = raised
        with self._lock:
            crossing.finish()
            self._left_behind -= crossing.canceled
        self._give_back()
        crossing.end(result, error)

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._taken < self.maximum:
                self._taken += 1
                return
            place = loop.create_future()
            self._queue.append((loop, place))
        try:
            await place
        except asyncio.CancelledError:
            with self._lock:
                waiting = (loop, place) in self._queue
                if waiting:
                    self._queue.remove((loop, place))
            if not waiting and not place.cancelled():  # a thread was handed over at this very moment
                self._give_back()
            raise

    def _give_back(self) -> None:
        """Hand the thread's place to the first in the queue, or free it. Callable from any thread."""
        while True:
            with self._lock:
                if not self._queue:
                    self._taken -= 1
                    return
                loop, place = self._queue.popleft()
            try:
                loop.call_soon_threadsafe(self._hand_over, place)
            except RuntimeError:  # the loop of that run is closed
                continue
            return

    def _hand_over(self, place: "asyncio.Future[None]") -> None:
        if place.cancelled():
            self._give_back()
        else:
            place.set_result(None)


def _blocking(method: Callable[Concatenate[Context, P], Awaitable[R]]) -> "Callable[Concatenate[SyncContext, P], R]":
    """Make the method of SyncContext that awaits `method` on the event loop, and blocks until it is done."""

    @wraps(method)
    def call(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._crossing.call(lambda: method(self._context, *args, **kwargs))

    return call


def _on_loop(method: Callable[Concatenate[Context, P], R]) -> "Callable[Concatenate[SyncContext, P], R]":
    """Make the method of SyncContext that calls `method`, which does not wait, on the event loop."""

    @wraps(method)
    def call(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def on_loop() -> R:
            return method(self._context, *args, **kwargs)

        return self._crossing.call(on_loop)

    return call


def _iterating(
    method: Callable[Concatenate[Context, P], AsyncGenerator[T, None]],
) -> "Callable[Concatenate[SyncContext, P], Iterator[T]]":
    """Make the method of SyncContext that yields what `method` yields, for a plain `for`."""

    @wraps(method)
    def iterate(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._context, *args, **kwargs)
        while (item := self._crossing.call(lambda: anext(items, None))) is not None:
            yield item

    return iterate


class SyncContext(Facts):
    """The argument of a plain function, which runs in a thread: like Context, but calls block instead of `await`.

    A call raises CancelledError once the task has been canceled, which ends the function. A call that waits for the
    caller or for another agent keeps its thread, so agents that ask often are best `async`.
    """

    __slots__ = ("_context", "_crossing", "_run", "_skill")

    def __init__(self, run: Run, skill: str, artifacts: Artifacts, crossing: Crossing[Any]) -> None:
        self._run = run
        self._skill = skill
        self._context = Context(run, skill, artifacts)
        self._crossing = crossing

    @property
    def canceled(self) -> bool:
        """Whether the task has been canceled. A function that works long without a call should check it, and return."""
        return self._crossing.canceled

    history = _blocking(Context.history)
    read = _blocking(Context.read)
    references = _blocking(Context.references)
    progress = _blocking(Context.progress)
    status = _blocking(Context.status)
    tool = _blocking(Context.tool)
    artifact = _blocking(Context.artifact)
    ask = _blocking(Context.ask)
    require_auth = _blocking(Context.require_auth)
    delegate = _blocking(Context.delegate)
    delegate_stream = _iterating(Context.delegate_stream)
    finish = _blocking(Context.finish)
    fail = _blocking(Context.fail)
    message_reply = _blocking(Context.message_reply)
    note = _on_loop(Context.note)
    noted = _on_loop(Context.noted)
    usage = _on_loop(Context.usage)
