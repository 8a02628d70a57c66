"""McpServer: one MCP server, connected whenever it is needed, and its tools.

Invariant: there is at most one session. It is opened when it is first needed, shared by all runs, and replaced when it
is over.
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
"""How long an unreachable server is not tried again, so that not every run waits for it: at first, and after many
failures."""

LIST_S = 300.0
"""How long a list of tools is used if the server does not announce changes, or was not heard."""


class McpServer:
    """The server `name`. `start_s` bounds its start and the list of its tools, `call_s` bounds a call."""

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
        """The server's own name; empty if there is no session."""
        return "" if self._session is None else self._session.server

    async def offers(self) -> tuple[Offer, ...]:
        """The server's tools, in its order. Raises Away."""
        async with self._listing:
            session = await self._ensure_session()
            if self._offers is not None and self._clock() - self._listed_at < LIST_S:
                return self._offers
            if self._clock() < self._again_at:  # the list did not come; runs do not wait for it one after the other
                raise self._away
            self._stale = False
            try:
                offers = await self._list_tools(session)
            except Away as error:
                self._put_off(error)
                raise
            self._pause_s = PAUSE_S
            if not self._stale:  # they may have changed while they were listed
                self._offers, self._listed_at = offers, self._clock()
            return offers

    async def _list_tools(self, session: Session) -> tuple[Offer, ...]:
        try:
            return await session.offers(self._start_s)
        except SessionGone:
            session = await self._ensure_session()
            return await session.offers(self._start_s)

    async def call(self, tool: str, arguments: dict[str, Any], *, traceparent: str | None, hears: Hears) -> Outcome:
        """Call a tool, and return the outcome. Raises Away."""
        try:
            session = await self._ensure_session()
            try:
                return await session.call(tool, arguments, within_s=self._call_s, traceparent=traceparent, hears=hears)
            except SessionGone:  # the call was not carried out
                session = await self._ensure_session()
                return await session.call(tool, arguments, within_s=self._call_s, traceparent=traceparent, hears=hears)
        except Refused:
            raise
        except Away:
            self._offers = None  # reach the server again before its tools are offered
            raise

    async def close(self) -> None:
        """End the session. No other follows."""
        self._closed.set()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ensure_session(self) -> Session:
        """The session, opened if there is none. Raises Away."""
        async with self._opening:
            if self._session is not None and not self._session.over:
                return self._session
            if self._closed.is_set():
                raise Away("the tool is no longer served")
            if self._clock() < self._again_at:
                raise self._away
            await self._drop_session()
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
        """Do not try again for a while, because the server is unreachable or does not list its tools."""
        if error is not self._away:  # else the failed opening has put it off already
            self._again_at, self._away = self._clock() + self._pause_s, error
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    async def _drop_session(self) -> None:
        """Close a session that is over."""
        session, self._session, self._offers = self._session, None, None
        if session is not None:
            await session.close()

    def _changed(self) -> None:
        log.info("mcp server %s: its tools have changed", self.name)
        self._offers, self._stale = None, True
