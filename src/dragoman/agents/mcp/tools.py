"""McpTools: the tools of MCP servers, as a model may call them.

Invariant: whatever a server does, the run continues: a call ends with a result, which may be a failure.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from dragoman.agents.lifecycle import Finding
from dragoman.agents.mcp.check import looked_at
from dragoman.agents.mcp.link import Away
from dragoman.agents.mcp.naming import Named, Names
from dragoman.agents.mcp.outcomes import result_of
from dragoman.agents.mcp.reach import Grant
from dragoman.agents.mcp.server import McpServer
from dragoman.agents.tools import ModelTool, ToolResult
from dragoman.dialects.mcp.hearing import Offer, Progress
from dragoman.engine.api import Run
from dragoman.model.message import Part

log = logging.getLogger("dragoman.mcp")

TELL_EVERY_S = 0.25
"""Shortest time between two statuses that report a call's progress: a server may report every byte."""

PROGRESS_CHARS_MAX = 500


class _Granted(Struct):
    """An open server, why it was away when its tools were last listed, and the configured tools that it lacked."""

    grant: Grant
    server: McpServer
    away: str = ""
    missing: tuple[tuple[str, str], ...] = ()


class McpTools:
    """The tools of the servers in `grants`. Satisfies `Tools`, `Living`, `Dependent` and `Checkable`.

    With several servers, the name of each tool begins with its server's: `files__read`.
    """

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._grants = tuple(grants)
        self._names = Names(tuple(grant.name for grant in self._grants))
        self._open: tuple[_Granted, ...] = ()

    async def open(self, group: asyncio.TaskGroup) -> None:
        """Get ready. Servers are reached when they are first needed; their messages are read in `group`."""
        self._open = tuple(
            _Granted(
                grant,
                McpServer(grant.name, partial(grant.reach.link, group), start_s=grant.start_s, call_s=grant.call_s),
            )
            for grant in self._grants
        )

    async def close(self) -> None:
        """End all sessions."""
        granted, self._open = self._open, ()
        await asyncio.gather(*(one.server.close() for one in granted))
        await asyncio.gather(*(grant.reach.close() for grant in self._grants))

    @property
    def degraded(self) -> str | None:
        """Names the servers that were away when they were last needed; None if there are none."""
        away = [granted.grant.name for granted in self._open if granted.away]
        return f"its tools of {', '.join(away)} are away" if away else None

    async def offered(self) -> tuple[ModelTool, ...]:
        """The tools of all reachable servers, in the order of the servers."""
        offers = await asyncio.gather(*map(self._offers, self._open))
        return tuple(
            _tool(self._names.name(Named(server, offer.name)), offer)
            for server, offered in enumerate(offers)
            for offer in offered
        )

    def needs_approval(self, name: str) -> bool:
        """Whether the caller must approve the tool. A name that was never offered cannot be called either."""
        meant = self._names.meant(name)
        return meant is not None and self._grants[meant.server].asks(meant.tool)

    async def call(self, run: Run, name: str, arguments: dict[str, Any], call_id: str) -> ToolResult:
        """Call a tool that was offered before. The server is told if the call is given up, the caller of progress."""
        meant = self._names.meant(name)
        if meant is None or not self._open:
            return ToolResult(text=f"There is no tool {name[:100]!r}.", error=True)
        granted = self._open[meant.server]
        telling = _Telling(run, name)
        async with asyncio.TaskGroup() as group:
            told = group.create_task(telling.told(), name=f"tell of {call_id}")
            try:
                outcome = await granted.server.call(
                    meant.tool, arguments, traceparent=run.traceparent, hears=telling.hear
                )
                result = result_of(outcome)
            except Away as error:
                log.info("mcp server %s: the call of %s failed: %s", granted.grant.name, meant.tool, error)
                result = ToolResult(text=f"The tool failed: {error.told}.", error=True)
            finally:
                told.cancel()
        return result

    async def check(self) -> AsyncIterator[Finding]:
        """Check whether each server can be reached, and has the configured tools."""
        found = await asyncio.gather(*map(looked_at, self._grants))
        if not self._open:
            await asyncio.gather(*(grant.reach.close() for grant in self._grants))
        for findings in found:
            for finding in findings:
                yield finding

    async def _offers(self, granted: _Granted) -> tuple[Offer, ...]:
        """The server's tools that the model may call, each once; none if the server is away."""
        try:
            offers = await granted.server.offers()
        except Away as error:
            if granted.away != str(error):
                granted.away = str(error)
                log.warning("mcp server %s is away, and offers no tools: %s", granted.grant.name, error)
            return ()
        granted.away = ""
        if (missing := granted.grant.missing([offer.name for offer in offers])) != granted.missing:
            granted.missing = missing
            for key, tool in missing:  # a misspelled tool would never be asked about
                log.warning("mcp server %s has no tool %r: fix `%s`", granted.grant.name, tool, key)
        first: dict[str, Offer] = {}
        for offer in offers:
            if granted.grant.allows(offer.name):
                first.setdefault(offer.name, offer)
        return tuple(first.values())


class _Telling:
    """Reports a call's progress to the caller of a task. Reports that come too fast are left out."""

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = name
        self._newest: Progress | None = None
        self._news = asyncio.Event()

    def hear(self, progress: Progress) -> None:
        """Take the newest progress."""
        self._newest = progress
        self._news.set()

    async def told(self) -> None:
        """Report progress until canceled."""
        while True:
            await self._news.wait()
            self._news.clear()
            progress = self._newest
            if progress is not None and (progress.steps is not None or progress.message):
                text = progress.message[:PROGRESS_CHARS_MAX] or f"{self._name} is at work"
                await self._run.status((Part(text=text),), progress=progress.steps)
            await asyncio.sleep(TELL_EVERY_S)


def _tool(name: str, offer: Offer) -> ModelTool:
    """Describe a tool to the model. The API requires an object with properties, even if there are none."""
    schema = {"properties": {}, **offer.schema, "type": "object"}
    return ModelTool(name=name, description=offer.description, parameters=schema, repeatable=offer.repeatable)
