"""McpServer: one server of MCP that is there whenever it is needed, and its tools.

Invariant: there is one session at most, opened when it is first needed, shared by all runs, and replaced when it is
over.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from dragoman.agents.mcp.link import Away, Refused, SessionGone
from dragoman.agents.mcp.session import Hears, Linked, Session
from dragoman.dialects.mcp.hearing import Offer
from dragoman.dialects.mcp.results import Outcome

log = logging.getLogger("dragoman.mcp")

PAUSE_S, PAUSE_S_MAX = 2.0, 60.0
"""How long a server that could not be reached is not tried again, so that not every run waits for it; at first, and
when it could not be reached many times."""

LIST_S = 300.0
"""How long the list of tools is used of a server that does not tell of its changes, or was not heard."""


class McpServer:
    """The server `name`. `start_s` is for it to be there and to list its tools, `call_s` for a call."""

    def __init__(
        self,
        name: str,
        linked: Linked,
        *,
        start_s: float,
        call_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._linked = linked
        self._start_s = start_s
        self._call_s = call_s
        self._clock = clock
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._offers: tuple[Offer, ...] | None = None
        self._listed_at = 0.0
        self._stale = False
        self._again_at = 0.0
        self._pause_s = PAUSE_S
        self._away = Away("")
        self._closed = asyncio.Event()

    @property
    def says(self) -> str:
        """What the server calls itself; empty if there is no session."""
        return "" if self._session is None else self._session.server

    async def offers(self) -> tuple[Offer, ...]:
        """Its tools, in its order. Raises Away."""
        async with self._listing:
            session = await self._opened()
            if self._offers is not None and self._clock() - self._listed_at < LIST_S:
                return self._offers
            if self._clock() < self._again_at:  # its list did not come; runs do not wait for that one after the other
                raise self._away
            self._stale = False
            try:
                offers = await self._listed(session)
            except Away as error:
                self._put_off(error)
                raise
            self._pause_s = PAUSE_S
            if not self._stale:  # they may have changed while they were listed
                self._offers, self._listed_at = offers, self._clock()
            return offers

    async def _listed(self, session: Session) -> tuple[Offer, ...]:
        try:
            return await session.offers(self._start_s)
        except SessionGone:
            session = await self._opened()
            return await session.offers(self._start_s)

    async def call(self, tool: str, arguments: dict[str, Any], *, traceparent: str | None, hears: Hears) -> Outcome:
        """What a call comes to. Raises Away."""
        try:
            session = await self._opened()
            try:
                return await session.call(tool, arguments, within_s=self._call_s, traceparent=traceparent, hears=hears)
            except SessionGone:  # nothing was done
                session = await self._opened()
                return await session.call(tool, arguments, within_s=self._call_s, traceparent=traceparent, hears=hears)
        except Refused:
            raise
        except Away:
            self._offers = None  # whether it is there is to be seen before its tools are offered again
            raise

    async def close(self) -> None:
        """End its session; there will be no other."""
        self._closed.set()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _opened(self) -> Session:
        """The session, a new one if there is none. Raises Away."""
        async with self._opening:
            if self._session is not None and not self._session.over:
                return self._session
            if self._closed.is_set():
                raise Away("the tool is no longer served")
            if self._clock() < self._again_at:
                raise self._away
            await self._ended()
            session = Session(self.name, self._linked, self._changed)
            try:
                await session.open(self._start_s)
            except Away as error:
                self._put_off(error)
                raise
            if self._closed.is_set():
                await session.close()
                raise Away("the tool is no longer served")
            self._session = session
            return session

    def _put_off(self, error: Away) -> None:
        """It could not be reached, or does not list its tools: that is not tried again for a while."""
        if error is not self._away:  # else it was put off already, when no session could be opened
            self._again_at, self._away = self._clock() + self._pause_s, error
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    async def _ended(self) -> None:
        """Put a session away that is over."""
        session, self._session, self._offers = self._session, None, None
        if session is not None:
            await session.close()

    def _changed(self) -> None:
        log.info("mcp server %s: its tools have changed", self.name)
        self._offers, self._stale = None, True
