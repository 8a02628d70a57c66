"""Chooses an agent's endpoint from its card, calls it, and chooses another one when it is gone.

Invariant: a card is untrusted text. The caller's credentials and headers go only to the origin of the URL that the
caller gave, to the origins the caller names in addition, and to gRPC endpoints on the same hosts, without TLS only if
the caller's URL is without. Any other origin in a card is dialled only at public internet addresses.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from msgspec import Struct

from dragoman.auth.signatures import CardNotVerified
from dragoman.client.card import Interface, RemoteCard, interfaces, read_card, verify
from dragoman.client.discovery import Discovery, FoundCard
from dragoman.client.errors import HttpRefusal, NoAnswer, NoInterface, NotInstalled, PeerError, fate_unknown
from dragoman.client.grpc_address import grpc_installed
from dragoman.client.http_transport import BegunStream
from dragoman.client.transport import NO_HEADERS, CallHeaders, StreamPosition, UpdateBatch
from dragoman.client.transports import Transport, Transports
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.cards import GRPC
from dragoman.model.card import VERSIONS
from dragoman.model.errors import (
    A2AError,
    AgentNotFound,
    InvalidAgentResponse,
    MethodNotAllowed,
    MethodNotFound,
    NotFound,
    VersionNotSupported,
)
from dragoman.model.message import Message
from dragoman.model.operations import CancelTask, GetTask, Operation, SendMessage, StreamMessage, Subscribe
from dragoman.model.task import Task
from dragoman.net.target import target

log = logging.getLogger("dragoman.client")

T = TypeVar("T")

CHOOSE_AGAIN_S = 30.0
"""Shortest time between two fetches of a card that were triggered by a missing endpoint."""


_GONE = (AgentNotFound, NotFound, MethodNotAllowed)
_GONE_STATUS = frozenset({404, 405, 410})


class EndpointWish(Struct, frozen=True, kw_only=True):
    """The endpoint that the caller wants: one of the card's, or `fixed`, whatever the card says.

    `base` is the agent's URL. `grpc_tls` says whether a card's address without a scheme is called over TLS; None: if
    its port is 443, or the card came over https.
    """

    base: str
    fixed: Interface | None = None
    binding: str | None = None
    version: str | None = None
    grpc_tls: bool | None = None


class AgentEndpoint:
    """An agent's card, and the endpoint chosen from it, which takes all calls.

    With a card that is `given` none is fetched until its endpoint is gone. One of the `keys` must have signed a card.
    """

    def __init__(
        self,
        discovery: Discovery,
        transports: Transports,
        wish: EndpointWish,
        *,
        keys: Mapping[str, Any] | None,
        given: FoundCard | None,
    ) -> None:
        self.card: RemoteCard | None = None if given is None or keys is not None else read_card(given.card)
        self.terms = transports.terms
        """How calls are made."""
        self.interface: Interface
        """The endpoint in use, from `begin` on."""
        self.tongue: Tongue
        """The dialect in use, and what it supports."""
        self.sends_s = 0.0
        """For how long a send that may have arrived is repeated, in seconds."""
        self._chosen: Transport | None = None
        self._discovery = discovery
        self._transports = transports
        self._wish = wish
        self._keys = keys
        self._given = given
        self._turn = asyncio.Lock()
        self._again_at = float("-inf")
        self._context = copy_context()

    async def begin(self) -> None:
        """Fetch the card, unless a fixed endpoint makes it unnecessary."""
        if self._wish.fixed is not None:
            self._use(await self._make(self._wish.fixed))
        if self._wish.fixed is None or self._keys is not None:
            found = await self._find()
            if self._wish.fixed is None:
                self._use(await self._choose(self._candidates(found)))

    def _use(self, transport: Transport) -> None:
        """Make all calls over this transport from now on."""
        self._chosen = transport
        self.interface, self.tongue = transport.interface, transport.tongue
        self.sends_s = self.terms.sends_s(transport.interface)

    @property
    def streams(self) -> bool:
        """Whether streams are worth a try: without a card, or with one that does not say no."""
        return self.card is None or self.card.streams

    async def ask(self, operation: Operation, beside: CallHeaders = NO_HEADERS) -> Answer:
        """Return the answer to any operation that is not a stream.

        If the endpoint is gone, or has another version, the card is fetched again and another endpoint is called, once.
        """
        transport = self._transport
        try:
            return await transport.call(operation, beside)
        except (A2AError, HttpRefusal) as error:
            if (other := await self.choose_other(transport, error, operation)) is None:
                raise
        return await other.call(operation, beside)

    async def read(self, operation: Operation, kind: type[T], expected: str) -> T:
        """Return the answer to an operation, which has this type. Raises InvalidAgentResponse for any other."""
        answer = await self.ask(operation)
        if not isinstance(answer, kind):
            raise InvalidAgentResponse(f"expected {expected}, got {type(answer).__name__}")
        return answer

    async def send(self, operation: SendMessage, beside: CallHeaders = NO_HEADERS) -> Task | Message:
        """Return the answer to a message. A NoAnswer whose `sent` is true carries the message id."""
        try:
            answer = await self.ask(operation, beside)
        except NoAnswer as error:
            if error.sent:
                raise fate_unknown(error, operation.message.message_id) from error.__cause__
            raise
        if not isinstance(answer, Task | Message):
            raise InvalidAgentResponse(f"expected a task or a message, got {type(answer).__name__}")
        return answer

    def begin_stream(self, operation: StreamMessage, beside: CallHeaders) -> BegunStream | None:
        """Send the call of a stream at once; None if anything has to be waited for before, or there are no streams."""
        return self._transport.begin_stream(operation, beside) if self.streams else None

    def stream(
        self,
        operation: StreamMessage | Subscribe,
        beside: CallHeaders = NO_HEADERS,
        position: StreamPosition | None = None,
        begun: BegunStream | None = None,
    ) -> "EndpointUpdates":
        """Return the updates of a stream, as `HttpTransport.stream` does. `begun` is its call, if that has been sent.

        If the endpoint is gone, it does the same as `ask`. Raises UnsupportedOperation.
        """
        transport = self._transport if begun is None else begun.transport
        return EndpointUpdates(self, transport, operation, beside, position, begun)

    async def choose_other(
        self, transport: Transport, error: A2AError | HttpRefusal, operation: Operation
    ) -> Transport | None:
        """Return the endpoint that takes a call which this one has refused, because it is gone; None if none does."""
        return await self._after(transport) if self._gone(error, operation) else None

    async def reach(self) -> None:
        """Open a connection to the endpoint without sending a request. Raises NoAnswer."""
        await self._transports.doors.reach(self.interface.url)

    async def _find(self, *, anew: bool = False) -> FoundCard:
        """Fetch the card and verify it.

        It serves all calls, so its request carries no call's own credentials from the context.
        """
        if self._given is not None and not anew:
            found = self._given
        else:
            found = await asyncio.create_task(self._discovery.find(anew=anew), context=self._context.copy())
            self._given = None
        if self._keys is not None:
            await asyncio.to_thread(verify, found.card, self._keys)
        self.card = read_card(found.card)
        return found

    async def refresh(self, *, anew: bool = False) -> None:
        """Fetch the card, by the rules of its cache unless `anew`, and switch to the endpoint that it names now."""
        async with self._turn:
            if self._wish.fixed is not None:
                return
            before = self.card
            candidates = self._candidates(await self._find(anew=anew))
            spoken = None if self._chosen is None else self._chosen.interface
            same = before is not None and self.card is not None and before.whole == self.card.whole
            if spoken != candidates[0] and not (same and spoken in candidates):
                self._use(await self._choose(candidates))

    async def _after(self, gone: Transport) -> Transport | None:
        """Fetch the card again and return an endpoint other than the one that is gone; None if there is none."""
        async with self._turn:
            if self._chosen is not gone:
                return self._chosen
            now = asyncio.get_running_loop().time()
            if self._wish.fixed is not None or now < self._again_at:
                return None
            self._again_at = now + CHOOSE_AGAIN_S
            try:
                found = await self._find(anew=True)
                others = [each for each in self._candidates(found) if each != gone.interface]
            except (NoAnswer, PeerError, CardNotVerified):
                return None  # the caller then gets the endpoint's own error, which answers the call
            if not others:
                return None
            other = await self._choose(others)
            self._use(other)
            return other

    @property
    def _transport(self) -> Transport:
        assert self._chosen is not None  # `begin` has chosen it
        return self._chosen

    def _gone(self, error: A2AError | HttpRefusal, operation: Operation) -> bool:
        """Whether an error says that the endpoint no longer exists, or that it speaks another dialect.

        An unknown method means so only for the methods that every agent has, and for streams if the card promises them.
        """
        match error:
            case VersionNotSupported():
                return True
            case HttpRefusal():
                return error.status in _GONE_STATUS
            case MethodNotFound() if isinstance(operation, StreamMessage):
                return self.card is not None and self.card.streams
            case MethodNotFound():
                return isinstance(operation, GetTask | SendMessage)
            case _:
                return isinstance(error, _GONE) and isinstance(operation, SendMessage | GetTask | CancelTask)

    async def _choose(self, candidates: Sequence[Interface]) -> Transport:
        """Make the transport for the first endpoint, unless that is over gRPC and takes no connection.

        Whether a gRPC address is meant with TLS, and whether a proxy lets HTTP/2 through, is known only then. It is
        passed over for another one, but not if the caller chose gRPC.
        """
        for each in candidates:
            if each.binding != GRPC or self._wish.binding is not None or not grpc_installed():
                return await self._make(each)
            try:
                await self._transports.doors.reach(each.url)
            except NoAnswer as error:
                log.warning("%s", error)
                continue
            return await self._make(each)
        return await self._make(candidates[0])

    async def _make(self, interface: Interface) -> Transport:
        """Make the transport for an endpoint; loading gRPC takes a while. Raises NotInstalled."""
        if interface.binding == GRPC:
            if not grpc_installed():
                raise NotInstalled(interface.to.shown)
            await asyncio.to_thread(_load_grpc, interface.dialect)
        return self._transports.make(interface)

    def _candidates(self, found: FoundCard) -> Sequence[Interface]:
        candidates: Sequence[Interface] = interfaces(
            found.card,
            found.url,
            self._wish.base,
            binding=self._wish.binding,
            version=self._wish.version,
            grpc_tls=self._wish.grpc_tls,
        )
        if not grpc_installed() and (others := [each for each in candidates if each.binding != GRPC]):
            candidates = others
        if not candidates:
            wanted = f"{self._wish.binding or 'JSONRPC, HTTP+JSON or GRPC'} in {_describe_version(self._wish.version)}"
            offered = ", ".join(
                dict.fromkeys(
                    f"{each.binding} in {_describe_version(each.dialect)}"
                    for each in interfaces(found.card, found.url, self._wish.base)
                )
            )
            raise NoInterface(
                target(found.url).shown,
                f"the card names no endpoint over {wanted}; it offers {offered or 'none that is supported here'}; "
                "give `dialect=` to connect without a card",
            )
        return candidates


class EndpointUpdates:
    """The updates of a stream from whichever endpoint of an agent takes it; see `UpdateReader`."""

    __slots__ = ("_begun", "_beside", "_endpoint", "_operation", "_position", "_reader", "_transport")

    def __init__(
        self,
        endpoint: AgentEndpoint,
        transport: Transport,
        operation: StreamMessage | Subscribe,
        beside: CallHeaders,
        position: StreamPosition | None,
        begun: BegunStream | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._operation = operation
        self._beside = beside
        self._position = position
        self._reader = transport.stream(operation, beside, position) if begun is None else begun.updates(position)
        self._begun = False

    def next(self) -> Coroutine[Any, Any, UpdateBatch | None]:
        """See `UpdateReader`."""
        return self._reader.next() if self._begun else self._begin()

    async def _begin(self) -> UpdateBatch | None:
        while True:
            try:
                batch = await self._reader.next()
            except (A2AError, HttpRefusal) as error:
                other = await self._endpoint.choose_other(self._transport, error, self._operation)
                if other is None:
                    raise
            else:
                self._begun = True
                return batch
            self._reader.close()
            self._transport = other
            self._reader = other.stream(self._operation, self._beside, self._position)

    def close(self) -> None:
        """See `UpdateReader`."""
        self._reader.close()


def _describe_version(dialect: str | None) -> str:
    if dialect is None:
        return "a supported version"
    return f"version {dialect}" if dialect in VERSIONS else f"the dialect {dialect}"


def _load_grpc(dialect: str) -> None:
    from dragoman.client.grpc_transport import grpc_tongue

    grpc_tongue(dialect)
