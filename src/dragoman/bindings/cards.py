"""Cards at their well-known paths (A2A 1.0 §8.2), and the list of agents, which can be searched.

Invariant: a card keeps the same bytes, and so the same ETag, as long as the agent, the base URL, the `A2A-Version` and
the authentication schemes are the same. It names only endpoints of the mount at which it is served. The list shows
only what the public cards show; a search finds agents only by what a card of theirs shows to its caller.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.auth.authenticator import AUTHORIZATION, KEY_HEADERS, Authenticator
from dragoman.auth.signatures import Signer, SigningRoom
from dragoman.bindings.callers import Callers
from dragoman.bindings.documents import Document, answer_document, make_etag
from dragoman.bindings.http import JSON, HttpRequest, HttpResponse
from dragoman.bindings.request import Header, Request, read_parameters
from dragoman.dialects import cards
from dragoman.dialects.resolve import MOUNTS, mount_of
from dragoman.dialects.system import AGENT, ROOT, Mount
from dragoman.model.card import VERSIONS, AgentCard, AgentExtension, AgentInterface, AgentSkill, Described, Profile
from dragoman.model.errors import AgentNotFound, InvalidParams, NotFound, Unavailable
from dragoman.model.principal import ANONYMOUS, Scope

JWKS_PATH = "/.well-known/jwks.json"
"""Path of the server's public keys."""

VARY = (b"vary", b"A2A-Version")
"""Caches must keep one card for each version that callers send (RFC 9110 §12.5.5)."""

VARY_BY_CALLER: Header = (b"vary", b", ".join((AUTHORIZATION, *KEY_HEADERS)))
"""Caches must keep the answers to different credentials apart (RFC 9110 §12.5.5)."""

KEPT = 256
"""How many documents are kept encoded. A flood of new Host headers only makes them be encoded again."""

LIST_LIMIT = 100
"""How many agents a page of the list has by default."""

LIST_LIMIT_MAX = 1000
WORDS_MAX = 32
"""How many words a search may have; nobody types more than that."""


class CardDocument(Struct, frozen=True):
    """A card as it is sent. `asks` are the authentication schemes, and `of` the profile, from which it was made."""

    sent: Document
    asks: tuple[str, ...]
    of: Profile


class GrpcAddress(Struct, frozen=True):
    """Where gRPC is served: at `public`, a host and a port, or else at the host of the base URL with `port`.

    `public` may have the scheme grpc or grpcs.
    """

    port: int
    public: str | None = None

    def at(self, base: str, version: str) -> str:
        """Return the address for cards in a version: the host and the port, which clients pass to gRPC as they are.

        Only 0.3 shows a scheme, if the operator has set one: its test kit wants it, while its clients do not.
        """
        if self.public is not None:
            return self.public if version == "0.3" else self.public.rpartition("/")[2]
        host = urlsplit(base).hostname or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class CardSettings(Struct, frozen=True, kw_only=True):
    """The settings that all cards of a server share. `public_url` None: the base URL is taken from the request.

    `extensions` are those of each mount, in addition to the agents' own. `signed`: cards are signed; `shows_keys`: the
    keys are published. `tasks` False: the server makes no tasks, so it has no streams, no webhooks and no extended
    card. `grpc` None: gRPC is not served.
    """

    public_url: str | None
    max_age_s: int
    mounts: Sequence[Mount] = MOUNTS
    extensions: Mapping[Mount, tuple[AgentExtension, ...]] = {}
    signed: bool = False
    shows_keys: bool = False
    history: bool = False
    tasks: bool = True
    pushes: bool = True
    grpc: GrpcAddress | None = None


class Cards:
    """Cards and the list of agents. Without `callers` everybody searches the public cards alone."""

    def __init__(
        self,
        agents: Mapping[str, Described],
        settings: CardSettings,
        authenticator: Authenticator,
        signing: SigningRoom | None = None,
        callers: Callers | None = None,
    ) -> None:
        self._agents = agents
        self._settings = settings
        self._authenticator = authenticator
        self._callers = callers
        self._signing = signing if settings.signed else None
        self._keys = signing if settings.shows_keys else None
        mounts = settings.mounts
        self._root = "/" if ROOT in mounts else mounts[0].path
        """The mount that the card at the root describes."""
        self._tenants = any(mount.catches_all for mount in mounts)
        """Whether agents are also served at `/{id}`, so that `?id=` may select a card."""
        self._documents: dict[tuple[str, str, str], CardDocument] = {}

    async def answer_card(self, request: HttpRequest) -> HttpResponse:
        """The card of the mount, in the form for the caller's `A2A-Version`."""
        base, mount, agent = request.base_url(self._settings.public_url), request.route.mount, request.route.agent
        if mount == "/":
            mount = self._root.replace("{id}", agent)
            if (
                self._tenants and (named := request.query_fields().get("id")) is not None
            ):  # as BeeOS's first clients ask
                mount, agent = f"/{named}", named
        if agent not in self._agents:
            raise AgentNotFound(agent)
        signer = None if self._signing is None else await self._signing.signer_if_readable()
        await self._authenticator.refresh()
        # Nothing awaits from here on, so that concurrent first requests all get the same signatures.
        place = (mount, base, cards.form_of(read_parameters(request).version))
        card = self._documents.get(place)
        asks, profile = tuple(self._authenticator.schemes(agent)), self._agents[agent].profile
        if card is None or card.asks != asks or card.of is not profile:  # a first key or a new card
            body, signed = self._encode(*place, profile, signer)
            card = CardDocument(self._document(body, signed, VARY), asks, profile)
            if signer is not None or self._signing is None:  # else it is signed as soon as its key is mended
                self._keep(place, card)
        return answer_document(request, card.sent)

    async def make_extended(self, request: Request, profile: Profile) -> AgentCard:
        """The card for authenticated callers (A2A 1.0 §3.1.11), for the mount of the request."""
        base, mount = request.base_url(self._settings.public_url), request.route.mount
        if profile.id != request.route.agent:  # the tenant names another agent than the one at the root
            mount = f"/agents/{profile.id}"
        offer = self._offer(mount, profile.id)
        card = cards.extended_card(profile, interfaces(base, mount, profile.versions, self._settings.grpc), offer)
        if self._signing is None:
            return card
        if (signer := await self._signing.signer_if_readable()) is None:
            return card
        return replace(card, signatures=_signatures(signer, cards.signed_extended_forms(card), base))

    async def keys(self) -> HttpResponse:
        """The keys that verify what this server signs (RFC 7517).

        Raises NotFound if it signs nothing, Unavailable if its key is damaged.
        """
        if self._keys is None:
            raise NotFound("this server signs nothing: sign_cards and push_jwt are off")
        if (signer := await self._keys.signer_if_readable()) is None:
            raise Unavailable("the key for signatures cannot be read: nothing is signed at present")
        body = signer.jwks()
        cached = (b"cache-control", b"public, max-age=%d" % self._settings.max_age_s)
        return HttpResponse(200, [JSON, (b"content-length", b"%d" % len(body)), cached], body)

    def _encode(self, mount: str, base: str, form: str, profile: Profile, signer: Signer | None) -> tuple[bytes, bytes]:
        """The card without signatures, and the card as served: signed for every verifier of this form."""
        at, offer = interfaces(base, mount, profile.versions, self._settings.grpc), self._offer(mount, profile.id)
        card = cards.well_known(cards.card(profile, at, offer), form, offer)
        body = msgspec.json.encode(card.document)
        if signer is None:
            return body, body
        signatures = _signatures(signer, card.signed, base)
        return body, msgspec.json.encode({**card.document, "signatures": signatures})

    def _offer(self, mount: str, agent: str) -> cards.CardOffer:
        settings = self._settings
        return cards.CardOffer(
            extended=settings.tasks and self._authenticator.required_for(agent),
            extensions=settings.extensions.get(mount_of(mount), ()),
            schemes=self._authenticator.schemes(agent),
            requirements=self._authenticator.requirements(agent),
            protocols=("jsonrpc",) if settings.tasks else (),
            history=settings.tasks and settings.history,
            streams=settings.tasks,
            pushes=settings.tasks and settings.pushes,
        )

    async def answer_list(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET /agents`: a page of the agents that match the query, with their cards' URLs.

        A caller with credentials who searches finds the agents that they may use, by the skills of their extended
        cards, too, if they may read those. Raises InvalidParams, or Unauthorized for credentials that are not valid.
        """
        base, search = request.base_url(self._settings.public_url), _read_search(request.query_fields())
        shown, known = [agent.profile for agent in self._agents.values()], False
        further: tuple[Header, ...] = ()
        if self._callers is not None and (search.words or search.skill):
            request.principal = await self._callers.recognise(request)
            further = (VARY_BY_CALLER,)
            if known := request.principal is not ANONYMOUS:
                shown = [self._show(request, each) for each in shown if request.principal.reaches(each.id)]
        found = [profile for profile in shown if _fits(profile, search)]
        page = [_list_entry(base, profile) for profile in found[search.offset :][: search.limit]]
        body = msgspec.json.encode(AgentList(page, len(found), search.limit, search.offset))
        return answer_document(request, self._document(body, body, *further, private=known))

    def _show(self, request: Request, profile: Profile) -> Profile:
        """The profile as the cards of an agent show it to the caller of the request."""
        scopes = request.principal.scopes
        if (scopes is None or Scope.CARD in scopes) and self._authenticator.required_for(profile.id):
            return replace(profile, skills=(*profile.skills, *profile.extended_skills))
        return profile

    def _document(self, body: bytes, served: bytes, *further: Header, private: bool = False) -> Document:
        # A signed card has a weak ETag over the unsigned bytes, because each signing gives another signature.
        etag = make_etag(body, weak=served is not body)
        cached = b"%s, max-age=%d" % (b"private" if private else b"public", self._settings.max_age_s)
        unchanged = [(b"etag", etag), (b"cache-control", cached), *further]
        return Document(served, etag, [JSON, (b"content-length", b"%d" % len(served)), *unchanged], unchanged)

    def _keep(self, place: tuple[str, str, str], card: CardDocument) -> None:
        if len(self._documents) >= KEPT:
            self._documents.clear()
        self._documents[place] = card


def interfaces(
    base: str, mount: str, versions: Sequence[str] = VERSIONS, grpc: GrpcAddress | None = None
) -> tuple[AgentInterface, ...]:
    """The endpoints of a mount, in the versions that both the mount and the agent support.

    A mount that is `fixed` ignores the agent's versions: its cards stay as the clients of its system expect them, and
    calls there are answered whatever the agent is configured for. gRPC comes last: few clients speak it. Over gRPC 0.3
    has no tenant, and its clients read no more of a card than the address, so only the root's card lists it.
    """
    kind = mount_of(mount)
    listed = tuple(
        each
        for each in cards.interfaces(base, mount, VERSIONS if kind.fixed else versions)
        if each.protocol_version in (kind.rpc if each.protocol_binding == cards.JSONRPC else kind.rest)
    )
    if grpc is None or kind not in (ROOT, AGENT):
        return listed
    tenant = None if kind is ROOT else mount.removeprefix(AGENT.path.removesuffix("{id}"))
    spoken = VERSIONS if kind is ROOT else ("1.0",)
    served = [
        AgentInterface(url=grpc.at(base, version), protocol_binding=cards.GRPC, protocol_version=version, tenant=tenant)
        for version in spoken
        if version in versions
    ]
    return (*listed, *served)


def _signatures(signer: Signer, forms: Sequence[dict[str, Any]], base: str) -> tuple[dict[str, str], ...]:
    return tuple(signer.sign(form, base + JWKS_PATH) for form in forms)


# -- the list of agents -----------------------------------------------------------------------------------------------


class ListedSkill(Struct, frozen=True):
    """A skill in the list of agents."""

    id: str
    name: str
    tags: Sequence[str]


class ListedAgent(Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent in the list: what its public card says, and where it is."""

    id: str
    name: str
    description: str
    version: str
    url: str
    card_url: str
    card_urls: Sequence[str]
    skills: Sequence[ListedSkill]


class AgentList(Struct, frozen=True):
    """A page of the agents that match; `total` counts all pages."""

    agents: Sequence[ListedAgent]
    total: int
    limit: int
    offset: int


class _Search(Struct, frozen=True):
    """A search: one skill must have all of `skill`, the agent and its skills all of `words`; then the page."""

    skill: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    limit: int = LIST_LIMIT
    offset: int = 0


def _read_search(query: Mapping[str, str]) -> _Search:
    """Parse the query of `GET /agents`. Raises InvalidParams."""
    return _Search(
        _words(query, "skill"),
        _words(query, "q"),
        _number(query, "limit", LIST_LIMIT, 1),
        _number(query, "offset", 0, 0),
    )


def _list_entry(base: str, profile: Profile) -> ListedAgent:
    """An agent's entry in the catalogue."""
    url = f"{base}/agents/{profile.id}"
    return ListedAgent(
        id=profile.id,
        name=profile.name,
        description=profile.description,
        version=profile.version,
        url=url,
        card_url=url + cards.WELL_KNOWN[0],
        card_urls=[url + path for path in cards.WELL_KNOWN],
        skills=[ListedSkill(skill.id, skill.name, skill.tags) for skill in profile.skills],
    )


def _fits(profile: Profile, search: _Search) -> bool:
    skills = [_search_text(skill) for skill in profile.skills]
    if search.skill and not any(all(word in said for word in search.skill) for said in skills):
        return False
    said = "\n".join((profile.id, profile.name, profile.description)).casefold()
    return all(word in said or any(word in skill for skill in skills) for word in search.words)


def _search_text(skill: AgentSkill) -> str:
    return "\n".join((skill.id, skill.name, skill.description, *skill.tags)).casefold()


def _words(query: Mapping[str, str], field: str) -> tuple[str, ...]:
    words = tuple(query.get(field, "").casefold().split())
    if len(words) > WORDS_MAX:
        raise InvalidParams(field, f"at most {WORDS_MAX} words")
    return words


def _number(query: Mapping[str, str], field: str, default: int, least: int) -> int:
    given = query.get(field)
    if given is None:
        return default
    most = LIST_LIMIT_MAX if field == "limit" else 1_000_000
    number = int(given) if given.isascii() and given.isdecimal() and len(given) < 8 else -1
    if not least <= number <= most:
        raise InvalidParams(field, f"must be a number from {least} to {most}")
    return number
