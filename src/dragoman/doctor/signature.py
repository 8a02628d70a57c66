"""Says whether a card is signed, and whether its signature holds (A2A 1.0 §8.4.3).

Invariant: a card is never called verified unless one of the keys that the user named has signed it, or a key that the
card's own origin serves.
"""

import asyncio
import base64
from typing import Any

import msgspec

from dragoman.auth.signatures import CardNotVerified
from dragoman.client import FoundCard
from dragoman.client.card import verify
from dragoman.client.http import Requester
from dragoman.net.errors import BadUrl, EgressError
from dragoman.net.target import target

KEYS_S = 10.0
"""How long a key set may take to come."""


async def describe_signature(found: FoundCard, keys: dict[str, Any] | None) -> str:
    """Say whether a card's signature is verified by the keys of a JWK Set, unverifiable or absent."""
    if not found.card.get("signatures"):
        return "absent"
    if keys is None:
        return "unverifiable (no key is known)"
    try:
        key = await asyncio.to_thread(verify, found.card, keys)
    except CardNotVerified as error:
        return f"unverifiable ({error})"
    return f"verified (key {key})"


async def fetch_served_keys(found: FoundCard, egress: Requester) -> dict[str, Any] | None:
    """Fetch the keys that a signature's `jku` names, if they are at the card's own origin, over https."""
    signatures = found.card.get("signatures")
    for signature in signatures if isinstance(signatures, list) else ():
        try:
            text = signature["protected"]
            head = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=dict[str, Any])
            jku = head["jku"]
        except (KeyError, TypeError, ValueError):
            continue
        if isinstance(jku, str) and jku.startswith("https://") and _same_origin(jku, found.url):
            return await fetch_keys(jku, egress)
    return None


async def fetch_keys(url: str, egress: Requester) -> dict[str, Any] | None:
    """Fetch a JWK Set; None if there is none."""
    try:
        reply = await egress.request("GET", url, timeout_s=KEYS_S)
        return msgspec.json.decode(reply.body, type=dict[str, Any]) if reply.ok else None
    except (EgressError, ValueError, RecursionError):
        return None


def _same_origin(one: str, other: str) -> bool:
    try:
        return target(one).origin == target(other).origin
    except BadUrl:
        return False
