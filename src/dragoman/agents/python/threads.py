"""The threads in which plain functions run.

Invariant: never more than `maximum` threads live at once, including those that a canceled run left behind. The run's
own coroutine does what a thread needs done on the event loop, so that canceling the run reaches the thread; for one
that somebody else has started, a task in its branch does.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Generic, TypeVar

from msgspec import Struct

from dragoman.agents.python.final_word import FinalWord
from dragoman.engine.runs.places import start_for_thread

T = TypeVar("T")
R = TypeVar("R")

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


Work = Callable[[Callable[[], object]], Awaitable[object]]
"""Has a thread do something, and returns what it returns."""


class Crossing(Generic[T]):
    """The connection between a thread and the event loop of its run."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, loop_thread: int = 0) -> None:
        """Connect the thread to a loop, which runs in `loop_thread`; by default to the one that runs here."""
        self.canceled = False
        """Whether the run is over while its thread still runs."""
        self.ended = False
        self._loop_thread = loop_thread or get_ident()
        self._loop = asyncio.get_running_loop() if loop is None else loop
        self._inbox: asyncio.Queue[_Asked | _Ended[T] | Future[object]] = asyncio.Queue()
        """One entry for each thread that waits, and for work that one has done."""
        self.thread = 0
        """The identity of the thread of the run's function."""
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

    def call_working(self, make: "Callable[[Work], Awaitable[R]]") -> R:
        """As `call`, but `make` gets a function with which the loop has work done by the calling thread meanwhile."""
        if get_ident() == self._loop_thread:
            raise RuntimeError("a SyncContext blocks: use it in the thread of its function, not on the event loop")
        future: Future[R] = Future()
        orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        future.add_done_callback(lambda _: orders.put(None))

        async def serve() -> None:
            future.set_result(await make(lambda work: self._have_done(orders, work)))

        self._post(_Asked(serve, future.set_exception))
        while (order := orders.get()) is not None:
            order()
        return future.result()

    async def _have_done(self, orders: "SimpleQueue[Callable[[], None] | None]", work: Callable[[], object]) -> object:
        """Have a thread do `work`, and serve what it calls meanwhile, as `serve` does."""
        done: Future[object] = Future()

        def order() -> None:
            try:
                done.set_result(work())
            except (Exception, asyncio.CancelledError, FinalWord) as raised:  # noqa: BLE001  it is raised on the loop
                done.set_exception(raised)
            except BaseException as raised:  # noqa: BLE001
                done.set_exception(_contained(raised))
            self._post(done)

        orders.put(order)
        while (entry := await self._next_entry()) is not done:
            assert isinstance(entry, _Asked)  # the thread has not ended, and does one thing at a time
        return done.result()

    async def _next_entry(self) -> "_Asked | _Ended[T] | Future[object]":
        """Take the next entry. A call is served, so that its thread goes on."""
        entry = await self._inbox.get()
        if isinstance(entry, _Asked):
            await _serve(entry)
        return entry

    def begin_in_thread(self) -> None:
        """The work begins, in the calling thread."""
        self.thread = get_ident()

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
        try:
            while True:
                entry = await self._next_entry()
                if isinstance(entry, _Ended):
                    if entry.error is not None:
                        raise entry.error
                    return entry.result  # type: ignore[return-value]  # without an error, it is the work's own
        finally:
            self._closed = True
            while not self._inbox.empty():
                if isinstance(entry := self._inbox.get_nowait(), _Asked):
                    entry.fail(asyncio.CancelledError())

    def _post(self, entry: "_Asked | _Ended[T] | Future[object]") -> None:
        try:
            self._loop.call_soon_threadsafe(self._put, entry)
        except RuntimeError as closed:
            raise asyncio.CancelledError("the event loop of the run is closed") from closed

    def _put(self, entry: "_Asked | _Ended[T] | Future[object]") -> None:
        if not self._closed:
            self._inbox.put_nowait(entry)
        elif isinstance(entry, _Asked):
            entry.fail(asyncio.CancelledError())


async def _serve(asked: _Asked) -> None:
    try:
        await asked.serve()
    except (Exception, FinalWord) as error:  # noqa: BLE001  it belongs to the thread: raised there
        asked.fail(error)
    except BaseException:
        asked.fail(asyncio.CancelledError())
        raise


class ForeignCrossing(Crossing[None]):
    """The connection between the calling thread, which a framework has started for a run, and the run's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        super().__init__(loop, loop_thread)
        self.begin_in_thread()
        self._serving: set[asyncio.Task[None]] = set()

    def cancel(self) -> None:
        """The run is over: what the thread waits for, and its later calls, raise CancelledError. Called on the loop."""
        super().cancel()
        for task in self._serving:
            task.cancel()

    def _post(self, entry: "_Asked | _Ended[None] | Future[object]") -> None:
        if not isinstance(entry, _Asked):
            super()._post(entry)
            return
        serving = self._serve_here(entry)
        try:
            start_for_thread(self._loop, serving)
        except RuntimeError as closed:
            serving.close()
            raise asyncio.CancelledError("the event loop of the run is closed") from closed

    async def _serve_here(self, asked: _Asked) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if self.canceled:
                raise asyncio.CancelledError
            await _serve(asked)
        except asyncio.CancelledError:
            asked.fail(asyncio.CancelledError())
        finally:
            self._serving.discard(task)


class Threads:
    """At most `maximum` threads. If all are taken, runs wait for one, first come, first served."""

    def __init__(self, maximum: int = THREADS_MAX) -> None:
        if maximum < 1:
            raise ValueError(f"threads_max {maximum}: at least 1")
        self.maximum = maximum
        self._lock = Lock()
        self._taken = 0
        self._left_behind = 0
        self._of_steps: Threads | None = None
        self._queue: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @property
    def of_steps(self) -> "Threads":
        """Threads for the steps of the functions that run here: as many, so that none of those waits for itself."""
        if self._of_steps is None:
            self._of_steps = Threads(self.maximum)
        return self._of_steps

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
        crossing.begin_in_thread()
        try:
            result = work(crossing)
        except (Exception, asyncio.CancelledError, FinalWord) as raised:  # noqa: BLE001  it is raised again in the run
            error = raised
        except BaseException as raised:  # noqa: BLE001  sys.exit() in an agent must not end the server
            error = _contained(raised)
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


def _contained(raised: BaseException) -> RuntimeError:
    """The error in place of one that would end the server's loop, such as that of `sys.exit()`."""
    error = RuntimeError(f"{type(raised).__name__} in the thread of a skill")
    error.__cause__ = raised
    return error
