"""Converts another agent's card to a profile of ours, without the addresses and the access rules in it.

Invariant: pure and total. Where the card says nothing, or something invalid, the profile says what `ours` says.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects import card_reading, json_bounds
from dragoman.dialects.heard import Unfit
from dragoman.model.card import AgentCard, AgentSkill, Profile
from dragoman.model.errors import A2AError

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


def profile_of(whole: dict[str, Any], ours: Profile) -> Profile:
    """The profile of the agent whose card is `whole`, under the id of `ours`; `ours` if the card is too large.

    The profile always streams: the task is kept here, and its followers are told as it proceeds. It always takes text:
    input modes are a hint (FastA2A says `application/json` unless its author sets more, and takes text), and to refuse
    text here would make the agent useless.
    """
    try:
        card = card_reading.card(whole)
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


def untold_text(whole: dict[str, Any]) -> tuple[str, ...]:
    """The input modes of a card that names some, but none that accepts text; empty if the card accepts text."""
    try:
        modes = _modes(card_reading.card(whole).default_input_modes)
    except Unfit:
        return ()
    return () if _with_text(modes) == modes else modes


def _with_text(modes: tuple[str, ...]) -> tuple[str, ...]:
    """The input modes plus `text/plain`; none if there are none."""
    return modes if not modes or TEXTS.intersection(modes) else (*modes, "text/plain")


def _modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(MODES.get(mode, mode) for mode in modes[:MODES_MAX] if mode))
