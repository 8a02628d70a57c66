"""Cards at their well-known paths (A2A 1.0 §8.2), and the list of agents.

Invariant: a card keeps the same bytes, and so the same ETag, as long as the agent, the base URL, the `A2A-Version` and
the authentication schemes are the same. It names only endpoints of the mount at which it is served.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.auth.authenticator import Authenticator
from dragoman.auth.signatures import Signer, SigningRoom
from dragoman.bindings.calls import version
from dragoman.bindings.catalogue import entry, matching, search_of
from dragoman.bindings.http import JSON, Answer, Header, Request
from dragoman.bindings.reached import reached
from dragoman.dialects import cards
from dragoman.dialects.mounts import Mount
from dragoman.dialects.resolve import mount_of
from dragoman.model.card import VERSIONS, AgentCard, AgentExtension, AgentInterface, Profile
from dragoman.model.errors import AgentNotFound, NotFound

JWKS_PATH = "/.well-known/jwks.json"
"""Path of the server's public keys."""

VARY = (b"vary", b"A2A-Version")
"""Caches must keep one card for each version that callers send (RFC 9110 §12.5.5)."""

KEPT = 256
"""How many documents are kept encoded. A flood of new Host headers only makes them be encoded again."""


class Document(Struct, frozen=True):
    """A body with its headers: `headers` for a 200, `unchanged` for a 304.

    `asks` are the authentication schemes, and `of` the profile, from which it was made.
    """

    body: bytes
    etag: bytes
    headers: list[Header]
    unchanged: list[Header]
    asks: tuple[str, ...] = ()
    of: Profile | None = None


class Cards:
    """Cards and the list of agents. `public_url` None: the base URL is taken from the request."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        public_url: str | None,
        max_age_s: int,
        *,
        authenticator: Authenticator,
        signing: SigningRoom | None = None,
        keys: SigningRoom | None = None,
        root: str = "/",
        protocols: tuple[str, ...] = ("jsonrpc",),
        history: bool = False,
        tasks: bool = True,
        pushes: bool = True,
        tenants: bool = True,
        extensions: Mapping[Mount, tuple[AgentExtension, ...]] | None = None,
    ) -> None:
        """`root` is the mount that the card at the root describes. `signing` None: cards are not signed. `keys` are
        published; None: this server signs nothing.

        `tasks` False: the server makes no tasks, so it has no streams, no webhooks and no extended card. `tenants`:
        agents are also served at `/{id}`, so `?id=` may select a card. `extensions` are those of each mount, in
        addition to the agents' own.
        """
        self._profiles = profiles
        self._authenticator = authenticator
        self._signing = signing
        self._keys = keys
        self._root = root
        self._protocols = protocols
        self._history = history
        self._tasks = tasks
        self._pushes = tasks and pushes
        self._tenants = tenants
        self._extensions = extensions or {}
        self._public_url = public_url
        self._max_age_s = max_age_s
        self._documents: dict[tuple[str, str, str], Document] = {}

    async def card(self, request: Request) -> Answer:
        """The card of the mount, in the form for the caller's `A2A-Version`."""
        base, mount, agent = reached(request, self._public_url), request.route.mount, request.route.agent
        if mount == "/":
            mount = self._root.replace("{id}", agent)
            if self._tenants and (named := request.query().get("id")) is not None:  # as BeeOS's first clients ask
                mount, agent = f"/{named}", named
                if agent not in self._profiles:
                    raise AgentNotFound(agent)
        signer = None if self._signing is None else await self._signing.signer()
        # Nothing awaits from here on, so that concurrent first requests all get the same signatures.
        place = (mount, base, cards.form_of(version(request)))
        document = self._documents.get(place)
        asks, profile = tuple(self._authenticator.schemes(agent)), self._profiles[agent]
        if document is None or document.asks != asks or document.of is not profile:  # a first key or a new card
            body, signed = self._encode(*place, profile, signer)
            document = self._document(body, signed, asks, profile, vary=True)
            self._keep(place, document)
        return _answer(request, document)

    async def extended(self, request: Request, profile: Profile) -> AgentCard:
        """The card for authenticated callers (A2A 1.0 §3.1.11), for the mount of the request."""
        base, mount = reached(request, self._public_url), request.route.mount
        if profile.id != request.route.agent:  # the tenant names another agent than the one at the root
            mount = f"/agents/{profile.id}"
        offer = self._offer(mount, profile.id)
        card = cards.extended_card(profile, interfaces(base, mount, profile.versions), offer)
        if self._signing is None:
            return card
        signer = await self._signing.signer()
        return replace(card, signatures=_signatures(signer, cards.signed_extended_forms(card), base))

    async def jwks(self) -> Answer:
        """The keys that verify what this server signs (RFC 7517). Raises NotFound if it signs nothing."""
        if self._keys is None:
            raise NotFound("this server signs nothing: sign_cards and push_jwt are off")
        body = (await self._keys.signer()).jwks()
        cached = (b"cache-control", b"public, max-age=%d" % self._max_age_s)
        return Answer(200, [JSON, (b"content-length", b"%d" % len(body)), cached], body)

    def _encode(self, mount: str, base: str, form: str, profile: Profile, signer: Signer | None) -> tuple[bytes, bytes]:
        """The card without signatures, and the card as served: signed for every verifier of this form."""
        at, offer = interfaces(base, mount, profile.versions), self._offer(mount, profile.id)
        card = cards.well_known(cards.card(profile, at, offer), form, offer)
        body = msgspec.json.encode(card.document)
        if signer is None:
            return body, body
        signatures = _signatures(signer, card.signed, base)
        return body, msgspec.json.encode({**card.document, "signatures": signatures})

    def _offer(self, mount: str, agent: str) -> cards.Offer:
        return cards.Offer(
            extended=self._tasks and self._authenticator.required_for(agent),
            extensions=self._extensions.get(mount_of(mount), ()),
            schemes=self._authenticator.schemes(agent),
            requirements=self._authenticator.requirements(agent),
            protocols=self._protocols,
            history=self._history,
            streams=self._tasks,
            pushes=self._pushes,
        )

    def directory(self, request: Request) -> Answer:
        """Answer `GET /agents`: a page of the agents that match the query, with their cards' URLs.

        Raises InvalidParams.
        """
        base, search = reached(request, self._public_url), search_of(request.query())
        found = matching(self._profiles.values(), search)
        page = [entry(base, profile) for profile in found[search.offset :][: search.limit]]
        listed = {"agents": page, "total": len(found), "limit": search.limit, "offset": search.offset}
        body = msgspec.json.encode(listed)
        return _answer(request, self._document(body, body))

    def _document(
        self, body: bytes, served: bytes, asks: tuple[str, ...] = (), of: Profile | None = None, *, vary: bool = False
    ) -> Document:
        # A signed card has a weak ETag over the unsigned bytes, because each signing gives another signature.
        etag = (b'"' if served is body else b'W/"') + sha256(body).hexdigest()[:32].encode() + b'"'
        unchanged = [(b"etag", etag), (b"cache-control", b"public, max-age=%d" % self._max_age_s)]
        if vary:
            unchanged.append(VARY)
        headers = [JSON, (b"content-length", b"%d" % len(served)), *unchanged]
        return Document(served, etag, headers, unchanged, asks, of)

    def _keep(self, place: tuple[str, str, str], document: Document) -> None:
        if len(self._documents) >= KEPT:
            self._documents.clear()
        self._documents[place] = document


def interfaces(base: str, mount: str, versions: Sequence[str] = VERSIONS) -> tuple[AgentInterface, ...]:
    """The endpoints of a mount, in the versions that both the mount and the agent support.

    A mount that is `fixed` ignores the agent's versions: its cards stay as the clients of its system expect them, and
    calls there are answered whatever the agent is configured for.
    """
    kind = mount_of(mount)
    return tuple(
        each
        for each in cards.interfaces(base, mount, VERSIONS if kind.fixed else versions)
        if each.protocol_version in (kind.rpc if each.protocol_binding == cards.JSONRPC else kind.rest)
    )


def _signatures(signer: Signer, forms: Sequence[dict[str, Any]], base: str) -> tuple[dict[str, str], ...]:
    return tuple(signer.sign(form, base + JWKS_PATH) for form in forms)


def _answer(request: Request, document: Document) -> Answer:
    known = request.headers.get(b"if-none-match")
    if known is not None and _matches(known, document.etag):
        return Answer(304, document.unchanged, b"")
    return Answer(200, document.headers, document.body)


def _matches(known: bytes, etag: bytes) -> bool:
    """Weak comparison, as If-None-Match asks for (RFC 9110 §13.1.2)."""
    return any(each.strip().removeprefix(b"W/") in (etag.removeprefix(b"W/"), b"*") for each in known.split(b","))
