"""Session: the conversation with an MCP server, from `initialize` to its end.

Invariant: every request ends: with its answer, with Away, or with its timeout.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from dragoman import __version__
from dragoman.agents.mcp.link import Away, Hear, Link, Refused
from dragoman.dialects.mcp import asking, hearing, names, results
from dragoman.dialects.mcp.hearing import Answered, Asked, Offer, Opened, Progress, Told
from dragoman.dialects.mcp.results import Outcome
from dragoman.model.errors import InvalidAgentResponse

log = logging.getLogger("dragoman.mcp")

T = TypeVar("T")

GIVE_UP_S = 1.0
"""How long a server may take to accept that a call was given up."""

PAGES_MAX = 100
"""Most pages of tools that are read, since a faulty server may always announce one more."""

Linked = Callable[[Hear], Link]
"""Creates a Link, which passes the server's own messages to the given receiver."""

Hears = Callable[[Progress], None]


class Session:
    """A session with the server `name`. `changed` is called when the server's tools have changed."""

    def __init__(self, name: str, linked: Linked, changed: Callable[[], None]) -> None:
        self._name = name
        self._changed = changed
        self._link = linked(self._hear)
        self._ids = count(1)
        self._progress: dict[int, Hears] = {}
        self.server = ""

    @property
    def over(self) -> bool:
        """Whether a new session is needed."""
        return self._link.over

    async def open(self, within_s: float) -> None:
        """Agree with the server on a version. If that fails, the link is closed. Raises Away."""
        try:
            async with asyncio.timeout(within_s):
                await self._link.open()
                opened = await self._initialize()
                await self._say(asking.notification(names.INITIALIZED))
        except BaseException as error:
            await self._link.close()
            if isinstance(error, TimeoutError):
                raise Away(f"its server gave no answer within {within_s:g} s") from error
            raise
        if not opened.tools:
            log.warning("mcp server %s (%s) says that it has no tools", self._name, opened.server)
        log.info("mcp server %s: %s, version %s of MCP", self._name, opened.server or "unnamed", opened.version)
        self.server = opened.server

    async def offers(self, within_s: float) -> tuple[Offer, ...]:
        """All tools of the server, in its order. Raises Away."""
        offers: list[Offer] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(within_s):
                for _ in range(PAGES_MAX):
                    request_id = next(self._ids)
                    answer = await self._link.ask(request_id, asking.tools_list(request_id, cursor))
                    page = _read(answer, hearing.page)
                    offers += page.tools
                    if (cursor := page.cursor) is None:
                        return tuple(offers)
        except Refused as error:
            if error.code != names.METHOD_NOT_FOUND:
                raise
            return tuple(offers)  # it has only resources or prompts
        except TimeoutError as error:
            raise Away(f"its server did not list its tools within {within_s:g} s") from error
        raise Away(f"its server has more than {PAGES_MAX} pages of tools")

    async def call(
        self, tool: str, arguments: dict[str, Any], *, within_s: float, traceparent: str | None, hears: Hears
    ) -> Outcome:
        """Call a tool, and return the outcome. `hears` gets its progress. Raises Away.

        When the call takes too long, or nobody waits any more, the server is told.
        """
        request_id = next(self._ids)
        self._progress[request_id] = hears
        try:
            async with asyncio.timeout(within_s):
                body = asking.tools_call(request_id, tool, arguments, traceparent)
                return _read(await self._link.ask(request_id, body), results.outcome)
        except TimeoutError as error:
            await self._give_up(request_id, "it took too long")
            raise Away(f"its server gave no answer within {within_s:g} s") from error
        except asyncio.CancelledError:
            await self._give_up(request_id, "the task was canceled")
            raise
        finally:
            del self._progress[request_id]

    async def close(self) -> None:
        """End the session."""
        await self._link.close()

    async def _initialize(self) -> Opened:
        request_id = next(self._ids)
        answer = await self._link.ask(request_id, asking.initialize(request_id, version=__version__))
        opened = _read(answer, hearing.opened)
        self._link.agreed(opened.version, changes=opened.changes)
        return opened

    async def _give_up(self, request_id: int, reason: str) -> None:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._link.tell(asking.cancelled(request_id, reason))
        except (TimeoutError, Away) as error:
            log.info("mcp server %s did not hear that a call was given up: %s", self._name, error)

    async def _hear(self, heard: Asked | Told) -> None:
        """Handle a message that the server sends on its own."""
        match heard:
            case Asked(request_id, names.PING):
                await self._say(asking.pong(request_id))
            case Asked(request_id, method):
                log.info("mcp server %s asks for %s, which is declined", self._name, method[:100])
                await self._say(asking.declined(request_id, method))
            case Told(names.PROGRESS, params):
                self._hear_progress(params)
            case Told(names.TOOLS_CHANGED, _):
                self._changed()
            case Told(method, _):
                log.debug("mcp server %s sends %s", self._name, method[:100])

    async def _say(self, body: bytes) -> None:
        """Send a message that the server can do without: some do not accept notifications."""
        try:
            await self._link.tell(body)
        except Away as error:
            log.info("mcp server %s did not hear what it was told: %s", self._name, error)

    def _hear_progress(self, params: bytes) -> None:
        try:
            progress = hearing.progress(params)
        except InvalidAgentResponse as error:
            log.info("mcp server %s: %s", self._name, error.message)
            return
        if progress is not None and (hears := self._progress.get(progress.id)) is not None:
            hears(progress)


def _read(answer: Answered, read: Callable[[bytes], T]) -> T:
    """Parse an answer. Raises Away."""
    if answer.fault is not None:
        raise Refused(answer.fault.code, answer.fault.message)
    try:
        return read(answer.result)
    except InvalidAgentResponse as error:
        raise Away("its server gave an answer that cannot be read", error.message) from error
