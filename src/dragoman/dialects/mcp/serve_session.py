"""A session of MCP over HTTP: its id holds its whole state.

Invariant: no server remembers a session, so any server can answer for it. A caller with a forged session id deceives
only itself: the principal decides who owns a task.
"""

import re
from uuid import UUID

from msgspec import Struct

from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.serve import Greeting
from dragoman.model.errors import NotFound

ASKS, ASKS_NOT = "ask", "tell"

_ID = re.compile(r"(?P<key>[0-9a-f-]{36})\.(?P<version>[0-9-]{10})\.(?P<manner>ask|tell)", re.ASCII)


class Session(Struct, frozen=True):
    """The agreed terms of a session. `key` is empty without a session: such calls cannot be told apart."""

    key: str = ""
    version: str = ""
    elicits: bool = False


def opened(key: str, greeting: Greeting) -> str:
    """Build the id of a new session; `key` is a fresh UUID."""
    return f"{key}.{greeting.version}.{ASKS if greeting.elicits else ASKS_NOT}"


def session(session_id: str | None) -> Session:
    """Return the session of a request, if it names one. Raises NotFound for an id that no server issues."""
    if session_id is None:
        return Session()
    found = _ID.fullmatch(session_id)
    try:
        if found is not None and found["version"] in names.VERSIONS and str(UUID(found["key"])) == found["key"]:
            return Session(found["key"], found["version"], found["manner"] == ASKS)
    except ValueError:
        pass  # digits and hyphens, but not a UUID
    raise NotFound(f"{names.SESSION_HEADER} is not of this server: begin a new session with initialize, without one")
