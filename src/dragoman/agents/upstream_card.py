"""Another agent's card as a profile of ours: what it says of itself, without where it lives and who may call it.

Invariant: pure and total; what the card does not say, or says wrongly, is what `ours` says.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from dragoman.dialects import card_reading
from dragoman.dialects.heard import Unfit
from dragoman.model.card import AgentCard, AgentSkill, Profile

SKILLS_MAX = 200
MODES_MAX = 100
"""How much is taken of a stranger's lists."""

MODES = {
    "text": "text/plain",
    "data": "application/json",
    "json": "application/json",
    "file": "*/*",
    "image": "image/*",
}
"""What cards before 0.2 call the kinds of parts."""


def profile_of(whole: dict[str, Any], ours: Profile) -> Profile:
    """The profile of the agent whose card is `whole`, under the id of `ours`.

    It streams in any case: the task is kept here, and whoever follows it is told as it goes on.
    """
    try:
        card = card_reading.card(whole)
    except Unfit:
        return ours
    skills = tuple(_skills(card)) or ours.skills
    return replace(
        ours,
        name=card.name or ours.name,
        description=card.description or ours.description,
        version=card.version or ours.version,
        skills=skills,
        input_modes=_modes(card.default_input_modes) or ours.input_modes,
        output_modes=_modes(card.default_output_modes) or ours.output_modes,
        provider=card.provider or ours.provider,
        documentation_url=card.documentation_url or ours.documentation_url,
        icon_url=card.icon_url or ours.icon_url,
        extensions=card.capabilities.extensions or ours.extensions,
    )


def _skills(card: AgentCard) -> Iterable[AgentSkill]:
    seen: set[str] = set()
    for skill in card.skills[:SKILLS_MAX]:
        if skill.id and skill.id not in seen:
            seen.add(skill.id)
            yield replace(
                skill, input_modes=_modes(skill.input_modes) or (), output_modes=_modes(skill.output_modes) or ()
            )


def _modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(MODES.get(mode, mode) for mode in modes[:MODES_MAX] if mode))
