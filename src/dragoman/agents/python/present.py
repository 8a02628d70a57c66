"""The context of the run within which code runs that is not given one: the nodes and tools of a framework's object.

Invariant: the context belongs to the run that has brought the code to work, in its asyncio tasks and in the threads to
which a copy of their context variables was given; once that run is over nobody gets it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from weakref import WeakSet

from msgspec import Struct

from dragoman.agents.python.context import Context
from dragoman.agents.python.sync_context import SyncContext, sync_context_of
from dragoman.agents.python.threads import ForeignCrossing
from dragoman.engine.runs.places import Branch, branch_of_thread


class PresentRun:
    """A run, as the code finds it that runs within it."""

    def __init__(self, context: Context) -> None:
        self.context: Context | None = context
        """None once the run is over: a task that outlives it must not keep it in memory."""
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        """That of the loop."""
        self.crossings: WeakSet[ForeignCrossing] = WeakSet()

    def end(self) -> None:
        """The run is over."""
        self.context = None
        for crossing in tuple(self.crossings):
            crossing.cancel()


_run: ContextVar[PresentRun | None] = ContextVar("dragoman_present_run", default=None)


class _InThread(Struct, frozen=True, eq=False):
    """The SyncContext that a thread has been given, as long as it works for that run and in that branch."""

    present: PresentRun
    branch: Branch | None
    context: SyncContext


_in_thread: ContextVar[_InThread | None] = ContextVar("dragoman_present_in_thread", default=None)


@contextmanager
def running_within(context: Context) -> Iterator[None]:
    """Let the code that the block brings to work find that context."""
    present = PresentRun(context)
    before = _run.get()
    _run.set(present)
    try:
        yield
    finally:
        present.end()
        if _run.get() is present:  # a generator may be closed elsewhere
            _run.set(before)


def current_context() -> Context:
    """The Context of the run within which this code runs, for `async` nodes and tools of a framework's object.

    Its steps, sleeps and the like are found again by a later run of the task. Raises RuntimeError in a thread, where
    `current_sync_context` is the one to call, and outside of a run of a framework's object.
    """
    present, context = _present_run("current_context")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "current_context() is for code on the event loop: call current_sync_context() in a plain function, which "
            "runs in a thread"
        ) from None
    if loop is not present.loop:
        raise RuntimeError("current_context(): this event loop is not the run's own: call it in the node or the tool")
    return context


def current_sync_context() -> SyncContext:
    """The SyncContext of the run within which this code runs, for plain nodes and tools, which run in a thread.

    It belongs to that thread: in one that the function has started itself, steps raise RuntimeError. Raises
    RuntimeError on the event loop, where `current_context` is the one to call, and outside of a run of a framework's
    object.
    """
    present, context = _present_run("current_sync_context")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError(
            "current_sync_context() is for plain functions, which run in a thread: call current_context() in an async "
            "one"
        )
    known, branch = _in_thread.get(), branch_of_thread()
    if known is None or known.present is not present or known.branch is not branch:
        crossing = ForeignCrossing(present.loop, present.thread)
        present.crossings.add(crossing)
        known = _InThread(present, branch, sync_context_of(context, crossing))
        _in_thread.set(known)
    return known.context


def _present_run(function: str) -> tuple[PresentRun, Context]:
    present = _run.get()
    if present is None or present.context is None:
        raise RuntimeError(
            f"{function}() is for the nodes and tools of a framework's object while it works on a task: in a skill, "
            "use the ctx that it is given"
        )
    return present, present.context
