"""A deterministic event loop with processes: virtual time, no threads, no sockets, and an order that a seed decides.

Invariant: callbacks of one process run in the order in which they were scheduled, as asyncio promises. Between
processes nothing is promised, and the seed decides. The same seed gives the same run.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

PROCESS: ContextVar["Process"] = ContextVar("process")


class Handle:
    """A scheduled callback. It belongs to the process in whose context it runs."""

    __slots__ = ("args", "callback", "context", "process", "time")

    def __init__(
        self, process: "Process", context: Context, callback: Callable[..., object], args: tuple[Any, ...], time: float
    ) -> None:
        self.process = process
        self.context = context
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.time = time

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.time


class Process:
    """A process: its callbacks run in one order, and it can be stopped and go on, or be killed.

    Nothing of a killed process runs any more, not even to clean up.
    """

    __slots__ = ("context", "dead", "name", "ready", "runnable", "stopped")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Handle] = deque()
        self.runnable = False
        self.stopped = False
        self.dead = False
        self.context = Context()
        self.context.run(PROCESS.set, self)


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks have the same order in every run."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs processes. Time passes only when none of them has anything to do."""

    def __init__(self, seed: object = 0) -> None:
        self._random = Random(f"loop {seed}").random
        self._now_s = 0.0
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = 0
        self._runnable: list[Process] = []
        self._tasks: list[NumberedTask] = []
        self._closed = False
        self._task_factory: Callable[..., Any] = SimulatedLoop._make_task
        self.main = Process("main")
        self.current = self.main
        self.steps = 0
        self.faults: list[BaseException] = []
        """Exceptions that callbacks raised, which no task keeps."""

    # -- processes -----------------------------------------------------------------------------------------------------

    def post(self, process: Process, delay_s: float, callback: Callable[..., object], *args: object) -> Handle:
        """Call `callback` in a process, which may be another one, after a delay."""
        handle = Handle(process, process.context, callback, args, self._now_s + delay_s)
        self._numbers += 1
        heapq.heappush(self._timers, (handle.time, self._numbers, handle))
        return handle

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task in a process, which may be another one."""
        return self._new_task(coroutine, process.context.copy())

    def kill(self, process: Process) -> None:
        """End a process. Its tasks stay where they are until the loop is closed."""
        process.dead = True
        process.ready.clear()

    def stop_process(self, process: Process) -> None:
        """Let nothing of the process run until it goes on. Time passes meanwhile (SIGSTOP)."""
        process.stopped = True

    def go_on(self, process: Process) -> None:
        """Let a stopped process run again (SIGCONT). Its timers that came due meanwhile fire now."""
        process.stopped = False
        if process.ready:
            self._enqueue(process)

    def _enqueue(self, process: Process) -> None:
        if not process.runnable and not process.stopped:
            process.runnable = True
            self._runnable.append(process)

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, until_s: float = float("inf"), done: Callable[[], bool] = lambda: False) -> bool:
        """Run until `done()`, which is asked whenever time passes. Returns False at `until_s`, or when nothing is left.

        Can be called again, to go on.
        """
        random, runnable, timers = self._random, self._runnable, self._timers
        events._set_running_loop(self)
        try:
            while True:
                while runnable:
                    place = int(random() * len(runnable))
                    process = runnable[place]
                    ready = process.ready
                    self.current = process
                    count = len(ready) if random() < 0.7 else 1
                    if process.stopped:
                        count = 0
                    for _ in range(min(count, len(ready))):
                        if not ready:
                            break
                        handle = ready.popleft()
                        callback = handle.callback
                        if callback is None:
                            continue
                        self.steps += 1
                        try:
                            handle.context.run(callback, *handle.args)
                        except (KeyboardInterrupt, SystemExit):
                            raise
                        except BaseException as error:  # noqa: BLE001  it is looked at after the run
                            self.faults.append(error)
                    if not ready or process.stopped:
                        process.runnable = False
                        runnable[place] = runnable[-1]
                        runnable.pop()
                if done():
                    return True
                while timers and (timers[0][2].callback is None or timers[0][2].process.dead):
                    heapq.heappop(timers)
                if not timers or timers[0][0] > until_s:
                    return False
                self._now_s, _, handle = heapq.heappop(timers)
                handle.process.ready.append(handle)
                self._enqueue(handle.process)
        finally:
            events._set_running_loop(None)

    def run_until_complete(self, future: Any) -> Any:
        task = self.spawn(self.main, future)
        self.run(done=task.done)
        if not task.done():
            raise TimeoutError("nothing is left to do, and the task has not finished")
        return task.result()

    def close(self) -> None:
        """Forget all tasks. The rest of their coroutines leads nowhere."""
        self._closed = True
        events._set_running_loop(self)
        try:
            for task in self._tasks:  # cleaning up may add more
                if not task.done():
                    try:
                        task.get_coro().close()  # type: ignore[union-attr]
                    except BaseException:  # noqa: BLE001, S110  nobody is left to care
                        pass
        finally:
            events._set_running_loop(None)
        self._tasks.clear()
        self._timers.clear()
        self._runnable.clear()

    # -- asyncio.AbstractEventLoop -------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        if context is None:
            process = self.current
            context = process.context
        else:
            process = context[PROCESS]
        handle = Handle(process, context, callback, args, self._now_s)
        if not (process.dead or self._closed):
            process.ready.append(handle)
            if not process.runnable and not process.stopped:
                process.runnable = True
                self._runnable.append(process)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        process = self.current if context is None else context[PROCESS]
        handle = Handle(process, context or process.context, callback, args, max(when, self._now_s))
        self._numbers += 1
        heapq.heappush(self._timers, (handle.time, self._numbers, handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        return self._task_factory(self, coro) if context is None else self._task_factory(self, coro, context=context)

    def set_task_factory(self, factory: Callable[..., Any] | None) -> None:
        self._task_factory = factory or SimulatedLoop._make_task

    def get_task_factory(self) -> Callable[..., Any]:
        return self._task_factory

    def _make_task(self, coroutine: Any, context: Context | None = None) -> Any:
        """Make a task as asyncio does: in a copy of the present context, unless it is given one."""
        if context is None:
            context = copy_context()
            if PROCESS not in context:  # nothing of a process runs at the moment
                context = self.current.context.copy()
        return self._new_task(coroutine, context)

    def _new_task(self, coroutine: Any, context: Context) -> Any:
        self._numbers += 1
        NumberedTask.number = self._numbers  # while the task registers itself, before it has a number of its own
        task = NumberedTask(coroutine, loop=self, context=context)
        task.number = self._numbers
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # tasks of killed processes never finish
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore it: when the garbage collector finds an exception that nobody retrieved is left to chance."""
