"""Finding an agent's card: at the path that was given, at the well-known ones, and where BeeOS and protoAgent have it.

Invariant: the last segment of the agent's URL is never lost: paths are put after it, not in its place.
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
"""What official clients ask for a card with; servers that have no such version ignore it."""

_TRY_AGAIN = frozenset({429, 502, 503, 504})
SHOWN = 80


class Found(Struct, frozen=True):
    """A card as it came, and the URL it came from."""

    card: dict[str, Any]
    url: str


class Places(Struct, frozen=True):
    """Where an agent's card may be, in the order in which to look, and the agent's URL without a slash at its end.

    `given` is that URL as the caller wrote it: a slash at its end, or a query, leads elsewhere at some servers.
    """

    base: str
    cards: tuple[str, ...]
    given: str


def places(url: str, path: str | None = None) -> Places:
    """Where to look for the card of the agent at `url`. Raises BadUrl.

    A `path` is below the URL, or else below its origin, or a URL of its own; a URL that is that of a card is enough.
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
        likely += [above_it + known for known in WELL_KNOWN]  # protoAgent's is beside its endpoint, not below
    return Places(base, tuple(likely), place.url)


class Discovery:
    """Looks for one agent's card. `credentials` are those that `way` adds: what came to them is kept for them alone.

    `version` is the `A2A-Version` that it names; None: it names none, and gets the card that a server shows to anybody.
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
        """The first card there is; with `anew` its server is asked in any case.

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
    """What came instead of a card."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


def _refusal(reply: Reply) -> str:
    to = reply.headers.get("location", "") if 300 <= reply.status < 400 else ""
    return f"HTTP status {reply.status}" + (f", redirects to {to[:SHOWN]}, which is not followed" if to else "")


def _card(body: bytes) -> dict[str, Any] | str:
    """The card in a body, or what it is instead. Evo AI's community build wraps it."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"no JSON, but {body[:SHOWN]!r}"
    match value:
        case {"success": _, "data": {"name": str()}}:
            card: dict[str, Any] = value["data"]
            return card
        case {"name": _} | {"supportedInterfaces": _} | {"url": str(), "skills": _}:
            return dict(value)
    return f"no card, which has a `name`, but {body[:SHOWN]!r}"
