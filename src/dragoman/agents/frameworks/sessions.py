"""The names of the sessions that frameworks keep for callers' conversations.

Invariant: two callers never have the same session, whatever context ids they choose.
"""

from urllib.parse import quote

from dragoman.agents.python.context import Context


def session_of(ctx: Context) -> str:
    """The name of this conversation's session: its caller and its context."""
    return f"{quote(ctx.principal.id, safe='')}/{ctx.context_id}"
