"""The client for scripts and notebooks: the same calls, without `async` and `await`.

Each method wraps the asynchronous method of the same name and keeps its signature and docstring. It runs on an event
loop in a separate thread, so it also works where a loop is already running, as in Jupyter. ParamSpec shows every
parameter to type checkers, so nothing is written or generated twice.

Invariant: closing the agent closes everything that its calls left open; a KeyboardInterrupt cancels the call that it
interrupts.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from dragoman.client import connection
from dragoman.client.card import Interface, RemoteCard
from dragoman.client.connection import Connection
from dragoman.client.conversation import Conversation, Reply
from dragoman.client.webhooks import TaskWebhooks

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner")

CLOSE_S = 10.0
"""How long closing waits for the thread. The thread is a daemon: what is still open then dies with the process."""


class Thread:
    """An event loop in its own thread, with one context manager open in it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._entering: asyncio.Task[Any] | None = None
        self._thread: threading.Thread | None = None

    def open(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Start the thread and enter the context manager in it."""
        entered: Future[T] = Future()
        thread = threading.Thread(target=self._main, args=(manager, entered), name="dragoman-client", daemon=True)
        self._thread = thread
        thread.start()
        try:
            return entered.result()
        except BaseException:
            self.close()
            raise

    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `call` creates in the thread, and return its result. An interrupt cancels it.

        Raises RuntimeError in the thread itself, or after the end.
        """
        if self._ended.is_set() or threading.current_thread() is self._thread:
            fault = "the agent is closed" if self._ended.is_set() else "inside its own thread use dragoman.client"
            raise RuntimeError(fault)
        future: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            try:
                tasks.append(self._loop.create_task(call()))
            except TypeError as error:  # the parameters do not fit the call
                future.set_exception(error)
            else:
                tasks[0].add_done_callback(lambda task: _copy(task, future))

        def end() -> None:
            if tasks:
                tasks[0].cancel()  # no effect on a finished task, whose result is about to be copied
            else:
                future.cancel()

        try:
            self._loop.call_soon_threadsafe(begin)
            return future.result()
        except CancelledError:
            raise RuntimeError("the agent was closed meanwhile") from None
        except BaseException:
            if not future.done():  # an interrupt: cancel the call and wait for it
                self._loop.call_soon_threadsafe(end)
                with suppress(BaseException):
                    future.result(CLOSE_S)
            raise

    def leave(self, updates: AsyncGenerator[Any, None]) -> None:
        """Close a stream, unless the end of the thread has already closed it."""
        if self._ended.is_set():
            return
        if threading.current_thread() is self._thread:  # the garbage collector runs anywhere
            self._loop.create_task(_close_stream(updates))
            return
        self.run(lambda: _close_stream(updates))

    def close(self) -> None:
        """Exit the context manager and end the thread."""
        if not self._ended.is_set():
            try:
                self._loop.call_soon_threadsafe(self._end)
            except RuntimeError:
                pass  # the loop has already ended
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _end(self) -> None:
        self._ended.set()
        if self._entering is not None:
            self._entering.cancel()

    def _main(self, manager: AbstractAsyncContextManager[T], entered: "Future[T]") -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._hold(manager, entered))
            except BaseException as error:
                if entered.done():
                    raise
                entered.set_exception(error)

    async def _hold(self, manager: AbstractAsyncContextManager[T], entered: "Future[T]") -> None:
        if self._ended.is_set():
            raise asyncio.CancelledError
        self._entering = asyncio.current_task()
        async with manager as inner:
            own, self._entering = self._entering, None
            entered.set_result(inner)
            await self._ended.wait()
            others = asyncio.all_tasks() - {own}
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)


class Twin(Generic[Inner]):
    """The synchronous twin of an object in the thread. Using it keeps `owner` open."""

    def __init__(self, inner: Inner, thread: Thread, owner: object = None) -> None:
        self._inner = inner
        self._thread = thread
        self._owner = owner


class _Twin(Protocol):
    _inner: Any
    _thread: Thread


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Twin, P], T]:
    """Wrap an asynchronous method as one that blocks until its result is there."""

    @wraps(method)
    def waits(self: _Twin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(lambda: method(self._inner, *args, **kwargs))

    return waits


def iterated(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[_Twin, P], Iterator[T]]:
    """Wrap an asynchronous generator as an iterator that yields each item as it comes."""

    @wraps(method)
    def iterates(self: _Twin, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        updates = method(self._inner, *args, **kwargs)
        try:
            while (update := self._thread.run(lambda: _next(updates))) is not None:
                yield update
        finally:
            self._thread.leave(updates)

    return iterates


def _copy(task: "asyncio.Task[T]", future: "Future[T]") -> None:
    """Copy the task's outcome to the future of the waiting thread."""
    if task.cancelled():
        future.cancel()
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


async def _next(updates: AsyncGenerator[T, None]) -> T | None:
    return await anext(updates, None)


async def _close_stream(updates: AsyncGenerator[Any, None]) -> None:
    await updates.aclose()


class BlockingWebhooks(Twin[TaskWebhooks]):
    """The webhooks of a remote agent's tasks."""

    set = blocking(TaskWebhooks.set)
    get = blocking(TaskWebhooks.get)
    list = blocking(TaskWebhooks.list)
    delete = blocking(TaskWebhooks.delete)


class BlockingConversation(Twin[Conversation]):
    """A conversation: see `dragoman.client.conversation.Conversation`."""

    say = blocking(Conversation.say)
    stream = iterated(Conversation.stream)

    @property
    def context_id(self) -> str | None:
        """The agent's id for the conversation, None before its first answer."""
        return self._inner.context_id

    @property
    def task_id(self) -> str | None:
        """The task that waits for an answer, None if none does."""
        return self._inner.task_id

    @property
    def reply(self) -> Reply | None:
        """The last reply."""
        return self._inner.reply


class BlockingConnection(Twin[Connection]):
    """A connected agent, as returned by `connect`. Close it, or use it in a `with` block."""

    send = blocking(Connection.send)
    stream = iterated(Connection.stream)
    subscribe = iterated(Connection.subscribe)
    get = blocking(Connection.get)
    list = blocking(Connection.list)
    cancel = blocking(Connection.cancel)
    extended_card = blocking(Connection.extended_card)
    ask = blocking(Connection.ask)
    refresh = blocking(Connection.refresh)
    reach = blocking(Connection.reach)

    def __init__(self, inner: Connection, thread: Thread) -> None:
        super().__init__(inner, thread)
        self._close = weakref.finalize(self, thread.close)  # runs when the interpreter exits, too

    @property
    def card(self) -> RemoteCard | None:
        """The agent's card; None if a dialect was given, which makes the card unnecessary."""
        return self._inner.card

    @property
    def interface(self) -> Interface:
        """The endpoint in use."""
        return self._inner.interface

    @property
    def webhooks(self) -> BlockingWebhooks:
        """The webhooks of the agent's tasks."""
        return BlockingWebhooks(self._inner.webhooks, self._thread, self)

    def conversation(self, context_id: str | None = None) -> BlockingConversation:
        """Begin a conversation, in which each turn continues the one before."""
        return BlockingConversation(self._inner.conversation(context_id), self._thread, self)

    def close(self) -> None:
        """Close the connection and end the thread."""
        self._close()

    def __enter__(self) -> "BlockingConnection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _make_connect(connect: Callable[P, AbstractAsyncContextManager[Connection]]) -> Callable[P, BlockingConnection]:
    @wraps(connect)
    def connects(*args: P.args, **kwargs: P.kwargs) -> BlockingConnection:
        thread = Thread()
        return BlockingConnection(thread.open(connect(*args, **kwargs)), thread)

    return connects


connect = _make_connect(connection.connect)
