"""One search for whatever an operator remembers: an id or a part of it, a context, an agent, a key, or words.

Invariant: pure values.
"""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman.admin.keys import KeyState
from dragoman.admin.question import Question
from dragoman.admin.tasks import SearchText, TaskLine


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words `q` to look for, with at most `limit` results of each kind. The case of letters counts in contexts."""

    q: SearchText
    limit: Annotated[int, Meta(ge=1, le=50)] = 8


class FoundConversation(Struct, frozen=True, kw_only=True):
    """A context of a principal with an agent."""

    context: str
    agent: str
    principal: str


class FoundAgent(Struct, frozen=True, kw_only=True):
    """An agent that is served."""

    id: str
    name: str


class FoundKey(Struct, frozen=True, kw_only=True):
    """A key by its name."""

    id: str
    name: str
    state: KeyState


class SearchResults(Struct, frozen=True, kw_only=True):
    """The results. Tasks come by their id, a part of it, their context, or the words of title or message: the one with
    that id first, then the newest made. `more`: there may be further tasks, also among older ones than were looked at.
    """

    tasks: tuple[TaskLine, ...]
    conversations: tuple[FoundConversation, ...]
    agents: tuple[FoundAgent, ...]
    keys: tuple[FoundKey, ...]
    more: bool


SEARCH = Question(
    name="search",
    of_teams=True,
    path="/search",
    summary="Search tasks by id, a part of it, context or words, conversations, agents, and keys by name.",
    given=SearchQuery,
    answer=SearchResults,
    action="search.list",
    shared=True,
)
