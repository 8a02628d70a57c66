"""Deadlines of waits for requests, with one timer for all of them.

Invariant: a wait ends at its deadline or within `STEP_S` after it, and at most `SLOW_MAX` waits take longer than
`SLOW_S`: gRPC keeps what has arrived of each request, and tells nobody how much that is.
"""

import asyncio
from typing import Any

from dragoman.model.errors import A2AError, RequestTimeout, Unavailable

STEP_S = 0.25
"""How often waits are looked at, while there are any. `asyncio.timeout` would make and cancel a timer for each call,
which costs more than most waits take."""

SLOW_S = 1.0
"""A request that takes longer than this is large, or its client is slow."""

SLOW_MAX = 32
"""How many such requests may be arriving: 1 GiB with the default of `max_body_bytes`."""

RETRY_S = 5

Waiting = asyncio.Task[Any]


class Deadlines:
    """Cancels tasks that wait for too long. Such a task asks `refusal`, to tell this from being canceled by others."""

    def __init__(self) -> None:
        self._waits: dict[Waiting, tuple[float, float]] = {}  # since when and until when, the oldest first
        self._refusals: dict[Waiting, A2AError] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, task: Waiting, wait_s: float) -> None:
        """Cancel the task in `wait_s` seconds, unless `end` comes before."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._waits[task] = now_s, now_s + wait_s
        if self._timer is None:
            self._timer = loop.call_later(min(STEP_S, wait_s), self._look)

    def end(self, task: Waiting) -> None:
        """The task waits no more."""
        self._waits.pop(task, None)
        if self._refusals:
            self._refusals.pop(task, None)

    def refusal(self, task: Waiting) -> A2AError | None:
        """The error for which the task was canceled here; None if it was canceled for another reason."""
        error = self._refusals.get(task)
        return error if error is not None and task.uncancel() == 0 else None

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s, next_s, slow = loop.time(), STEP_S, 0
        for task, (since_s, until_s) in tuple(self._waits.items()):
            slow += now_s - since_s > SLOW_S
            if until_s <= now_s:
                self._refuse(task, RequestTimeout(f"the request did not arrive within {until_s - since_s:g} s"))
            elif slow > SLOW_MAX and now_s - since_s > SLOW_S:
                self._refuse(task, Unavailable("too many large requests are arriving at once: send again", RETRY_S))
            else:
                next_s = min(next_s, until_s - now_s)
        if self._waits:
            self._timer = loop.call_later(next_s, self._look)

    def _refuse(self, task: Waiting, error: A2AError) -> None:
        del self._waits[task]
        self._refusals[task] = error
        task.cancel()
