"""Reports the tool calls of a framework's run to its caller.

Invariant: every call that was reported as begun is reported as ended, once, whatever happens to the run.
"""

import logging
from typing import Any

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.approvals import arguments_of
from dragoman.agents.frameworks.gathering import all_given
from dragoman.agents.python.context import Context

BROKEN = "it broke off"
"""The reason that callers read for a call that an exception ended: the exception's text is for the log."""

FAILED = "the log says why"
"""The reason that callers read for a failed call whose answer the framework made from the exception's text."""

log = logging.getLogger("dragoman.frameworks")


class Calls:
    """The calls of one run. A value without a JSON form is shown as its text.

    `open` holds the calls that have begun and not ended, names by id: a pause has to remember them.
    """

    def __init__(self, ctx: Context) -> None:
        self.open: dict[str, str] = {}
        self._ctx = ctx

    async def began(self, id: str, name: str, arguments: Any = None) -> None:  # noqa: A002
        """Report a call that begins, once for each id. `arguments` may be JSON text."""
        if id not in self.open:
            self.open[id] = name
            await all_given()
            await self._ctx.tool(name, id=id, arguments=_json_or_text(arguments_of(arguments)))

    async def ended(self, id: str, result: Any = None, *, error: str | None = None, name: str = "") -> None:  # noqa: A002
        """Report the end of a call, with a result or an error. `name` is for a call whose beginning was not seen."""
        name = self.open.pop(id, name)
        if name:
            await all_given()
            await self._ctx.tool(name, id=id, done=True, result=_json_or_text(result), error=error)

    async def failed(self, id: str, why: str, *, name: str = "") -> None:  # noqa: A002
        """Report that a call failed. The model knows why; the caller does not: it may be the text of an exception."""
        name = self.open.get(id, name)
        log.warning("task %s: tool %s failed: %s", self._ctx.task_id, name, why)
        await self.ended(id, error=FAILED, name=name)

    async def broken(self) -> None:
        """Report the open calls as failed, because the run has failed."""
        for open_id in tuple(self.open):
            await self.ended(open_id, error=BROKEN)


def _json_or_text(value: Any) -> Any:
    try:
        return json_of(value)
    except (TypeError, ValueError):
        return str(value)
