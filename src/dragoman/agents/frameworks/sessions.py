"""The sessions that frameworks keep for the conversations of callers.

Invariant: two callers never have the same session, whatever ids of contexts they choose.
"""

from urllib.parse import quote

from dragoman.agents.python.context import Context


def session_of(ctx: Context) -> str:
    """The name of the session in which this conversation goes on: whose it is, and its context."""
    return f"{quote(ctx.principal.id, safe='')}/{ctx.context_id}"
