"""Cards at their well-known paths (A2A 1.0 §8.2), and the list of agents.

Invariant: a card is the same bytes, and so has the same ETag, as long as the agent and the base URL are the same; it
names only endpoints of the mount it was asked at.
"""

import re
from collections.abc import Collection, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct

from dragoman.bindings.http import JSON, Answer, Header, Request
from dragoman.dialects import cards, protoagent
from dragoman.dialects.mounts import SERVED, Mount, mount_of
from dragoman.model.card import AgentInterface, Profile
from dragoman.model.errors import AgentNotFound

HOST = re.compile(rb"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")

KEPT = 256
"""Documents kept encoded; whoever sends ever new Host headers only makes them be encoded again."""


class Document(Struct, frozen=True):
    """What is served, with its headers: those of a 200, and those of a 304."""

    body: bytes
    etag: bytes
    headers: list[Header]
    unchanged: list[Header]


class Cards:
    """Cards and the list of agents. `public_url` None: the base URL is what the request says it came to."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        public_url: str | None,
        max_age_s: int,
        *,
        root: str = "/",
        keyed: Collection[str] = (),
        protocols: tuple[str, ...] = ("jsonrpc",),
        history: bool = False,
        tenants: bool = True,
    ) -> None:
        """`root` is the mount that the card at the root describes; `keyed` are the agents whose callers need a key.

        `tenants`: agents are at `/{id}`, too, so that a card may be asked for by `?id=`.
        """
        self._profiles = profiles
        self._root = root
        self._keyed = keyed
        self._protocols = protocols
        self._history = history
        self._tenants = tenants
        self._public_url = public_url
        self._max_age_s = max_age_s
        self._documents: dict[tuple[str, str], Document] = {}

    def card(self, request: Request) -> Answer:
        """The card of the mount."""
        base, mount, agent = self._base(request), request.route.mount, request.route.agent
        if mount == "/":
            mount = self._root.replace("{id}", agent)
            if self._tenants and (named := request.query().get("id")) is not None:  # how BeeOS's first clients asked
                mount, agent = f"/{named}", named
                if agent not in self._profiles:
                    raise AgentNotFound(agent)
        document = self._documents.get((mount, base))
        if document is None:
            at = interfaces(base, mount)
            document = self._kept(
                mount, base, cards.encode_well_known(self._profiles[agent], at, self._offer(mount, agent))
            )
        return _answer(request, document)

    def _offer(self, mount: str, agent: str) -> cards.Offer:
        return cards.Offer(
            extensions=protoagent.EXTENSIONS if mount_of(mount) is Mount.PROTOAGENT else (),
            keyed=agent in self._keyed,
            protocols=self._protocols,
            history=self._history,
        )

    def directory(self, request: Request) -> Answer:
        """`GET /agents`: who is here, and where their cards are."""
        base = self._base(request)
        document = self._documents.get(("/agents", base))
        if document is None:
            agents = [_entry(base, profile) for profile in self._profiles.values()]
            document = self._kept("/agents", base, msgspec.json.encode({"agents": agents}))
        return _answer(request, document)

    def _base(self, request: Request) -> str:
        if self._public_url is not None:
            return self._public_url
        scheme, host = request.scope.get("scheme", "http"), request.headers.get(b"host", b"")
        if HOST.fullmatch(host):
            return f"{scheme}://{host.decode()}"
        address, port = request.scope.get("server") or ("127.0.0.1", 80)
        return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"

    def _kept(self, mount: str, base: str, body: bytes) -> Document:
        etag = b'"' + sha256(body).hexdigest()[:32].encode() + b'"'
        unchanged = [(b"etag", etag), (b"cache-control", b"public, max-age=%d" % self._max_age_s)]
        headers = [JSON, (b"content-length", b"%d" % len(body)), *unchanged]
        if len(self._documents) >= KEPT:
            self._documents.clear()
        document = self._documents[mount, base] = Document(body, etag, headers, unchanged)
        return document


def interfaces(base: str, mount: str) -> tuple[AgentInterface, ...]:
    """The endpoints of a mount, of the versions that hold for every call there."""
    served = SERVED[mount_of(mount)]
    return tuple(
        each
        for each in cards.interfaces(base, mount)
        if each.protocol_version in (served.rpc if each.protocol_binding == cards.JSONRPC else served.rest)
    )


def _entry(base: str, profile: Profile) -> dict[str, object]:
    url = f"{base}/agents/{profile.id}"
    return {
        "id": profile.id,
        "name": profile.name,
        "description": profile.description,
        "version": profile.version,
        "url": url,
        "cardUrl": url + cards.WELL_KNOWN[0],
        "cardUrls": [url + path for path in cards.WELL_KNOWN],
    }


def _answer(request: Request, document: Document) -> Answer:
    known = request.headers.get(b"if-none-match")
    if known is not None and _matches(known, document.etag):
        return Answer(304, document.unchanged, b"")
    return Answer(200, document.headers, document.body)


def _matches(known: bytes, etag: bytes) -> bool:
    """Weak comparison, as If-None-Match asks for (RFC 9110 §13.1.2)."""
    return any(each.strip().removeprefix(b"W/") in (etag, b"*") for each in known.split(b","))
