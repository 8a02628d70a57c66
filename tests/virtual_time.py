"""An event loop on a clock of its own: whoever waits for a time is told so at once, so that no machine is too slow."""

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

STALLED_S = 20.0
"""How long nothing may come of the work of threads before time goes on: some of it may wait for a time itself."""


class SkippingSelector(selectors.DefaultSelector):
    """Does not wait for a time to pass, but counts it as passed. It waits for files only if nothing else is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.working = 0
        """How many things other threads or processes do at present. Time stands still meanwhile."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(STALLED_S if self.working and timeout > 0 else 0)
        if not ready:
            self.now_s += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time moves only when it has nothing to do."""

    def __init__(self) -> None:
        self.skipping = SkippingSelector()
        super().__init__(self.skipping)

    def time(self) -> float:
        return self.skipping.now_s

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads however long they take: the limit that Python 3.12 gives would pass at once."""
        await super().shutdown_default_executor()


class Waited:
    """An object whose methods are done on threads or elsewhere. The time of the loop stands still while they are.

    Its attributes are waited for likewise.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._worker, name)
        if inspect.ismethod(found):
            return lambda *given, **named: _wait_for(found(*given, **named))
        inside = type(found).__module__.startswith("dragoman.store.") and hasattr(found, "__dict__")
        return Waited(found) if inside and not isinstance(found, type) else found


def _wait_for(result: Any) -> Any:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    skipping = loop.skipping
    if inspect.iscoroutine(result):
        return _awaited(skipping, result)
    if isinstance(result, asyncio.Future):
        skipping.working += 1
        result.add_done_callback(lambda _: _rest(skipping))
    return result


async def _awaited(skipping: SkippingSelector, work: Coroutine[Any, Any, Any]) -> Any:
    skipping.working += 1
    try:
        return await work
    finally:
        _rest(skipping)


def _rest(skipping: SkippingSelector) -> None:
    skipping.working -= 1


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in a VirtualLoop. Threads are waited for only if they work for a `Waited`."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
