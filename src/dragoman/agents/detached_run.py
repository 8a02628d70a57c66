"""DetachedRun: what a run does that has no log of its own, in a worker process or in a test.

Invariant: nothing here waits. The keeper of the log writes it, replays it, and says that the task is at work.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from dragoman.engine.bounds import Bounds
from dragoman.model.message import Message, Part
from dragoman.model.operations import CallerCredentials


class DetachedRun(Protocol):
    """The methods of `engine.api.Run` that concern the log. They do nothing, since the log is kept elsewhere."""

    canceled: bool = False
    bounds: Bounds = Bounds()
    shown: CallerCredentials | None = None

    async def written(self) -> None:
        """Return at once: the keeper of the task writes what it is given."""
        return

    def landing(self, done: "Future[None]") -> None:
        """Complete `done` at once: no write is in progress here."""
        if not done.done():
            done.set_result(None)

    async def noted(self) -> dict[str, str]:
        """Return no notes: earlier tasks of the conversation are not known here."""
        return {}

    def caught_up(self) -> None:
        """Do nothing: no replay happens here."""
        return

    def known(self, count: int, *, replays: bool) -> tuple[Message, ...]:
        """Return nothing: no replay happens here."""
        return ()

    def carries_on(self, handed: int) -> None:
        """Do nothing: the output of earlier runs is kept elsewhere."""
        return

    def note_next(self, /, *, usage: bool = False, **note: str) -> None:
        """Do nothing: no later run carries on."""
        return

    def working(self) -> None:
        """Do nothing: the task is at work since the run began."""
        return

    def waiting(self, parts: Sequence[Part]) -> None:
        """Do nothing: no caller waits here."""
        return

    def goes_on(self) -> None:
        """Do nothing: the output of earlier runs is kept elsewhere."""
        return
