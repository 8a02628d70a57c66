"""Chooses an agent's endpoint from its card.

Invariant: a card is untrusted text. The caller's credentials and headers go only to the origin of the URL that the
caller gave, to the origins the caller names in addition, and to gRPC endpoints on the same hosts, without TLS only if
the caller's URL is without. Any other origin in a card is dialled only at public internet addresses.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from dragoman.auth.signatures import CardNotVerified
from dragoman.client.card import Interface, RemoteCard, interfaces, read_card, verify
from dragoman.client.discovery import Discovery, FoundCard
from dragoman.client.errors import NoAnswer, NoInterface, NotInstalled, PeerError
from dragoman.client.grpc_transport import grpc_tongue
from dragoman.client.transport import Transport
from dragoman.dialects.cards import GRPC
from dragoman.model.card import VERSIONS
from dragoman.net.grpc import installed
from dragoman.net.target import target

log = logging.getLogger("dragoman.client")

CHOOSE_AGAIN_S = 30.0
"""Shortest time between two fetches of a card that were triggered by a missing endpoint."""


class Choice:
    """An agent's card and the endpoint chosen from it. The choice is repeated when that endpoint disappears."""

    def __init__(
        self,
        discovery: Discovery,
        base: str,
        *,
        made: Callable[[Interface], Transport],
        reach: Callable[[str], Awaitable[None]],
        fixed: Interface | None,
        binding: str | None,
        version: str | None,
        keys: Mapping[str, Any] | None,
        given: FoundCard | None = None,
        grpc_tls: bool | None = None,
    ) -> None:
        self.card: RemoteCard | None = None if given is None or keys is not None else read_card(given.card)
        self.transport: Transport | None = None
        self._discovery = discovery
        self._base = base
        self._made = made
        self._reach = reach
        self._fixed = fixed
        self._binding = binding
        self._version = version
        self._keys = keys
        self._given = given
        self._grpc_tls = grpc_tls
        self._turn = asyncio.Lock()
        self._again_at = float("-inf")
        self._context = copy_context()

    async def begin(self) -> None:
        """Fetch the card, unless a fixed endpoint makes it unnecessary."""
        if self._fixed is not None:
            self.transport = await self._make(self._fixed)
        if self._fixed is None or self._keys is not None:
            found = await self.read()
            if self._fixed is None:
                self.transport = await self._choose(self._candidates(found))

    async def read(self, *, anew: bool = False) -> FoundCard:
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
            if self._fixed is not None:
                return
            before = self.card
            candidates = self._candidates(await self.read(anew=anew))
            spoken = None if self.transport is None else self.transport.interface
            same = before is not None and self.card is not None and before.whole == self.card.whole
            if spoken != candidates[0] and not (same and spoken in candidates):
                self.transport = await self._choose(candidates)

    async def after(self, gone: Transport) -> Transport | None:
        """Fetch the card again and return an endpoint other than the one that is gone; None if there is none."""
        async with self._turn:
            if self.transport is not gone:
                return self.transport
            now = asyncio.get_running_loop().time()
            if self._fixed is not None or now < self._again_at:
                return None
            self._again_at = now + CHOOSE_AGAIN_S
            try:
                found = await self.read(anew=True)
                others = [each for each in self._candidates(found) if each != gone.interface]
            except (NoAnswer, PeerError, CardNotVerified):
                return None  # the caller then gets the endpoint's own error, which answers the call
            if not others:
                return None
            self.transport = await self._choose(others)
            return self.transport

    async def _choose(self, candidates: Sequence[Interface]) -> Transport:
        """Make the transport for the first endpoint, unless that is over gRPC and takes no connection.

        Whether a gRPC address is meant with TLS, and whether a proxy lets HTTP/2 through, is known only then. It is
        passed over for another one, but not if the caller chose gRPC.
        """
        for each in candidates:
            if each.binding != GRPC or self._binding is not None or not installed():
                return await self._make(each)
            try:
                await self._reach(each.url)
            except NoAnswer as error:
                log.warning("%s", error)
                continue
            return await self._make(each)
        return await self._make(candidates[0])

    async def _make(self, interface: Interface) -> Transport:
        """Make the transport for an endpoint; loading gRPC takes a while. Raises NotInstalled."""
        if interface.binding == GRPC:
            if not installed():
                raise NotInstalled(interface.to.shown)
            await asyncio.to_thread(grpc_tongue, interface.dialect)
        return self._made(interface)

    def _candidates(self, found: FoundCard) -> Sequence[Interface]:
        candidates: Sequence[Interface] = interfaces(
            found.card,
            found.url,
            self._base,
            binding=self._binding,
            version=self._version,
            grpc_tls=self._grpc_tls,
        )
        if not installed() and (others := [each for each in candidates if each.binding != GRPC]):
            candidates = others
        if not candidates:
            wanted = f"{self._binding or 'JSONRPC, HTTP+JSON or GRPC'} in {_describe_version(self._version)}"
            offered = ", ".join(
                dict.fromkeys(
                    f"{each.binding} in {_describe_version(each.dialect)}"
                    for each in interfaces(found.card, found.url, self._base)
                )
            )
            raise NoInterface(
                target(found.url).shown,
                f"the card names no endpoint over {wanted}; it offers {offered or 'none that is supported here'}; "
                "give `dialect=` to connect without a card",
            )
        return candidates


def _describe_version(dialect: str | None) -> str:
    if dialect is None:
        return "a supported version"
    return f"version {dialect}" if dialect in VERSIONS else f"the dialect {dialect}"
