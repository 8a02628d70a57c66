"""The capabilities of an agent beside running tasks: to be opened and closed, degraded, checked, and set to answer
directly.

Invariant: an agent that cannot be opened does not stop its server from starting; it reports the fault when asked. A
check changes nothing, creates no task, and costs the agent no more than a look.
"""

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dragoman.engine.api import DirectMode
from dragoman.telemetry.job_group import JobGroup


@runtime_checkable
class Living(Protocol):
    """An agent that is opened before its first task and closed after its last."""

    async def open(self, group: JobGroup) -> None:
        """Get ready within a bounded time. Work that continues beside its tasks runs in `group`, where its
        exceptions end nothing. Raises nothing."""
        ...

    async def close(self) -> None:
        """Release what is open. All of the agent's tasks have ended by then."""
        ...


@runtime_checkable
class Dependent(Protocol):
    """An agent that depends on something that may be away: another server, an endpoint, workers, tools."""

    @property
    def degraded(self) -> str | None:
        """Why it cannot do all of its work, in words for any caller, without an address; None if no fault is known."""
        ...


@runtime_checkable
class AnswersDirectly(Protocol):
    """An agent whose table of the file may say whether it answers with a message."""

    def answer_directly(self, direct: DirectMode, wait_s: float) -> None:
        """Set `direct` and `direct_wait_s` of `Runner` anew. Raises ValueError or TypeError."""
        ...


class CheckResult(Struct, frozen=True):
    """The result of one check. `fix` says what to do if it is not `ok`."""

    ok: bool
    what: str
    fix: str = ""


@runtime_checkable
class Checkable(Protocol):
    """An agent that can be checked without a task."""

    def check(self) -> AsyncIterator[CheckResult]:
        """Yield the findings one after the other, within 10 s. Raises nothing. The agent need not be open."""
        ...
