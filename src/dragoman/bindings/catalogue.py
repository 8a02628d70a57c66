"""The catalogue: search of the agents by what they can do.

Invariant: pure. It shows and searches only what the public cards show.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dragoman.dialects import cards
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.errors import InvalidParams

LIMIT = 100
"""How many agents a page has by default."""

LIMIT_MAX = 1000
WORDS_MAX = 32
"""How many words a search may have; nobody types more than that."""


class Search(Struct, frozen=True):
    """A search: one skill must have all of `skill`, the agent and its skills all of `words`; then the page."""

    skill: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    limit: int = LIMIT
    offset: int = 0


def search_of(query: Mapping[str, str]) -> Search:
    """Parse the query of `GET /agents`. Raises InvalidParams."""
    return Search(
        _words(query, "skill"), _words(query, "q"), _number(query, "limit", LIMIT, 1), _number(query, "offset", 0, 0)
    )


def matching(profiles: Iterable[Profile], search: Search) -> list[Profile]:
    """The agents that match the search, in their original order."""
    return [profile for profile in profiles if _fits(profile, search)]


def entry(base: str, profile: Profile) -> dict[str, object]:
    """An agent's entry in the catalogue."""
    url = f"{base}/agents/{profile.id}"
    return {
        "id": profile.id,
        "name": profile.name,
        "description": profile.description,
        "version": profile.version,
        "url": url,
        "cardUrl": url + cards.WELL_KNOWN[0],
        "cardUrls": [url + path for path in cards.WELL_KNOWN],
        "skills": [{"id": skill.id, "name": skill.name, "tags": skill.tags} for skill in profile.skills],
    }


def _fits(profile: Profile, search: Search) -> bool:
    skills = [_search_text(skill) for skill in profile.skills]
    if search.skill and not any(all(word in said for word in search.skill) for said in skills):
        return False
    said = "\n".join((profile.id, profile.name, profile.description)).casefold()
    return all(word in said or any(word in skill for skill in skills) for word in search.words)


def _search_text(skill: AgentSkill) -> str:
    return "\n".join((skill.id, skill.name, skill.description, *skill.tags)).casefold()


def _words(query: Mapping[str, str], field: str) -> tuple[str, ...]:
    words = tuple(query.get(field, "").casefold().split())
    if len(words) > WORDS_MAX:
        raise InvalidParams(field, f"at most {WORDS_MAX} words")
    return words


def _number(query: Mapping[str, str], field: str, default: int, least: int) -> int:
    given = query.get(field)
    if given is None:
        return default
    most = LIMIT_MAX if field == "limit" else 1_000_000
    number = int(given) if given.isascii() and given.isdecimal() and len(given) < 8 else -1
    if not least <= number <= most:
        raise InvalidParams(field, f"must be a number from {least} to {most}")
    return number
