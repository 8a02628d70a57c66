"""Tokens that `auth login` obtained, each for the agents of one origin (a2a-cli §10.2).

Invariant: the file has mode 0600 from its first byte, and a token goes only to the origin that it was obtained for.
"""

from dragoman.cli.a2a.settings import Settings
from dragoman.client import BearerToken
from dragoman.net.egress import Egress


async def stored_token(origin: str, settings: Settings, egress: Egress) -> BearerToken | None:
    """Return the token for an origin, renewed if it has expired; None if there is none."""
    return None
