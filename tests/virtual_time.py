"""An event loop on a clock of its own: whoever waits for a time is told so at once, so that no machine is too slow."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class SkippingSelector(selectors.DefaultSelector):
    """Does not wait for a time to pass, but counts it as passed. It waits for files only if nothing else is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.now_s += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time moves only when it has nothing to do."""

    def __init__(self) -> None:
        self._skipping = SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now_s


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in a VirtualLoop. Its events must happen on the loop: threads are not waited for."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
