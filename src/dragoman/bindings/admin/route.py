"""A route of the admin API: one operation, with the structs that it reads and answers.

Invariant: pure values. The tables of routes are in `routes`, `remote_routes`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dragoman.bindings.remote import RemoteAgents
from dragoman.bindings.streams import Batches
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.administration import Administration
from dragoman.engine.admin.overview import ServerFacts

PREFIX = "/admin/v1"


class Asked(Struct, frozen=True):
    """A request as read: the ids in its path, its query or body, who sent it, and what the server knows.

    `position` is the last id that the reader of a stream has seen; None if it has seen none. `remote` are the agents
    elsewhere; None on a server without the console.
    """

    operator: Operator
    ids: Mapping[str, str]
    given: Any
    facts: ServerFacts
    position: str | None = None
    remote: RemoteAgents | None = None


class AdminRoute(Struct, frozen=True, kw_only=True):
    """One operation. `path` is below the prefix; a part in braces stands for an id. `given` is read from the body of a
    POST, otherwise from the query; None if the operation takes nothing. `optional`: the body may be left out.

    `act` answers with `answer`. `follow` opens a stream of `events`, by their names, for those who accept
    `text/event-stream`, or for all if there is no `act`.
    """

    name: str
    method: str
    path: str
    summary: str
    answer: type[Struct] | None = None
    act: Callable[[Administration, Asked], Awaitable[Struct]] | None = None
    given: type[Struct] | None = None
    optional: bool = False
    follow: Callable[[Administration, Asked], Awaitable[Batches]] | None = None
    events: Mapping[str, type[Struct]] = {}

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The ids in a path by their names; None for a path of another route."""
        pattern = self.path.strip("/").split("/")
        if len(pattern) != len(segments):
            return None
        ids: dict[str, str] = {}
        for expected, sent in zip(pattern, segments, strict=True):
            name, brace, suffix = expected.removeprefix("{").partition("}")
            if not brace:
                if expected != sent:
                    return None
            elif not sent.endswith(suffix) or len(sent) == len(suffix):
                return None
            else:
                ids[name] = sent.removesuffix(suffix) if suffix else sent
        return ids
