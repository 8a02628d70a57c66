"""What `dragoman agents check` finds out about an agent.

Invariant: a check changes nothing, makes no task, and costs its agent nothing but a look.
"""

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from msgspec import Struct


class Finding(Struct, frozen=True):
    """One thing that was looked at. `fix` says how to mend it if it is not `ok`."""

    ok: bool
    what: str
    fix: str = ""


@runtime_checkable
class Checkable(Protocol):
    """An agent that can be tried without a task."""

    def check(self) -> AsyncIterator[Finding]:
        """What is looked at, one after the other, in at most 10 s. Raises nothing. The agent need not be open."""
        ...
