"""UpstreamEndpoint: the card of an agent of another server, and the connection that is made as the card says.

Invariant: one reading of the card is under way at a time. A fault that is known is kept until a reading succeeds.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from dragoman.agents.remote import check as upstream_check
from dragoman.agents.remote.access import UpstreamAccess
from dragoman.agents.remote.check import EndpointFault
from dragoman.agents.remote.failures import LATE, NO_AGENT_THERE, NOT_READ, NOT_SIGNED, UNFOUND, fault_of
from dragoman.agents.remote.health import LOOK_S, UpstreamHealth
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import Connection, NoInterface, NotInstalled
from dragoman.client.card import verify
from dragoman.client.errors import NoAnswer, NoCard, PeerError
from dragoman.client.token_exchange import in_nobodys_name
from dragoman.net.target import target

log = logging.getLogger("dragoman.upstreams")

START_S = 5.0
"""Seconds that the start of a server waits for the cards of its upstreams."""

SOON_S, LATE_S = 1.0, 60.0
"""Shortest and longest time between two attempts to read a card, after a failure. See also `health.LOOK_S`."""


class Probes(Struct, frozen=True):
    """How often the card of a member of a pool is read: every `probe_s`, sooner or later by a `chance` from 0 to 1.

    So the probes of many agents and replicas are spread out.
    """

    probe_s: float
    chance: Callable[[], float]

    def wait_s(self) -> float:
        """Seconds until the next probe: half of `probe_s` to one and a half of it."""
        return self.probe_s * (0.5 + self.chance())


class UpstreamEndpoint:
    """Reads the card of the upstream `name`, and connects to it. The way there is `access`. A member of a pool is
    probed by its card.

    `fault` says why the agent cannot be called, as far as is known; None if it can. `shown_card` is the card that was
    read last, without secrets; None before the first.
    """

    def __init__(self, name: str, access: UpstreamAccess, health: UpstreamHealth, probes: Probes | None = None) -> None:
        self.fault: str | None = NOT_READ
        self.shown_card: dict[str, Any] | None = None
        self._name = name
        self._access = access
        self._health = health
        self._probes = probes
        self._connection: Connection | None = None
        self._card: dict[str, Any] | None = None
        self._fault_words = ""
        self._reading = asyncio.Lock()
        self._reading_due = asyncio.Event()
        self._speaks_no_a2a = False

    async def open(self) -> None:
        """Read the card within a bounded time."""
        self._access.open()
        try:
            async with asyncio.timeout(START_S):
                await self._read_and_check()
        except TimeoutError:
            self._set_fault(LATE)

    async def probe(self) -> tuple[str, str]:
        """Look for the agent as a send does. Returns the fault, empty if none, and how it is spoken to, or why not."""
        self._access.open()
        await self._read_and_check()
        if self.fault is not None:
            return self.fault, self._fault_words
        by_chat = "by chat completions"
        if self._connection is None:
            return "", f"{by_chat}, since it speaks no A2A"
        at = self._connection.interface
        spoken = f"in dialect {at.dialect} over {at.binding} at {at.url}"
        if self._access.for_callers or (fault := await upstream_check.ask(self._connection)) is None:
            return "", spoken
        if fault.kind == NO_AGENT_THERE and await self._access.ask_for_chat() is None:
            return "", f"{by_chat}, since there is no A2A at {at.url}"
        return fault.kind, self._access.credentials.masking.text(f"{spoken}: {fault.words}")

    def close(self) -> None:
        """Forget the connection, which is closed."""
        self._connection = None

    # -- for runs ------------------------------------------------------------------------------------------------------

    async def connection(self) -> Connection | None:
        """The connection; None if the agent speaks no A2A. Raises NoAnswer, NoToken, CardNotVerified or NoKeys."""
        if self._connection is None and not self._speaks_no_a2a:
            self._access.open()
            with in_nobodys_name():  # the card is read again in this context, and is shown to everybody
                await self._connect()
        return self._connection

    @property
    def known_connection(self) -> Connection | None:
        """The connection that calls are made over; None before there is one."""
        return self._connection

    def may_repeat(self, sent_ms: int) -> bool:
        """Whether a message may be sent again that may have arrived at `sent_ms` or later."""
        said_s = 0.0 if self._connection is None else self._connection.interface.dedupes_s
        return (self._access.retrier.clock.now_ms() - sent_ms) / 1000 < self._access.retrier.retries.repeats_s(said_s)

    def adopt_card(self) -> None:
        """Take over the card if the call just made has read it again."""
        connection = self._connection
        if connection is not None and connection.card is not None and connection.card.whole is not self._card:
            self._take_over(connection.card.whole)

    def request_reading(self) -> None:
        """Have the card read again soon, because something is odd."""
        self._reading_due.set()

    async def refresh_card(self) -> None:
        """Read the card again, now, since the agent may have changed its interface."""
        async with self._reading:
            if self._connection is not None:
                await self._connection.refresh(anew=True)
                self.adopt_card()

    # -- the card ------------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Read the card again and again: soon while it cannot be read, else when it may have changed."""
        pause_s, card_s = SOON_S, self._access.upstream.card_s
        while True:
            self._reading_due.clear()
            well = self.fault is None and not self._health.held_back and not self._suspected
            usual_s = card_s if self._probes is None else min(card_s, self._probes.wait_s())
            with suppress(TimeoutError):
                async with asyncio.timeout(usual_s if well else min(pause_s, usual_s)):
                    await self._reading_due.wait()
            well = await self._read_and_check()
            pause_s = SOON_S if well else min(LOOK_S if self._health.held_back else LATE_S, pause_s * 2)
            await asyncio.sleep(min(SOON_S, card_s))

    @property
    def _suspected(self) -> bool:
        """Whether the last call or probe of a member did not get through."""
        return self._probes is not None and self._health.suspect

    async def _read_and_check(self) -> bool:
        """Read the card. False if that fails now."""
        well = await self._look()
        if self._probes is not None:
            self._health.record_probe(well=well)
        return well

    async def _look(self) -> bool:
        held_back = self._health.held_back
        try:
            try:
                await self._read_card(anew=held_back or self._probes is not None)
            except CardNotVerified:
                if self._access.keys is None or not await self._access.keys.refresh(self._access.egress):
                    raise
                await self._read_card(anew=True)
        except UNFOUND as error:
            if not (isinstance(error, NoCard) and await self._answers_without_card()):
                self._set_fault(fault_of(error), self._access.describe(error))
                return False
        else:
            if (fault := await self._endpoint_fault()) is not None:
                self._set_fault(fault.kind, self._access.credentials.masking.text(fault.words), known=True)
                return False
        self.fault = None
        if held_back and self._health.half_open():
            log.info("upstream %s: its card can be read again: calls are tried", self._name)
        return True

    async def _answers_without_card(self) -> bool:
        """Whether it takes calls although it has no card: over chat completions, or in the dialect of its table."""
        if self._speaks_no_a2a:
            return await self._access.ask_for_chat() is None
        connection, access = self._connection, self._access
        if connection is None or access.upstream.dialect is None or access.for_callers:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(access.timeouts.card_s):
                return await upstream_check.ask(connection) is None
        return False

    async def _endpoint_fault(self) -> EndpointFault | None:
        """The reason why calls fail although the card is there: the endpoint may be on another server, or missing."""
        connection = self._connection
        if connection is None:
            return await self._access.ask_for_chat()
        if self._access.over_http and connection.interface.to.origin == target(self._access.upstream.url).origin:
            return None  # the card came from there
        return await upstream_check.reach(connection)

    async def _read_card(self, *, anew: bool) -> None:
        if self._connection is None:
            await self._connect()
            return
        async with self._reading:
            if self._access.upstream.dialect is None:
                await self._connection.refresh(anew=anew)
                self.adopt_card()
            else:
                await self._read_profile(anew=anew)

    async def _connect(self) -> None:
        async with self._reading:
            if self._connection is not None:
                return
            try:
                connection = await self._access.connect()
            except NotInstalled:
                raise
            except NoInterface:
                self._speaks_no_a2a = True
                await self._read_profile()
                return
            except NoCard:
                self._speaks_no_a2a = self._access.keys is None  # until its card is there
                raise
            self._connection, self.fault = connection, None
            if self._access.at_root and connection.card is not None:
                name = self._access.credentials.masking.text(connection.card.name)
                log.info("upstream %s: its URL names a host: its agent is the one at the root, %s", self._name, name)
            if self._access.upstream.dialect is None:
                self.adopt_card()
            else:
                await self._read_profile()

    async def _read_profile(self, *, anew: bool = False) -> None:
        """Read the card only for what it says about the agent."""
        try:
            card = await self._access.find_card(anew=anew)
        except NoCard:
            if self._access.upstream.dialect is None or (anew and self._probes is None):
                raise
            return  # it needs none, and a probe has shown that somebody is there, or looks at the endpoint next
        except (NoAnswer, PeerError):
            if self._access.upstream.dialect is None or anew:
                raise
            return
        if self._access.keys is not None:
            await asyncio.to_thread(verify, card, self._access.keys.known)
        self._take_over(card)

    def _take_over(self, whole: dict[str, Any]) -> None:
        self._card = whole
        self.shown_card = self._access.credentials.masking.any(whole)

    def _set_fault(self, fault: str, words: str = "", *, known: bool = False) -> None:
        """Record that the agent cannot be called. `known`: its card was read, and the fault holds all the same."""
        if fault != self.fault:
            log.warning("upstream %s: %s%s", self._name, fault, f": {words}" if words else "")
        if self._connection is None or fault == NOT_SIGNED or known:
            self.fault = fault
            self._fault_words = words
