"""The tools that a framework's run calls, as its caller is told of them.

Invariant: every call that was told of as begun is told of as ended, once, whatever becomes of the run.
"""

import logging
from typing import Any

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.approvals import arguments_of
from dragoman.agents.frameworks.gathering import all_given
from dragoman.agents.python.context import Context

BROKEN = "it broke off"
"""What callers are told of a call that an exception ended: its text is for the log."""

FAILED = "the log says why"
"""What callers are told of a call that failed, of which the framework made the exception's text the tool's answer."""

log = logging.getLogger("dragoman.frameworks")


class Calls:
    """The calls of one run. What has no JSON form is shown as its text.

    `open` are those that have begun and not ended, their names by their ids: what a pause has to remember.
    """

    def __init__(self, ctx: Context) -> None:
        self.open: dict[str, str] = {}
        self._ctx = ctx

    async def began(self, id: str, name: str, arguments: Any = None) -> None:  # noqa: A002
        """A tool is being called; `arguments` may be JSON text. Told once for each id."""
        if id not in self.open:
            self.open[id] = name
            await all_given()
            await self._ctx.tool(name, id=id, arguments=_shown(arguments_of(arguments)))

    async def ended(self, id: str, result: Any = None, *, error: str | None = None, name: str = "") -> None:  # noqa: A002
        """A call has ended, with a result or an error. `name` is that of a call whose beginning was not seen."""
        name = self.open.pop(id, name)
        if name:
            await all_given()
            await self._ctx.tool(name, id=id, done=True, result=_shown(result), error=error)

    async def failed(self, id: str, why: str, *, name: str = "") -> None:  # noqa: A002
        """A call has failed. The model knows why; for the caller it may be the text of an exception."""
        name = self.open.get(id, name)
        log.warning("task %s: tool %s failed: %s", self._ctx.task_id, name, why)
        await self.ended(id, error=FAILED, name=name)

    async def broken(self) -> None:
        """The run has failed: so have the calls that were still going on."""
        for open_id in tuple(self.open):
            await self.ended(open_id, error=BROKEN)


def _shown(value: Any) -> Any:
    try:
        return json_of(value)
    except (TypeError, ValueError):
        return str(value)
