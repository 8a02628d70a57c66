"""The card of an executor: the AgentCard of its author, or what its class says.

Invariant: addresses, capabilities and access rules are the server's own, whatever the AgentCard says about them.
"""

from collections.abc import Mapping
from typing import Any

from dragoman.agents.frameworks.a2a_sdk.sdk import Sdk
from dragoman.agents.frameworks.runs import SKILL, shorten
from dragoman.model.card import AgentSkill, Profile

PREFERRED = "agent_card"
"""The name that decides among several cards; it is the one of the SDK's own arguments."""


def choose_card(beside: Mapping[str, object], sdk: Sdk) -> object | None:
    """Return the AgentCard among the names of a module; None if there is none. Raises ValueError if several fit."""
    cards = {name: value for name, value in beside.items() if sdk.is_card(value)}
    if PREFERRED in cards:
        return cards[PREFERRED]
    different = {id(card): card for card in cards.values()}
    if len(different) > 1:
        raise ValueError(f"its module has several cards, {', '.join(cards)}: name the right one {PREFERRED}")
    return next(iter(cards.values()), None)


def profile_without_card(executor: Any, agent_id: str) -> Profile:
    """Make the profile that an executor's class describes, with one skill."""
    description = shorten(type(executor).__doc__ or "") or agent_id
    skill = AgentSkill(id=SKILL, name=agent_id, description=description, tags=())
    return Profile(id=agent_id, name=agent_id, description=description, version="1.0.0", skills=(skill,))
