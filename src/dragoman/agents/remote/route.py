"""The way to one agent of another server: its card, the connection to it, and whether calls get through.

Invariant: nothing here raises what an exception of the way out says: that is logged, and told in words of our own.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

from dragoman.agents.breaker import Breaker, State
from dragoman.agents.remote import check as upstream_check
from dragoman.agents.remote.address import Address, Made
from dragoman.agents.remote.attribution import Saying
from dragoman.agents.remote.card_keys import CardKeys
from dragoman.agents.remote.check import Fault
from dragoman.agents.remote.contexts import Contexts
from dragoman.agents.remote.faults import (
    LATE,
    NOT_LET_IN,
    NOT_READ,
    NOT_SIGNED,
    NOT_THERE,
    UNFOUND,
    fault_of,
    in_words,
)
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import CardCache, Connection, NoInterface, Retries, connect
from dragoman.client.card import verify
from dragoman.client.chat import complete
from dragoman.client.credentials import Authorized
from dragoman.client.discovery import Discovery, places
from dragoman.client.errors import NoAnswer, NoCard, PeerError
from dragoman.client.retries import Again
from dragoman.client.wire import Way
from dragoman.model.errors import A2AError
from dragoman.net.egress import Egress
from dragoman.net.target import target
from dragoman.telemetry.counts import UpstreamCalls

log = logging.getLogger("dragoman.upstreams")

START_S = 5.0
"""How long the start of a server waits for the cards of its upstreams."""

SOON_S, LATE_S = 1.0, 60.0
"""Shortest and longest time between two attempts to get a card that could not be had."""

AGAIN_S = 5.0
"""When a send may be made again, where nobody says when."""

CONNECTIONS_MAX = 4000
"""Most connections to one upstream at once: each task that is followed holds one."""


class UpstreamWay:
    """The way to `address`. `told` is given each card that was read. Belongs to the event loop in which it is opened.

    `fault` says why the agent cannot be called, as far as is known; None if it can.
    """

    def __init__(
        self,
        name: str,
        address: Address,
        made: Made,
        breaker: Breaker,
        told: Callable[[dict[str, Any]], None],
        *,
        forwards: bool = False,
    ) -> None:
        self.name = name
        self.breaker = breaker
        self.calls = UpstreamCalls(lambda: breaker.state.value)
        self.again = Again(Retries(attempts=6, first_s=0.05, patience_s=address.retry_wait_s, dedupes=address.dedupes))
        self.timeouts = address.timeouts
        self.forwards = forwards
        self.said = Saying(None, forwards=forwards)
        self.contexts = Contexts()
        self.fault: str | None = NOT_READ
        self._address = address
        self._made = made
        self._told = told
        self._cache = CardCache()
        self._egress: Egress | None = None
        self._opened = AsyncExitStack()
        self._connection: Connection | None = None
        self._card: dict[str, Any] | None = None
        self._turn = asyncio.Lock()
        self._look = asyncio.Event()
        self._told_why = ""
        self._shut_out = ""
        self._keys = CardKeys(address.card_keys, breaker.clock) if address.card_keys else None
        self._mute = False
        self._group: asyncio.TaskGroup | None = None
        self._answers = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    # -- for the server ------------------------------------------------------------------------------------------------

    async def open(self, group: asyncio.TaskGroup) -> None:
        """Read the card, for a bounded time, and look after it from now on."""
        self._group = group
        self._begin()
        try:
            async with asyncio.timeout(START_S):
                await self._attempt()
        except TimeoutError:
            self._missing(LATE)
        self._watching = group.create_task(self._watch(), name=f"upstream {self.name}")

    async def look_once(self) -> tuple[str, str]:
        """Look for the agent as a send does: the fault, empty if it can be called; how it is spoken to, or why not."""
        self._begin()
        await self._attempt()
        if self.fault is not None:
            return self.fault, self._told_why
        by_chat = "by chat completions"
        if self._connection is None:
            return "", f"{by_chat}, since it speaks no A2A"
        at = self._connection.interface
        spoken = f"in dialect {at.dialect} over {at.binding} at {at.url}"
        if self.forwards or (fault := await upstream_check.ask(self._connection)) is None:
            return "", spoken
        if fault.kind == NOT_THERE and await self._ask_for_chat() is None:
            return "", f"{by_chat}, since there is no A2A at {at.url}"
        return fault.kind, self.said.masking.text(f"{spoken}: {fault.told}")

    async def close(self) -> None:
        """End what is open."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._group = None
        await self._opened.aclose()
        if self._egress is not None:
            await self._egress.close()
        self._connection = self._egress = None

    @property
    def place(self) -> str:
        """Where it is, for its operator."""
        return places(self._address.url).base

    @property
    def verifies(self) -> bool:
        """Whether its card must be signed: without such a card it is not called."""
        return self._keys is not None

    @property
    def state(self) -> str | None:
        """Why it cannot be called; None if it can, for all that is known."""
        match self.breaker.state:
            case State.OPEN:
                return "it does not answer: calls are held back for a while"
            case State.HALF_OPEN:
                return "it did not answer: the next call shows whether it does"
            case State.CLOSED:
                return self.fault or self._shut_out or None

    # -- for runs ------------------------------------------------------------------------------------------------------

    async def connection(self) -> Connection | None:
        """How it is spoken to; None if it speaks no A2A. Raises NoAnswer, NoToken, CardNotVerified or NoKeys."""
        if self._connection is None and not self._mute:
            self._begin()
            await self._connect()
        return self._connection

    def repeats(self, sent_ms: int) -> bool:
        """Whether a message may be sent again that may have arrived then, or since."""
        said_s = 0.0 if self._connection is None else self._connection.interface.dedupes_s
        return (self.again.clock.now_ms() - sent_ms) / 1000 < self.again.retries.repeats_s(said_s)

    def looked(self) -> None:
        """A call was made: if it read the card anew, that is known from now on."""
        connection = self._connection
        if connection is not None and connection.card is not None and connection.card.whole is not self._card:
            self._read(connection.card.whole)

    async def stop(self, task_id: str) -> None:
        """Cancel a task there; whether it lets itself be canceled is not for us to say."""
        try:
            connection = await self.connection()
            if connection is not None:
                await connection.cancel(task_id)
        except (A2AError, *UNFOUND) as error:
            log.info("upstream %s: its task %s was not canceled: %s", self.name, task_id, self.words(error))

    def beside(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do something that outlives the run that wants it, which is to see that it ends. False if nothing is open."""
        if self._group is None:
            work.close()
            return False
        self._group.create_task(work, name=f"beside {self.name}")
        return True

    @property
    def again_s(self) -> float:
        """When a send that did not get through may be made again: after the pause, if there is one."""
        return self.breaker.wait_s or AGAIN_S

    def failed(self) -> None:
        """A call did not get through."""
        pause_s = self.breaker.failed()
        if pause_s is not None:
            log.warning("upstream %s: no call got through: the next one is made in %g s", self.name, pause_s)

    def look(self) -> None:
        """Something is odd: read the card again, soon."""
        self._look.set()

    def answered(self) -> None:
        """A call got through: those that were held back may be made."""
        held_back = self.breaker.state is not State.CLOSED
        self._shut_out = ""
        self.breaker.succeeded()
        if held_back:
            self._wake()

    def shut_out(self) -> None:
        """A call was refused because of who this server is: so are others, until one is not."""
        if not self.forwards:
            self._shut_out = NOT_LET_IN

    def _wake(self) -> None:
        self._answers.set()
        self._answers = asyncio.Event()

    async def pause(self, pause_s: float) -> None:
        """Wait for so long, or until it turns out that the agent answers again, though calls were held back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._answers.wait()

    def words(self, error: Exception) -> str:
        """What an error says, without what was shown to the upstream."""
        return self.said.masking.text(in_words(error))

    async def reread(self) -> None:
        """Read the card again, now: the agent may speak something else."""
        async with self._turn:
            if self._connection is not None:
                await self._connection.refresh(anew=True)
                self.looked()

    async def chat(self, messages: list[dict[str, str]], traceparent: str | None) -> str:
        """What it answers over chat completions. Raises HttpRefusal, InvalidAgentResponse, EgressError or NoToken."""
        headers = {"traceparent": traceparent} if traceparent else {}
        return await complete(
            self._way,
            places(self._address.url).base,
            self.name,
            messages,
            timeout_s=self.timeouts.answer_s,
            headers=headers,
        )

    # -- the card ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._egress is None:
            self._egress = Egress(connect_timeout_s=self.timeouts.connect_s, connections_max=CONNECTIONS_MAX)
            self.said = Saying(self._made(self._egress), forwards=self.forwards)

    @property
    def _way(self) -> Way:
        assert self._egress is not None  # it has begun
        return Authorized(self._egress, self.said)

    async def _watch(self) -> None:
        """Read the card again and again: soon as long as it cannot be had, then when it may have changed."""
        pause_s = SOON_S
        while True:
            self._look.clear()
            well = self.fault is None and self.breaker.state is State.CLOSED
            with suppress(TimeoutError):
                async with asyncio.timeout(self._address.card_s if well else min(pause_s, self._address.card_s)):
                    await self._look.wait()
            pause_s = SOON_S if await self._attempt() else min(LATE_S, pause_s * 2)
            await asyncio.sleep(min(SOON_S, self._address.card_s))

    async def _attempt(self) -> bool:
        """Read the card. False if it cannot be had now."""
        held_back = self.breaker.state is not State.CLOSED
        try:
            try:
                await self._seen(anew=held_back)
            except CardNotVerified:
                assert self._egress is not None
                if self._keys is None or not await self._keys.reread(self._egress):
                    raise
                await self._seen(anew=True)
        except UNFOUND as error:
            if not (self._mute and isinstance(error, NoCard) and await self._ask_for_chat() is None):
                self._missing(fault_of(error), self.words(error))
                return False
        else:
            if (fault := await self._unreached()) is not None:
                self._missing(fault.kind, self.said.masking.text(fault.told), known=True)
                return False
        self.fault = None
        if held_back and self.breaker.half_open():
            log.info("upstream %s: its card can be read again: calls are tried", self.name)
            self._wake()
        return True

    async def _unreached(self) -> Fault | None:
        """What speaks against calls, although the card is there: its endpoint may be on another server, or none."""
        connection = self._connection
        if connection is None:
            return await self._ask_for_chat()
        if target(connection.interface.url).origin == target(self._address.url).origin:
            return None  # whence the card came
        return await upstream_check.reach(connection)

    async def _ask_for_chat(self) -> Fault | None:
        fault = await upstream_check.ask_for_chat(self._way, self.place, timeout_s=self._address.timeouts.card_s)
        return None if self.forwards and fault is not None and fault.kind == NOT_LET_IN else fault

    async def _seen(self, *, anew: bool) -> None:
        if self._connection is None:
            await self._connect()
            return
        async with self._turn:
            if self._address.dialect is None:
                await self._connection.refresh(anew=anew)
                self.looked()
            else:
                await self._found(anew=anew)

    async def _connect(self) -> None:
        async with self._turn:
            if self._connection is not None:
                return
            address = self._address
            assert self._egress is not None
            opening = connect(
                address.url,
                credentials=self.said,
                keys=None if self._keys is None else await self._keys.read(self._egress),
                path=address.card,
                binding=address.binding,
                dialect=address.dialect,
                timeouts=address.timeouts,
                retries=self.again,
                egress=self._egress,
                origins=address.origins,
                double_base64=address.double_base64,
                cache=self._cache,
            )
            try:
                connection = await self._opened.enter_async_context(opening)
            except NoInterface:
                self._mute = True
                await self._found()
                return
            except NoCard:
                self._mute = self._keys is None  # until its card is there
                raise
            self._connection, self.fault = connection, None
            if address.dialect is None:
                self.looked()
            else:
                await self._found()

    async def _found(self, *, anew: bool = False) -> None:
        """Read the card for what it says of the agent only."""
        address = self._address
        discovery = Discovery(
            self._way,
            places(address.url, address.card),
            self._cache,
            timeout_s=address.timeouts.card_s,
            headers={},
            credentials=self.said,
            again=self.again,
        )
        try:
            card = (await discovery.find(anew=anew)).card
        except (NoAnswer, PeerError):
            if address.dialect is None or anew:
                raise
            return
        if self._keys is not None:
            await asyncio.to_thread(verify, card, self._keys.known)
        self._read(card)

    def _read(self, whole: dict[str, Any]) -> None:
        self._card = whole
        self._told(self.said.masking.any(whole))

    def _missing(self, fault: str, told: str = "", *, known: bool = False) -> None:
        """It cannot be called; `known`: its card is, and so that says nothing else."""
        if fault != self.fault:
            log.warning("upstream %s: %s%s", self.name, fault, f": {told}" if told else "")
        if self._connection is None or fault == NOT_SIGNED or known:
            self.fault = fault
            self._told_why = told

    def count(self, outcome: str, waited_s: float | None = None) -> None:
        """A call is over; `waited_s` is how long the first word of its answer took."""
        self.calls.outcomes[outcome] += 1
        if waited_s is not None:
            self.calls.waits.add(int(waited_s * 1000))
