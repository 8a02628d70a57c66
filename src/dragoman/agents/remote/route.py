"""The connection to one agent of another server, with its card, and whether calls get through.

Invariant: no error raised here quotes a connection's exception. That text is logged, and callers read our own words.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.breaker import Breaker, State
from dragoman.agents.remote import check as upstream_check
from dragoman.agents.remote.card import CardKeys
from dragoman.agents.remote.check import EndpointFault
from dragoman.agents.remote.credentials import CallCredentials
from dragoman.agents.remote.failures import (
    LATE,
    NO_AGENT_THERE,
    NOT_LET_IN,
    NOT_READ,
    NOT_SIGNED,
    UNFOUND,
    Unfound,
    fault_of,
    in_words,
)
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import CardCache, Connection, NoInterface, NotInstalled, Retries, Timeouts, connect
from dragoman.client.card import verify
from dragoman.client.credentials import Authorized, CredentialsFactory
from dragoman.client.discovery import Discovery, places
from dragoman.client.errors import NoAnswer, NoCard, PeerError
from dragoman.client.http import HttpClient, complete
from dragoman.client.retries import Retrier
from dragoman.model.errors import A2AError
from dragoman.model.task import Task, TaskHead, TaskStatus
from dragoman.net.egress import Egress
from dragoman.net.target import is_grpc, target
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.counts import UpstreamCalls
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.upstreams")

START_S = 5.0
"""Seconds that the start of a server waits for the cards of its upstreams."""

SOON_S, LATE_S = 1.0, 60.0
"""Shortest and longest time between two attempts to read a card, after a failure."""

AGAIN_S = 5.0
"""Seconds until a send may be repeated, when nobody names a time."""

CONNECTIONS_MAX = 4000
"""Most connections to one upstream at once: each followed task holds one."""

CONTEXTS_MAX = 10_000
"""The most conversations whose upstream ids are kept in memory; the store has all."""


class UpstreamAddress(Struct, frozen=True, kw_only=True):
    """The address of an agent, and how to call it. A field that is None is discovered. See `config.Upstream`."""

    url: str
    card: str | None = None
    card_keys: tuple[str, ...] = ()
    dialect: str | None = None
    binding: str | None = None
    grpc_tls: bool | None = None
    origins: tuple[str, ...] = ()
    dedupes: bool | None = None
    double_base64: bool = False
    card_s: float = 300.0
    retry_wait_s: float = 5.0
    timeouts: Timeouts = Timeouts()


class UpstreamRoute:
    """The connection to `address`. Belongs to the loop that opens it.

    `fault` says why the agent cannot be called, as far as is known; None if it can.
    """

    def __init__(
        self,
        name: str,
        address: UpstreamAddress,
        make_credentials: CredentialsFactory,
        breaker: Breaker,
        *,
        forwards: bool = False,
    ) -> None:
        self.name = name
        self.breaker = breaker
        self.calls = UpstreamCalls()
        self.retrier = Retrier(
            Retries(attempts=6, first_s=0.05, patience_s=address.retry_wait_s, dedupes=address.dedupes)
        )
        self.timeouts = address.timeouts
        self.forwards = forwards
        self.credentials = CallCredentials(None, forwards=forwards)
        self.contexts = Contexts()
        self.fault: str | None = NOT_READ
        self._address = address
        self._make_credentials = make_credentials
        self._cache = CardCache()
        self._egress: Egress | None = None
        self._opened = AsyncExitStack()
        self._connection: Connection | None = None
        self._card: dict[str, Any] | None = None
        self.shown_card: dict[str, Any] | None = None
        """The card that was read last, without secrets; None before the first."""
        self._reading = asyncio.Lock()
        self._reading_due = asyncio.Event()
        self._fault_words = ""
        self._shut_out = ""
        self._keys = CardKeys(address.card_keys, breaker.clock) if address.card_keys else None
        self._speaks_no_a2a = False
        self._group: JobGroup | None = None
        self._answering = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    # -- for the server ------------------------------------------------------------------------------------------------

    async def open(self, group: JobGroup) -> None:
        """Read the card within a bounded time, and keep it up to date from now on."""
        self._group = group
        self._open_egress()
        try:
            async with asyncio.timeout(START_S):
                await self._read_and_check()
        except TimeoutError:
            self._set_fault(LATE)
        self._watching = group.keep(f"upstream: {self.name}", self._watch)

    async def probe(self) -> tuple[str, str]:
        """Look for the agent as a send does. Returns the fault, empty if none, and how it is spoken to, or why not."""
        self._open_egress()
        await self._read_and_check()
        if self.fault is not None:
            return self.fault, self._fault_words
        by_chat = "by chat completions"
        if self._connection is None:
            return "", f"{by_chat}, since it speaks no A2A"
        at = self._connection.interface
        spoken = f"in dialect {at.dialect} over {at.binding} at {at.url}"
        if self.forwards or (fault := await upstream_check.ask(self._connection)) is None:
            return "", spoken
        if fault.kind == NO_AGENT_THERE and await self._ask_for_chat() is None:
            return "", f"{by_chat}, since there is no A2A at {at.url}"
        return fault.kind, self.credentials.masking.text(f"{spoken}: {fault.words}")

    async def close(self) -> None:
        """Stop watching the card, and close all connections."""
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
        """The base URL, for the operator."""
        return places(self._address.url).base

    @property
    def at_root(self) -> bool:
        """Whether its URL names a host and no agent of it, so that it is the agent at the root of the host."""
        return places(self._address.url, self._address.card).names_host

    @property
    def over_http(self) -> bool:
        """Whether its URL is one over HTTP, where chat completions may be."""
        return not is_grpc(self._address.url)

    @property
    def verifies(self) -> bool:
        """Whether the card must be signed; without a signed card, the agent is not called."""
        return self._keys is not None

    @property
    def state(self) -> str | None:
        """Why it cannot be called; None if it can, as far as is known."""
        match self.breaker.state:
            case State.OPEN:
                return "it does not answer: calls are held back for a while"
            case State.HALF_OPEN:
                return "it did not answer: the next call shows whether it does"
            case State.CLOSED:
                return self.fault or self._shut_out or None

    # -- for runs ------------------------------------------------------------------------------------------------------

    async def connection(self) -> Connection | None:
        """The connection; None if the agent speaks no A2A. Raises NoAnswer, NoToken, CardNotVerified or NoKeys."""
        if self._connection is None and not self._speaks_no_a2a:
            self._open_egress()
            await self._connect()
        return self._connection

    def may_repeat(self, sent_ms: int) -> bool:
        """Whether a message may be sent again that may have arrived at `sent_ms` or later."""
        said_s = 0.0 if self._connection is None else self._connection.interface.dedupes_s
        return (self.retrier.clock.now_ms() - sent_ms) / 1000 < self.retrier.retries.repeats_s(said_s)

    def adopt_card(self) -> None:
        """Take over the card if the call just made has read it again."""
        connection = self._connection
        if connection is not None and connection.card is not None and connection.card.whole is not self._card:
            self._take_over(connection.card.whole)

    async def cancel_task(self, task_id: str) -> Task | A2AError | Unfound | None:
        """Cancel the upstream's task, and return its answer, or why there is none. The upstream may refuse."""
        try:
            connection = await self.connection()
            return None if connection is None else await connection.cancel(task_id)
        except (A2AError, *UNFOUND) as error:
            log.info("upstream %s: its task %s was not canceled: %s", self.name, task_id, self.describe(error))
            return error

    async def read_status(self, task_id: str) -> TaskStatus | str:
        """Read the status of the upstream's task, without secrets; a text says why it cannot be read."""
        try:
            connection = await self.connection()
            if connection is None:
                return "it speaks no A2A, and so has no tasks"
            status = (await connection.get(task_id)).status
        except (A2AError, *UNFOUND) as error:
            return self.describe(error)
        if status.message is None:
            return status
        parts = tuple(self.credentials.masking.parts(status.message.parts))
        return replace(status, message=replace(status.message, parts=parts))

    def run_beside(self, work: Coroutine[Any, Any, None]) -> bool:
        """Start work that outlives the run that needs it. The work must be bounded. False if nothing is open."""
        if self._group is None:
            work.close()
            return False
        self._group.create_task(work, name=f"beside {self.name}")
        return True

    @property
    def retry_s(self) -> float:
        """Seconds until a failed send may be repeated: the rest of the breaker's pause, if there is one."""
        return self.breaker.wait_s or AGAIN_S

    def record_failure(self) -> None:
        """Record that a call did not get through."""
        pause_s = self.breaker.record_failure()
        if pause_s is not None:
            log.warning(
                "upstream %s: no call got through: the next one is made in %g s",
                self.name,
                pause_s,
                extra=about(self.name, agent=self.name, breaker="open"),
            )

    def request_reading(self) -> None:
        """Have the card read again soon, because something is odd."""
        self._reading_due.set()

    def record_answer(self) -> None:
        """Record that a call got through, and admit those that were held back."""
        held_back = self.breaker.state is not State.CLOSED
        self._shut_out = ""
        self.breaker.record_success()
        if held_back:
            log.info(
                "upstream %s: calls get through again",
                self.name,
                extra=about(self.name, agent=self.name, breaker="closed"),
            )
            self._wake()

    def record_shut_out(self) -> None:
        """Record that a call was refused because of this server's credentials. Holds until a call gets through."""
        if not self.forwards:
            self._shut_out = NOT_LET_IN

    def _wake(self) -> None:
        """Wake the runs that wait for the agent to answer again."""
        self._answering.set()
        self._answering = asyncio.Event()

    async def pause(self, pause_s: float) -> None:
        """Wait that long, or less if a held-back agent turns out to answer again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._answering.wait()

    def describe(self, error: Exception) -> str:
        """An error's text, without secrets that were sent to the upstream."""
        return self.credentials.masking.text(in_words(error))

    async def refresh_card(self) -> None:
        """Read the card again, now, since the agent may have changed its interface."""
        async with self._reading:
            if self._connection is not None:
                await self._connection.refresh(anew=True)
                self.adopt_card()

    async def chat(self, messages: list[dict[str, str]], traceparent: str | None) -> str:
        """Its answer over chat completions. Raises HttpRefusal, InvalidAgentResponse, EgressError or NoToken."""
        headers = {"traceparent": traceparent} if traceparent else {}
        return await complete(
            self._http,
            places(self._address.url).base,
            self.name,
            messages,
            timeout_s=self.timeouts.answer_s,
            headers=headers,
        )

    # -- the card ------------------------------------------------------------------------------------------------------

    def _open_egress(self) -> None:
        if self._egress is None:
            self._egress = Egress(connect_timeout_s=self.timeouts.connect_s, connections_max=CONNECTIONS_MAX)
            self.credentials = CallCredentials(self._make_credentials(self._egress), forwards=self.forwards)

    @property
    def _http(self) -> HttpClient:
        assert self._egress is not None  # it has begun
        return Authorized(self._egress, self.credentials)

    async def _watch(self) -> None:
        """Read the card again and again: soon while it cannot be read, else when it may have changed."""
        pause_s = SOON_S
        while True:
            self._reading_due.clear()
            well = self.fault is None and self.breaker.state is State.CLOSED
            with suppress(TimeoutError):
                async with asyncio.timeout(self._address.card_s if well else min(pause_s, self._address.card_s)):
                    await self._reading_due.wait()
            pause_s = SOON_S if await self._read_and_check() else min(LATE_S, pause_s * 2)
            await asyncio.sleep(min(SOON_S, self._address.card_s))

    async def _read_and_check(self) -> bool:
        """Read the card. False if that fails now."""
        held_back = self.breaker.state is not State.CLOSED
        try:
            try:
                await self._read_card(anew=held_back)
            except CardNotVerified:
                assert self._egress is not None
                if self._keys is None or not await self._keys.refresh(self._egress):
                    raise
                await self._read_card(anew=True)
        except UNFOUND as error:
            if not (self._speaks_no_a2a and isinstance(error, NoCard) and await self._ask_for_chat() is None):
                self._set_fault(fault_of(error), self.describe(error))
                return False
        else:
            if (fault := await self._endpoint_fault()) is not None:
                self._set_fault(fault.kind, self.credentials.masking.text(fault.words), known=True)
                return False
        self.fault = None
        if held_back and self.breaker.half_open():
            log.info("upstream %s: its card can be read again: calls are tried", self.name)
            self._wake()
        return True

    async def _endpoint_fault(self) -> EndpointFault | None:
        """The reason why calls fail although the card is there: the endpoint may be on another server, or missing."""
        connection = self._connection
        if connection is None:
            return await self._ask_for_chat()
        if self.over_http and connection.interface.to.origin == target(self._address.url).origin:
            return None  # the card came from there
        return await upstream_check.reach(connection)

    async def _ask_for_chat(self) -> EndpointFault | None:
        fault = await upstream_check.ask_for_chat(self._http, self.place, timeout_s=self._address.timeouts.card_s)
        return None if self.forwards and fault is not None and fault.kind == NOT_LET_IN else fault

    async def _read_card(self, *, anew: bool) -> None:
        if self._connection is None:
            await self._connect()
            return
        async with self._reading:
            if self._address.dialect is None:
                await self._connection.refresh(anew=anew)
                self.adopt_card()
            else:
                await self._read_profile(anew=anew)

    async def _connect(self) -> None:
        async with self._reading:
            if self._connection is not None:
                return
            address = self._address
            assert self._egress is not None
            opening = connect(
                address.url,
                credentials=self.credentials,
                keys=None if self._keys is None else await self._keys.read(self._egress),
                path=address.card,
                binding=address.binding,
                grpc_tls=address.grpc_tls,
                dialect=address.dialect,
                timeouts=address.timeouts,
                retries=self.retrier,
                egress=self._egress,
                origins=address.origins,
                double_base64=address.double_base64,
                cache=self._cache,
            )
            try:
                connection = await self._opened.enter_async_context(opening)
            except NotInstalled:
                raise
            except NoInterface:
                self._speaks_no_a2a = True
                await self._read_profile()
                return
            except NoCard:
                self._speaks_no_a2a = self._keys is None  # until its card is there
                raise
            self._connection, self.fault = connection, None
            if self.at_root and connection.card is not None:
                name = self.credentials.masking.text(connection.card.name)
                log.info("upstream %s: its URL names a host: its agent is the one at the root, %s", self.name, name)
            if address.dialect is None:
                self.adopt_card()
            else:
                await self._read_profile()

    async def _read_profile(self, *, anew: bool = False) -> None:
        """Read the card only for what it says about the agent."""
        address = self._address
        discovery = Discovery(
            self._http,
            places(address.url, address.card),
            self._cache,
            timeout_s=address.timeouts.card_s,
            headers={},
            credentials=self.credentials,
            retrier=self.retrier,
        )
        try:
            card = (await discovery.find(anew=anew)).card
        except (NoAnswer, PeerError):
            if address.dialect is None or anew:
                raise
            return
        if self._keys is not None:
            await asyncio.to_thread(verify, card, self._keys.known)
        self._take_over(card)

    def _take_over(self, whole: dict[str, Any]) -> None:
        self._card = whole
        self.shown_card = self.credentials.masking.any(whole)

    def _set_fault(self, fault: str, words: str = "", *, known: bool = False) -> None:
        """Record that the agent cannot be called. `known`: its card was read, and the fault holds all the same."""
        if fault != self.fault:
            log.warning("upstream %s: %s%s", self.name, fault, f": {words}" if words else "")
        if self._connection is None or fault == NOT_SIGNED or known:
            self.fault = fault
            self._fault_words = words

    def count(self, outcome: str, waited_s: float | None = None) -> None:
        """Count the end of a call. `waited_s` is the time until the first update of its answer."""
        self.calls.outcomes[outcome] += 1
        if waited_s is not None:
            self.calls.waits.add(int(waited_s * 1000))


class Contexts:
    """The conversations with one upstream. `kept`: it adopts the ids that it is given, as far as is known."""

    def __init__(self) -> None:
        self.kept = False
        self._ids: OrderedDict[tuple[str, str], str] = OrderedDict()

    def of(self, head: TaskHead) -> str:
        """The upstream's own id of the task's conversation, if it has one and that is in memory, else empty."""
        return self._ids.get((head.owner, head.context_id), "")

    def keep(self, head: TaskHead, asked: str, given: str) -> None:
        """Record that the upstream answered with the id `given` for the conversation that we called `asked`."""
        self.kept = asked == given
        if asked != given:
            self._ids[head.owner, head.context_id] = given
            while len(self._ids) > CONTEXTS_MAX:
                self._ids.popitem(last=False)
