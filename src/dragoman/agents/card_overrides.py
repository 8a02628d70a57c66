"""The fields of a card that an agent's table of the configuration overrides.

Invariant: a field that the table leaves out stays as it is.
"""

from typing import Any

from msgspec.structs import replace

from dragoman.config import AgentEntry
from dragoman.model.card import VERSIONS, AgentProvider, AgentSkill, Profile

CARD_FIELDS = ("name", "description", "version", "icon_url", "documentation_url", "input_modes", "output_modes")
"""The fields that are taken as they stand."""


def override_card(profile: Profile, entry: AgentEntry) -> Profile:
    """The profile under the id of the entry, with its fields on top. It may add skills."""
    fields: dict[str, Any] = {name: value for name in CARD_FIELDS if (value := getattr(entry, name)) is not None}
    if entry.versions is not None:
        fields["versions"] = entry_versions(entry)
    if entry.provider is not None:
        fields["provider"] = AgentProvider(url=entry.provider.url, organization=entry.provider.organization)
    if entry.push is not None:
        fields["pushes"] = entry.push
    skills = {skill.id: skill for skill in (*profile.skills, *profile.extended_skills)}
    extended = {skill.id for skill in profile.extended_skills}
    for skill in entry.skills:
        known = skills.get(skill.id) or AgentSkill(id=skill.id, name=skill.id, description=skill.id, tags=())
        skills[skill.id] = override_skill(known, skill)
        if skill.extended is not None:
            (extended.add if skill.extended else extended.discard)(skill.id)
    fields["skills"] = tuple(skill for skill in skills.values() if skill.id not in extended)
    fields["extended_skills"] = tuple(skill for skill in skills.values() if skill.id in extended)
    return replace(profile, id=entry.id, **fields)


def override_skill(skill: AgentSkill, entry: Any) -> AgentSkill:
    """The skill with the fields of its table on top."""
    fields = {
        name: value
        for name in AgentSkill.__struct_fields__
        if name in entry.__struct_fields__ and (value := getattr(entry, name)) is not None
    }
    return replace(skill, **fields)


def entry_versions(entry: AgentEntry) -> tuple[str, ...]:
    """The versions of A2A that the agent speaks, in their order: all, unless the table names some."""
    return tuple(version for version in VERSIONS if entry.versions is None or version in entry.versions)
