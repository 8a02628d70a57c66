"""The findings of `dragoman agents check` about an agent.

Invariant: a check changes nothing, creates no task, and costs the agent no more than a look.
"""

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from msgspec import Struct


class Finding(Struct, frozen=True):
    """The result of one check. `fix` says what to do if it is not `ok`."""

    ok: bool
    what: str
    fix: str = ""


@runtime_checkable
class Checkable(Protocol):
    """An agent that can be checked without a task."""

    def check(self) -> AsyncIterator[Finding]:
        """Yield the findings one after the other, within 10 s. Raises nothing. The agent need not be open."""
        ...
