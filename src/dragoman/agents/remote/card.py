"""An upstream's card: the profile of ours that is made of it, and the keys that must have signed it.

Invariant: where the card says nothing, or something invalid, the profile says what `ours` says; addresses and access
rules are not taken over. A card is verified with keys that the operator named. Nothing that a card names is fetched.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import json_bounds
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.scalars import Unfit
from dragoman.dialects.extensions import DEDUPE
from dragoman.model.card import AgentCard, AgentSkill, Profile
from dragoman.model.errors import A2AError
from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError

SKILLS_MAX = 200

MODES_MAX = 100
"""How many entries of a stranger's lists are taken over."""

BYTES_MAX, DEPTH_MAX = 1024 * 1024, 64
"""How large and how deeply nested a card may be, since it is served, signed, to everybody who asks for ours."""

MODES = {
    "text": "text/plain",
    "data": "application/json",
    "json": "application/json",
    "file": "*/*",
    "image": "image/*",
}
"""The media types of the kinds of parts that cards before 0.2 name."""

TEXTS = frozenset({"text/plain", "text/*", "*/*", "*"})
"""Modes that accept text."""

AGAIN_S = 30.0
"""Shortest time in seconds between two readings that are due to a card signed by no known key."""

FETCH_S = 5.0

KEYS_MAX = 200


def profile_of(whole: dict[str, Any], ours: Profile) -> Profile:
    """The profile of the agent whose card is `whole`, under the id of `ours`; `ours` if the card is too large.

    The profile always streams: the task is kept here, and its followers are told as it proceeds. It always takes text:
    input modes are a hint (FastA2A says `application/json` unless its author sets more, and takes text), and to refuse
    text here would make the agent useless.
    """
    try:
        card = decode_card(whole)
    except Unfit:
        return ours
    skills = tuple(_skills(card)) or ours.skills
    profile = replace(
        ours,
        name=card.name or ours.name,
        description=card.description or ours.description,
        version=card.version or ours.version,
        skills=skills,
        input_modes=_with_text(_modes(card.default_input_modes)) or ours.input_modes,
        output_modes=_modes(card.default_output_modes) or ours.output_modes,
        provider=card.provider or ours.provider,
        documentation_url=card.documentation_url or ours.documentation_url,
        icon_url=card.icon_url or ours.icon_url,
        extensions=card.capabilities.extensions or ours.extensions,
    )
    return profile if _within_bounds(profile) else ours


def untold_text(whole: dict[str, Any]) -> tuple[str, ...]:
    """The input modes of a card that names some, but none that accepts text; empty if the card accepts text."""
    try:
        modes = _modes(decode_card(whole).default_input_modes)
    except Unfit:
        return ()
    return () if _with_text(modes) == modes else modes


def is_dragoman(whole: dict[str, Any]) -> bool:
    """Whether a card is that of a Dragoman. One that poses as another system (`profile`) is none, by its card."""
    try:
        return any(each.uri == DEDUPE for each in decode_card(whole).capabilities.extensions)
    except Unfit:
        return False


class CardDifference(Struct, frozen=True):
    """A difference between two cards, in words to which the name of one is added. `harmless`: callers notice none."""

    what: str
    harmless: bool = False


def card_differences(first: dict[str, Any] | None, other: dict[str, Any] | None) -> list[CardDifference]:
    """The differences of another card from the first one that matter to those who call both by one card."""
    try:
        ours, theirs = (None if card is None else decode_card(card) for card in (first, other))
    except Unfit:
        return []
    if ours is None or theirs is None:
        return []
    found: list[CardDifference] = []
    for word, before, after in (
        ("skills", _ids_of(ours), _ids_of(theirs)),
        ("input modes", _modes(ours.default_input_modes), _modes(theirs.default_input_modes)),
        ("output modes", _modes(ours.default_output_modes), _modes(theirs.default_output_modes)),
    ):
        if set(before) != set(after):
            told = f"{', '.join(sorted(after)) or 'none'} instead of {', '.join(sorted(before)) or 'none'}"
            found.append(CardDifference(f"it has other {word} ({told})"))
    if ours.security_schemes != theirs.security_schemes:
        found.append(CardDifference("it asks for other credentials", harmless=True))
    return found


def _ids_of(card: AgentCard) -> tuple[str, ...]:
    return tuple(skill.id for skill in card.skills[:SKILLS_MAX] if skill.id)


class NoKeys(Exception):
    """The keys cannot be read. The message says where they were looked for, and what was there."""


class CardKeys:
    """The keys at `sources`. `known` stays one and the same JWK Set: `refresh` updates it in place."""

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

    async def refresh(self, egress: Egress) -> bool:
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


def keys_of(source: str, body: bytes) -> list[Any]:
    """The keys of the JWK Set in `body`. Raises NoKeys, naming the `source`."""
    try:
        held = msgspec.json.decode(body, type=dict[str, Any]).get("keys")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        held = None
    if not isinstance(held, list) or not all(isinstance(key, dict) for key in held):
        raise NoKeys(f'{source}: expected a JWK Set, {{"keys": […]}}')
    return held


def _within_bounds(profile: Profile) -> bool:
    try:
        said = msgspec.json.encode(profile)
        json_bounds.check(said, DEPTH_MAX)
    except (A2AError, RecursionError):
        return False
    return len(said) <= BYTES_MAX


def _skills(card: AgentCard) -> Iterable[AgentSkill]:
    seen: set[str] = set()
    for skill in card.skills[:SKILLS_MAX]:
        if skill.id and skill.id not in seen:
            seen.add(skill.id)
            yield replace(
                skill,
                input_modes=_with_text(_modes(skill.input_modes)),
                output_modes=_modes(skill.output_modes),
            )


def _with_text(modes: tuple[str, ...]) -> tuple[str, ...]:
    """The input modes plus `text/plain`; none if there are none."""
    return modes if not modes or TEXTS.intersection(modes) else (*modes, "text/plain")


def _modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(MODES.get(mode, mode) for mode in modes[:MODES_MAX] if mode))


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
