"""Another agent's card as a profile of ours: what it says of itself, without where it lives and who may call it.

Invariant: pure and total; what the card does not say, or says wrongly, is what `ours` says.
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
"""How much is taken of a stranger's lists."""

BYTES_MAX, DEPTH_MAX = 1024 * 1024, 64
"""How large and how deeply nested a card may be that is taken over: whoever asks for ours is given it, signed."""

MODES = {
    "text": "text/plain",
    "data": "application/json",
    "json": "application/json",
    "file": "*/*",
    "image": "image/*",
}
"""What cards before 0.2 call the kinds of parts."""

TEXTS = frozenset({"text/plain", "text/*", "*/*", "*"})
"""Modes that take text."""


def profile_of(whole: dict[str, Any], ours: Profile) -> Profile:
    """The profile of the agent whose card is `whole`, under the id of `ours`; `ours` if the card is immoderate.

    It streams in any case: the task is kept here, and whoever follows it is told as it goes on. It takes text in any
    case: input modes are a hint (FastA2A says `application/json` unless its author sets more, and takes text), and
    refusing text here would make the agent useless.
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
    return profile if _moderate(profile) else ours


def _moderate(profile: Profile) -> bool:
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
    """The input modes of a card that names some, and none that takes text; empty if it takes text."""
    try:
        modes = _modes(card_reading.card(whole).default_input_modes)
    except Unfit:
        return ()
    return () if _with_text(modes) == modes else modes


def _with_text(modes: tuple[str, ...]) -> tuple[str, ...]:
    """The input modes and `text/plain`; none if there are none."""
    return modes if not modes or TEXTS.intersection(modes) else (*modes, "text/plain")


def _modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(MODES.get(mode, mode) for mode in modes[:MODES_MAX] if mode))
