"""Finds an agent's card: at the given path, at the well-known paths, and where BeeOS and protoAgent serve it.

Invariant: the last segment of the agent's URL is never lost: paths are appended to it and do not replace it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec import Struct

from dragoman.client.card_cache import CardCache, Kept
from dragoman.client.credentials import Credentials
from dragoman.client.errors import CallBroken, NoCard, Tried, no_answer
from dragoman.client.retries import Again, Later
from dragoman.client.wire import Requester
from dragoman.dialects.cards import WELL_KNOWN
from dragoman.net.egress import Reply
from dragoman.net.errors import EgressError
from dragoman.net.target import target

ACCEPT = "application/json, application/a2a+json"
VERSION = "1.0"
"""The version that official clients ask for a card with; servers without that version ignore it."""

_TRY_AGAIN = frozenset({429, 502, 503, 504})
SHOWN = 80


class Found(Struct, frozen=True):
    """A card exactly as received, and the URL it came from."""

    card: dict[str, Any]
    url: str


class Places(Struct, frozen=True):
    """Where an agent's card may be, in the order to try, and the agent's URL without a trailing slash.

    `given` is that URL as the caller wrote it: on some servers a trailing slash or a query leads to another place.
    """

    base: str
    cards: tuple[str, ...]
    given: str


def places(url: str, path: str | None = None) -> Places:
    """List the URLs to try for the card of the agent at `url`. Raises BadUrl.

    A `path` is tried below the URL and then below its origin, or is a URL itself. If `url` is already the URL of a
    card, only that one is tried.
    """
    place = target(url)
    above, _, query = place.url.partition("?")
    origin = place.url[: place.url.index("/", len(place.scheme) + 3)]
    base = above.rstrip("/")
    if path is not None:
        if "://" in path:
            return Places(base, (target(path).url,), place.url)
        below = "/" + path.lstrip("/")
        cards = tuple(dict.fromkeys((target(base + below).url, target(origin + below).url)))
        return Places(base, cards, place.url)
    for known in WELL_KNOWN:
        if base.endswith(known):
            agent = dict(parse_qsl(query)).get("id")
            found = base.removesuffix(known)
            found = f"{found}/{quote(agent, safe='')}" if agent else found
            return Places(found, (place.url,), target(found).url)
    if base.endswith(".json"):
        found = base.rpartition("/")[0]
        return Places(found, (place.url,), target(found).url)
    likely = [base + known for known in WELL_KNOWN]
    above_it, _, last = base.rpartition("/")
    if base != origin:
        likely.append(f"{origin}{WELL_KNOWN[0]}?id={last}")  # BeeOS, the older form
    if last == "a2a":
        likely += [above_it + known for known in WELL_KNOWN]  # protoAgent serves it beside its endpoint, not below
    return Places(base, tuple(likely), place.url)


class Discovery:
    """Looks for one agent's card.

    `credentials` are the ones that `way` adds; a card fetched with them is cached for them alone. `version` is the
    `A2A-Version` sent. With None no version is sent, and the server returns the card that it shows to anybody.
    """

    def __init__(
        self,
        way: Requester,
        where: Places,
        cache: CardCache,
        *,
        timeout_s: float,
        headers: Mapping[str, str],
        credentials: Credentials | None,
        again: Again,
        version: str | None = VERSION,
    ) -> None:
        self._way = way
        self._where = where
        self._cache = cache
        self._timeout_s = timeout_s
        named = {} if version is None else {"A2A-Version": version}
        self._headers = {"Accept": ACCEPT, **named, **headers}
        self._credentials = credentials
        self._again = again

    async def find(self, *, anew: bool = False) -> Found:
        """Return the first card found; with `anew` the server is asked even if a cached card is fresh.

        Raises NoCard; NotReached or CallTimedOut if there is no server to ask; NoToken.
        """
        shown = {} if self._credentials is None else await self._credentials.headers()
        who = {**self._headers, **shown}
        tried: list[Tried] = []
        for url in self._where.cards:
            ask = partial(self._ask, url)
            came = await self._cache.card(url, who, ask, anew=anew)
            if isinstance(came, Kept):
                return Found(came.card, url)
            tried.append(Tried(url, came))
        raise NoCard(target(self._where.cards[0]).shown, tried)

    async def _ask(self, url: str, kept: Kept | None) -> Kept | str:
        try:
            reply = await self._again.call(partial(self._get, url, kept), repeatable=True)
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

    async def _get(self, url: str, kept: Kept | None) -> Reply:
        conditions = {} if kept is None else kept.conditions
        try:
            reply = await self._way.request(
                "GET", target(url), timeout_s=self._timeout_s, headers={**self._headers, **conditions}
            )
        except EgressError as error:
            raise no_answer(error, "card_s") from error
        if reply.status in _TRY_AGAIN:
            raise Later(_Instead(_refusal(reply)), self._again.after_s(reply.headers))
        return reply


class _Instead(Exception):
    """A final answer that is not a card."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


def _refusal(reply: Reply) -> str:
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
