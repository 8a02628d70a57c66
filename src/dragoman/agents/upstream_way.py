"""The way to one agent of another server: its card, the connection to it, and whether calls get through.

Invariant: nothing here raises what an exception of the way out says: that is logged, and told in words of our own.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from dragoman.agents.breaker import Breaker, State
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import CardCache, Connection, NoInterface, Retries, Timeouts, connect
from dragoman.client.chat import complete
from dragoman.client.credentials import Authorized, Credentials
from dragoman.client.discovery import Discovery, places
from dragoman.client.errors import NoAnswer, NoCard, NoToken, PeerError
from dragoman.client.retries import Again
from dragoman.client.wire import Way
from dragoman.model.errors import A2AError
from dragoman.model.operations import Shown
from dragoman.model.task import TaskHead
from dragoman.net.egress import Egress
from dragoman.telemetry.counts import UpstreamCalls

log = logging.getLogger("dragoman.upstreams")

START_S = 5.0
"""How long the start of a server waits for the cards of its upstreams."""

SOON_S, LATE_S = 1.0, 60.0
"""Shortest and longest time between two attempts to get a card that could not be had."""

CONNECTIONS_MAX = 4000
"""Most connections to one upstream at once: each task that is followed holds one."""

CONTEXTS_MAX = 10_000
"""Conversations whose names at an upstream are kept in memory; the store has all."""


LATE = "its card did not come in time"
NO_CARD = "it has no card where one may be"
NO_TOKEN = "there is no token for it"
NOT_SIGNED = "its card is not signed by a key that is known"
NOT_HAD = "its card cannot be had"

FIXES = {
    LATE: "see whether it runs, and whether a firewall is in between",
    NO_CARD: "see whether the URL is right; `card` says where the card is, `dialect` does without one",
    NO_TOKEN: "see whether `credentials` are right: `token_url`, `client_id`, and the secret in the environment",
    NOT_SIGNED: "see who signed it, and which keys its server publishes",
    NOT_HAD: "see whether it runs and the URL is right, and whether it wants `credentials`",
}
"""What to do about each of the faults."""


class Address(Struct, frozen=True, kw_only=True):
    """Where an agent is, and how it is spoken to; what is None is found out. See `config.Upstream`."""

    url: str
    card: str | None = None
    dialect: str | None = None
    binding: str | None = None
    origins: tuple[str, ...] = ()
    dedupes: bool | None = None
    card_s: float = 300.0
    timeouts: Timeouts = Timeouts()


class Said(Struct, frozen=True):
    """What the caller of one task said beside its message: who it is, and the extensions that it declared.

    `old`: the upstream has 0.3, where the header of the latter has another name (A2A 0.3 §3.2.2, 1.0 §3.2.6).
    """

    shown: Shown | None
    extensions: tuple[str, ...]
    old: bool

    @property
    def declared(self) -> dict[str, str]:
        """The header that declares the extensions."""
        name = "X-A2A-Extensions" if self.old else "A2A-Extensions"
        return {name: ", ".join(self.extensions)} if self.extensions else {}


class Saying:
    """Credentials that say what is said for one task, too: `caller` is to be set in the task's own run.

    With `forwards` they show what the caller showed, else what `own` has.
    """

    def __init__(self, own: Credentials | None, *, forwards: bool) -> None:
        self.caller: ContextVar[Said | None] = ContextVar("caller", default=None)
        self._own = own
        self._forwards = forwards

    async def headers(self) -> Mapping[str, str]:
        """What goes with a request; outside of a run nothing of a caller's."""
        said = self.caller.get()
        shown: Mapping[str, str] = {} if self._own is None else await self._own.headers()
        if said is None:
            return shown
        if self._forwards and said.shown is not None:
            shown = said.shown.headers
        return {**said.declared, **shown}

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """Others of our own."""
        if self._own is None or self._forwards:
            return None
        said = self.caller.get()
        declared = {} if said is None else said.declared
        others = await self._own.renewed({name: refused[name] for name in refused if name not in declared})
        return None if others is None else {**declared, **others}


Made = Callable[[Egress], Credentials | None]
"""What makes credentials, given the way by which tokens are fetched."""


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
        self.again = Again(Retries(attempts=6, first_s=0.05, dedupes=address.dedupes))
        self.timeouts = address.timeouts
        self.forwards = forwards
        self.said = Saying(None, forwards=forwards)
        self.keeps_contexts = False
        self.fault: str | None = "its card has not been read yet"
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
        self._mute = False
        self._watching: asyncio.Task[None] | None = None
        self._contexts: OrderedDict[tuple[str, str], str] = OrderedDict()

    # -- for the server ------------------------------------------------------------------------------------------------

    async def open(self, group: asyncio.TaskGroup) -> None:
        """Read the card, for a bounded time, and look after it from now on."""
        self._begin()
        try:
            async with asyncio.timeout(START_S):
                await self._attempt()
        except TimeoutError:
            self._missing(LATE, None)
        self._watching = group.create_task(self._watch(), name=f"upstream {self.name}")

    async def looked_for(self) -> tuple[str, str]:
        """What was found, looking once: the fault, empty if it can be called; and how it is spoken to, or why not."""
        self._begin()
        await self._attempt()
        if self.fault is not None:
            return self.fault, self._told_why
        if self._connection is None:
            return "", "by chat completions, since it speaks no A2A"
        at = self._connection.interface
        return "", f"in dialect {at.dialect} over {at.binding} at {at.url}"

    async def close(self) -> None:
        """End what is open."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._opened.aclose()
        if self._egress is not None:
            await self._egress.close()
        self._connection = self._egress = None

    @property
    def state(self) -> str:
        """What `/ready` says of it: `ok`, or why not."""
        match self.breaker.state:
            case State.OPEN:
                return "it does not answer: calls are held back for a while"
            case State.HALF_OPEN:
                return "it did not answer: the next call shows whether it does"
            case State.CLOSED:
                return self.fault or "ok"

    # -- for runs ------------------------------------------------------------------------------------------------------

    async def connection(self) -> Connection | None:
        """How it is spoken to; None if it speaks no A2A. Raises NoAnswer, NoToken or CardNotVerified."""
        if self._connection is None and not self._mute:
            self._begin()
            await self._connect()
        return self._connection

    def repeats(self, sent_ms: int, now_ms: int) -> bool:
        """Whether a message may be sent again that may have arrived since."""
        said_s = 0.0 if self._connection is None else self._connection.interface.dedupes_s
        return (now_ms - sent_ms) / 1000 < self.again.retries.repeats_s(said_s)

    def context(self, head: TaskHead) -> str:
        """The upstream's own id of the conversation of a task, if it has one and that is in memory, else empty."""
        return self._contexts.get((head.owner, head.context_id), "")

    def keep_context(self, head: TaskHead, asked: str, given: str) -> None:
        """The upstream calls a conversation `given` that was called `asked` to it."""
        self.keeps_contexts = asked == given
        if asked != given:
            self._contexts[head.owner, head.context_id] = given
            while len(self._contexts) > CONTEXTS_MAX:
                self._contexts.popitem(last=False)

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
        except (A2AError, NoAnswer, PeerError, CardNotVerified) as error:
            log.info("upstream %s: its task %s was not canceled: %s", self.name, task_id, error)

    def look(self) -> None:
        """Something is odd: read the card again, soon."""
        self._look.set()

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
            try:
                async with asyncio.timeout(self._address.card_s if self.fault is None else pause_s):
                    await self._look.wait()
            except TimeoutError:
                pass
            fine = await self._attempt()
            pause_s = SOON_S if fine else min(LATE_S, pause_s * 2)
            await asyncio.sleep(min(SOON_S, self._address.card_s))

    async def _attempt(self) -> bool:
        """Read the card. False if it cannot be had."""
        try:
            if self._connection is None:
                await self._connect()
            else:
                async with self._turn:
                    await self._connection.refresh()
                self.looked()
        except NoCard as error:
            self._missing(NO_CARD, error)
        except NoToken as error:
            self._missing(NO_TOKEN, error)
        except CardNotVerified as error:
            self._missing(NOT_SIGNED, error)
        except (NoAnswer, PeerError) as error:
            self._missing(NOT_HAD, error)
        else:
            self.fault = None
        return self.fault is None

    async def _connect(self) -> None:
        async with self._turn:
            if self._connection is not None:
                return
            address = self._address
            assert self._egress is not None
            opening = connect(
                address.url,
                credentials=self.said,
                path=address.card,
                binding=address.binding,
                dialect=address.dialect,
                timeouts=address.timeouts,
                retries=self.again,
                egress=self._egress,
                origins=address.origins,
                cache=self._cache,
            )
            try:
                connection = await self._opened.enter_async_context(opening)
            except NoInterface:
                self._mute = True
                await self._found()
                return
            except NoCard:
                self._mute = True  # until its card is there
                raise
            self._connection, self.fault = connection, None
            if address.dialect is None:
                self.looked()
            else:
                await self._found()

    async def _found(self) -> None:
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
            self._read((await discovery.find()).card)
        except (NoAnswer, PeerError):
            if address.dialect is None:
                raise

    def _read(self, whole: dict[str, Any]) -> None:
        self._card = whole
        self._told(whole)

    def _missing(self, fault: str, error: Exception | None) -> None:
        if fault != self.fault:
            log.warning("upstream %s: %s%s", self.name, fault, "" if error is None else f": {error}")
        if self._connection is None:
            self.fault = fault
            self._told_why = "" if error is None else str(error)

    def count(self, outcome: str, waited_s: float | None = None) -> None:
        """A call is over; `waited_s` is how long the first word of its answer took."""
        self.calls.outcomes[outcome] += 1
        if waited_s is not None:
            self.calls.waits.add(int(waited_s * 1000))
