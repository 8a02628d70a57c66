"""The keys that must have signed an upstream's card: JWK Sets (RFC 7517 §5) in files, or at URLs.

Invariant: a card is verified with keys that the operator named. Nothing that a card itself names is fetched for it.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError

AGAIN_S = 30.0
"""Shortest time in seconds between two readings that are due to a card signed by no known key."""

FETCH_S = 5.0
KEYS_MAX = 200


class NoKeys(Exception):
    """The keys cannot be read. The message says where they were looked for, and what was there."""


class CardKeys:
    """The keys at `sources`. `known` stays one and the same JWK Set: rereading updates it in place."""

    def __init__(self, sources: tuple[str, ...], clock: Callable[[], float] = time.monotonic) -> None:
        self.known: dict[str, Any] = {}
        self._sources = sources
        self._clock = clock
        self._read_at = float("-inf")

    async def read(self, egress: Egress) -> dict[str, Any]:
        """The keys, read if they have not been read yet. Raises NoKeys."""
        if not self.known:
            await self._read(egress)
        return self.known

    async def reread(self, egress: Egress) -> bool:
        """Read the keys again, but not too often. Returns whether they changed. Raises NoKeys."""
        if self._clock() < self._read_at + AGAIN_S:
            return False
        before = self.known.get("keys")
        await self._read(egress)
        return bool(self.known["keys"] != before)

    async def _read(self, egress: Egress) -> None:
        self._read_at = self._clock()
        keys: list[Any] = []
        for source in self._sources:
            keys += await _set_at(source, egress)
        self.known["keys"] = keys[:KEYS_MAX]


async def _set_at(source: str, egress: Egress) -> list[Any]:
    try:
        if "://" in source:
            reply = await egress.request("GET", source, timeout_s=FETCH_S, headers={"Accept": "application/json"})
            if not reply.ok:
                raise NoKeys(f"{source}: answered with HTTP status {reply.status}, expected 200")
            body = reply.body
        else:
            body = await asyncio.to_thread(Path(source).read_bytes)
    except EgressError as error:
        raise NoKeys(str(error)) from error
    except OSError as error:
        raise NoKeys(f"{source}: {error.strerror or 'cannot be read'}") from error
    return keys_of(source, body)


def keys_of(source: str, body: bytes) -> list[Any]:
    """The keys of the JWK Set in `body`. Raises NoKeys, naming the `source`."""
    try:
        held = msgspec.json.decode(body, type=dict[str, Any]).get("keys")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        held = None
    if not isinstance(held, list) or not all(isinstance(key, dict) for key in held):
        raise NoKeys(f'{source}: expected a JWK Set, {{"keys": […]}}')
    return held
