"""Fetched cards, kept by the rules of HTTP (RFC 9111) for a private cache.

Invariant: a card that is returned is fresh, or its server has just confirmed it. A card fetched with one set of
credentials is never given to a caller with others.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any

from msgspec import Struct

CARDS_MAX = 256
FRESH_S_MAX = 24 * 3600.0
"""Longest time that a card is used without asking its server, whatever the server says."""

_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?([0-9]{1,9})", re.IGNORECASE)
_WORD = re.compile(r"[a-z-]+", re.IGNORECASE)


class Kept(Struct, frozen=True):
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


Ask = Callable[[Kept | None], Awaitable[Kept | str]]
"""Asks the server, given the cached card. Returns the card, new or confirmed, or a text that says what came instead."""


class CardCache:
    """Cards of up to `cards_max` URLs. Several connections can share it. Belongs to one event loop.

    When several callers want the same card at once, one request serves all of them. `clock` counts seconds and does not
    run backwards.
    """

    def __init__(self, cards_max: int = CARDS_MAX, clock: Callable[[], float] = time.monotonic) -> None:
        self._cards_max = cards_max
        self._clock = clock
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[Kept | str]] = {}

    async def card(self, url: str, headers: Mapping[str, str], ask: Ask, *, anew: bool = False) -> Kept | str:
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
        if isinstance(came, Kept):
            self._keep(key, came)
        return came

    def read(self, card: dict[str, Any], headers: Mapping[str, str]) -> Kept:
        """Build the cache entry for a card from the headers of its answer; their names are in lower case."""
        control = headers.get("cache-control", "").lower()
        words = set(_WORD.findall(control))
        fresh_s = 0.0
        if (said := _MAX_AGE.search(control)) is not None and not words & {"no-cache", "no-store"}:
            age = headers.get("age", "")
            fresh_s = min(int(said[1]), FRESH_S_MAX) - (int(age) if re.fullmatch(r"[0-9]{1,9}", age) else 0)
        etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
        return Kept(
            card=card,
            etag=etag,
            modified=modified,
            control=control,
            fresh_until_s=self._clock() + fresh_s,
            storable="no-store" not in words and bool(fresh_s > 0 or etag or modified),
        )

    def same(self, kept: Kept, headers: Mapping[str, str]) -> Kept:
        """Return the entry after a 304, whose headers replace the earlier ones (RFC 9111 §4.3.4)."""
        before = {"etag": kept.etag, "last-modified": kept.modified, "cache-control": kept.control}
        return self.read(kept.card, {**{name: value for name, value in before.items() if value}, **headers})

    def _keep(self, key: bytes, came: Kept) -> None:
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
