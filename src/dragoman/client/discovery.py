"""Finds an agent's card: at the given URL, at the well-known paths below it, and where the vendors' systems serve it.
Fetched cards are cached by the rules of HTTP (RFC 9111) for a private cache.

Invariant: the card is that of the agent which the URL names. Paths are appended to the URL and do not replace its last
segment; a card from another place of the host counts only if it names the URL as an endpoint. A card that is returned
is fresh, or its server has just confirmed it. A card fetched with one set of credentials is never given to a caller
with others.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec import Struct

from dragoman.client.card import interfaces
from dragoman.client.errors import CallBroken, CallTimedOut, NoCard, Tried, no_answer
from dragoman.client.http import Requester
from dragoman.client.retries import RETRIES, TIMEOUTS, Retrier, Retries, RetryLater, Timeouts
from dragoman.client.transport import CallTerms
from dragoman.dialects.cards import WELL_KNOWN
from dragoman.dialects.registry import load_systems
from dragoman.net.egress import HttpReply
from dragoman.net.errors import EgressError
from dragoman.net.target import grpc_target, is_grpc, target

CARDS_MAX = 256
FRESH_S_MAX = 24 * 3600.0
"""Longest time that a card is used without asking its server, whatever the server says."""

_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?([0-9]{1,9})", re.IGNORECASE)
_WORD = re.compile(r"[a-z-]+", re.IGNORECASE)

ACCEPT = "application/json, application/a2a+json"

VERSION = "1.0"
"""The version that official clients ask for a card with; servers without that version ignore it."""

_TRY_AGAIN = frozenset({429, 502, 503, 504})

SHOWN = 80

NAMES_SHOWN = 3


class CachedCard(Struct, frozen=True):
    """A card exactly as received, with what its server said about caching."""

    card: dict[str, Any]
    etag: str = ""
    modified: str = ""
    control: str = ""
    fresh_until_s: float = 0.0
    storable: bool = True

    @property
    def conditions(self) -> dict[str, str]:
        """The headers that ask whether the card has changed (RFC 9110 §13.1)."""
        asked = {"If-None-Match": self.etag, "If-Modified-Since": "" if self.etag else self.modified}
        return {name: value for name, value in asked.items() if value}


Ask = Callable[[CachedCard | None], Awaitable[CachedCard | str]]
"""Asks the server, given the cached card. Returns the card, new or confirmed, or a text that says what came instead."""


class CardCache:
    """Cards of up to `cards_max` URLs. Several connections can share it. Belongs to one event loop.

    When several callers want the same card at once, one request serves all of them. `clock` counts seconds and does not
    run backwards.
    """

    def __init__(self, cards_max: int = CARDS_MAX, clock: Callable[[], float] = time.monotonic) -> None:
        self._cards_max = cards_max
        self._clock = clock
        self._kept: OrderedDict[bytes, CachedCard] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[CachedCard | str]] = {}

    async def card(self, url: str, headers: Mapping[str, str], ask: Ask, *, anew: bool = False) -> CachedCard | str:
        """Return the card at a URL for callers who send these headers; with `anew` the server is always asked."""
        key = _key(url, headers)
        while (asking := self._asking.get(key)) is not None:
            await asyncio.wait([asking])
            if not asking.cancelled():
                return asking.result()
        kept = self._kept.get(key)
        if kept is not None and not anew and self._clock() < kept.fresh_until_s:
            self._kept.move_to_end(key)
            return kept
        self._asking[key] = told = asyncio.get_running_loop().create_future()
        try:
            came = await ask(kept)
            told.set_result(came)
        finally:
            told.cancel()
            del self._asking[key]
        if isinstance(came, CachedCard):
            self._keep(key, came)
        return came

    def read(self, card: dict[str, Any], headers: Mapping[str, str]) -> CachedCard:
        """Build the cache entry for a card from the headers of its answer; their names are in lower case."""
        control = headers.get("cache-control", "").lower()
        words = set(_WORD.findall(control))
        fresh_s = 0.0
        if (said := _MAX_AGE.search(control)) is not None and not words & {"no-cache", "no-store"}:
            age = headers.get("age", "")
            fresh_s = min(int(said[1]), FRESH_S_MAX) - (int(age) if re.fullmatch(r"[0-9]{1,9}", age) else 0)
        etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
        return CachedCard(
            card=card,
            etag=etag,
            modified=modified,
            control=control,
            fresh_until_s=self._clock() + fresh_s,
            storable="no-store" not in words and bool(fresh_s > 0 or etag or modified),
        )

    def same(self, kept: CachedCard, headers: Mapping[str, str]) -> CachedCard:
        """Return the entry after a 304, whose headers replace the earlier ones (RFC 9111 §4.3.4)."""
        before = {"etag": kept.etag, "last-modified": kept.modified, "cache-control": kept.control}
        return self.read(kept.card, {**{name: value for name, value in before.items() if value}, **headers})

    def _keep(self, key: bytes, came: CachedCard) -> None:
        self._kept.pop(key, None)
        if not came.storable:
            return
        self._kept[key] = came
        while len(self._kept) > self._cards_max:
            self._kept.popitem(last=False)


def _key(url: str, headers: Mapping[str, str]) -> bytes:
    """Hash the URL and headers. The key holds no secret, because the cache outlives a connection."""
    told = "\0".join((url, *(f"{name.lower()}:{headers[name]}" for name in sorted(headers))))
    return blake2b(told.encode(), digest_size=32).digest()


class FoundCard(Struct, frozen=True):
    """A card exactly as received, and the URL it came from."""

    card: dict[str, Any]
    url: str


class Places(Struct, frozen=True, kw_only=True):
    """Where an agent's card may be, in the order to try, and the agent's URL without a trailing slash.

    `given` is that URL as the caller wrote it: on some servers a trailing slash or a query leads to another place.
    `names_host`: the URL has no path, so that the agent is the one at the root of the host. `itself`: the first of
    `cards` is the URL, which may be an endpoint or a page. `elsewhere` are those of `cards` that are not below the URL,
    so that another agent's card may be there.
    """

    base: str
    cards: tuple[str, ...]
    given: str
    names_host: bool = False
    itself: bool = False
    elsewhere: frozenset[str] = frozenset()

    def refuse(self, card: dict[str, Any], url: str) -> str:
        """Say why a document that was found at `url` is not this agent's card; empty if it is."""
        if self.itself and url == self.cards[0] and not is_card(card):
            return f"is no agent card: {', '.join(list(card)[:NAMES_SHOWN])}"
        if url in self.elsewhere:
            named = [each.url for each in interfaces(card, url, self.base) if not is_grpc(each.url)]
            if _path(self.base) not in map(_path, named):
                return f"is the card of another agent, at {', '.join(named[:NAMES_SHOWN]) or 'no URL'}"
        return ""


def places(url: str, path: str | None = None) -> Places:
    """List the URLs to try for the card of the agent at `url`. Raises BadUrl.

    A URL of a host has its card at the well-known paths of its root; with `?id=` it names the agent of that id. Any
    other URL may be the card itself, else the card is below it. The other places on the host, where vendors serve
    cards, must name the URL. If `url` is certainly the URL of a card, only that one is tried. A `path` is tried below
    the URL and then below its origin, or is a URL itself. There is no card at the address of a gRPC endpoint.
    """
    if is_grpc(url):
        there = grpc_target(url).url
        named = (target(path).url,) if path is not None and "://" in path else ()
        return Places(base=there, cards=named, given=there)
    place = target(url)
    above, _, query = place.url.partition("?")
    origin = place.url[: place.url.index("/", len(place.scheme) + 3)]
    base = above.rstrip("/")
    if path is not None:
        if "://" in path:
            return Places(base=base, cards=(target(path).url,), given=place.url)
        below = "/" + path.lstrip("/")
        return _places_below(base, [target(base + below).url, target(origin + below).url], place.url)
    for known in WELL_KNOWN:
        if base.endswith(known):
            agent = dict(parse_qsl(query)).get("id")
            found = base.removesuffix(known)
            found = f"{found}/{quote(agent, safe='')}" if agent else found
            return Places(base=found, cards=(place.url,), given=target(found).url)
    if base.endswith(".json"):
        found = base.rpartition("/")[0]
        return Places(base=found, cards=(place.url,), given=target(found).url)
    likely = [base + known for known in WELL_KNOWN]
    likely += [url for system in load_systems() for url in system.card_urls(base)]
    if base == origin:
        if agent := dict(parse_qsl(query)).get("id"):
            return places(f"{origin}/{quote(agent, safe='')}")
        return Places(base=base, cards=tuple(likely), given=place.url, names_host=True)
    return _places_below(base, [place.url, *likely], place.url)


def _places_below(base: str, cards: Sequence[str], given: str) -> Places:
    """Make the places of a URL that is not certainly a card's own."""
    elsewhere = frozenset(url for url in cards if url != given and not url.startswith(f"{base}/"))
    return Places(
        base=base,
        cards=tuple(dict.fromkeys(cards)),
        given=given,
        itself=cards[0] == given,
        elsewhere=elsewhere,
    )


def is_card(document: Any) -> bool:
    """Whether a JSON value has what only a card has: a name, and an endpoint or skills, or the endpoints of A2A 1.0."""
    match document:
        case {"name": str(), **rest}:
            return bool(rest.keys() & {"supportedInterfaces", "url", "skills", "capabilities"})
        case {"supportedInterfaces": list()}:
            return True
    return False


def _path(url: str) -> str:
    """Return the path of a URL, without a trailing slash and a query."""
    return url.partition("?")[0].partition("://")[2].partition("/")[2].rstrip("/")


class Discovery:
    """Looks for one agent's card.

    The credentials of the `terms` are the ones that `way` adds; a card fetched with them is cached for them alone.
    `version` is the `A2A-Version` sent. With None no version is sent, and the server returns the card that it shows to
    anybody.
    """

    def __init__(
        self, way: Requester, where: Places, cache: CardCache, terms: CallTerms, *, version: str | None = VERSION
    ) -> None:
        self._way = way
        self._where = where
        self._cache = cache
        self._terms = terms
        named = {} if version is None else {"A2A-Version": version}
        self._headers = {"Accept": ACCEPT, **named, **terms.headers}

    async def find(self, *, anew: bool = False) -> FoundCard:
        """Return the first card found; with `anew` the server is asked even if a cached card is fresh.

        Raises NoCard; NotReached or CallTimedOut if there is no server to ask; NoToken.
        """
        credentials = self._terms.credentials
        shown = {} if credentials is None else await credentials.headers()
        who = {**self._headers, **shown}
        tried: list[Tried] = []
        for url in self._where.cards:
            ask = partial(self._ask, url)
            try:
                came = await self._cache.card(url, who, ask, anew=anew)
            except CallTimedOut as error:
                if not (self._where.itself and url == self._where.cards[0]):
                    raise
                came = str(error).removeprefix(f"{error.url}: ")  # an endpoint may stream to whoever reads it
            if isinstance(came, str):
                tried.append(Tried(url, came))
            elif refusal := self._where.refuse(came.card, url):
                tried.append(Tried(url, refusal, other=url in self._where.elsewhere))
            else:
                return FoundCard(came.card, url)
        raise NoCard(target(self._where.cards[0]).shown if self._where.cards else self._where.base, tried)

    async def _ask(self, url: str, kept: CachedCard | None) -> CachedCard | str:
        try:
            reply = await self._terms.retrier.call(partial(self._get, url, kept), repeatable=True)
        except _Instead as instead:
            return instead.answer
        except CallBroken as error:
            return str(error).removeprefix(f"{error.url}: ")
        if reply.status == 304 and kept is not None:
            return self._cache.same(kept, reply.headers)
        if not reply.ok:
            return _refusal(reply)
        card = _card(reply.body)
        return self._cache.read(card, reply.headers) if isinstance(card, dict) else card

    async def _get(self, url: str, kept: CachedCard | None) -> HttpReply:
        conditions = {} if kept is None else kept.conditions
        try:
            reply = await self._way.request(
                "GET", target(url), timeout_s=self._terms.timeouts.card_s, headers={**self._headers, **conditions}
            )
        except EgressError as error:
            raise no_answer(error, "card_s") from error
        if reply.status in _TRY_AGAIN:
            raise RetryLater(_Instead(_refusal(reply)), self._terms.retrier.after_s(reply.headers))
        return reply


async def find_card(
    url: str,
    *,
    egress: Requester,
    path: str | None = None,
    timeout_s: float = TIMEOUTS.card_s,
    headers: Mapping[str, str] | None = None,
    retries: Retries = RETRIES,
) -> FoundCard:
    """Fetch the card of the agent at `url` without credentials, from the places that `connect` tries.

    Raises BadUrl, NoCard, NotReached, CallTimedOut.
    """
    terms = CallTerms(timeouts=Timeouts(card_s=timeout_s), retrier=Retrier(retries), headers=headers or {})
    return await Discovery(egress, places(url, path), CardCache(), terms).find()


class _Instead(Exception):
    """A final answer that is not a card."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


def _refusal(reply: HttpReply) -> str:
    to = reply.headers.get("location", "") if 300 <= reply.status < 400 else ""
    return f"HTTP status {reply.status}" + (f", redirects to {to[:SHOWN]}, which is not followed" if to else "")


def _card(body: bytes) -> dict[str, Any] | str:
    """Return the card in a body, or a text that says what the body is. Evo AI's community build wraps its card."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"expected JSON, got {body[:SHOWN]!r}"
    match value:
        case {"success": _, "data": {"name": str()}}:
            card: dict[str, Any] = value["data"]
            return card
        case {"name": _} | {"supportedInterfaces": _} | {"url": str(), "skills": _}:
            return dict(value)
    return f"expected a card with a `name`, got {body[:SHOWN]!r}"
