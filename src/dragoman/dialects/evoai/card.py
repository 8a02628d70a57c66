"""Evo AI's card for authenticated callers: that of 0.3, with `extended`.

Invariant: the card states only facts of this server; members that Evo AI's own server has in `extended` and that are
unknown here are left out.
"""

from typing import Any

from dragoman.dialects.v03.card import card as card_03
from dragoman.model.card import AgentCard

_NO_FILES = ("text/", "application/json")


def card(of: AgentCard) -> dict[str, Any]:
    """Build the card. `extended` has the agent's id, which is the end of its URL, and its endpoint."""
    members = card_03(of)
    members.pop("signatures", None)  # they do not cover the members that follow
    url = members["url"].rstrip("/")
    members["capabilities"] |= {
        "multiTurnConversations": True,
        "fileProcessing": any(not mode.startswith(_NO_FILES) for mode in of.default_input_modes),
    }
    members["extended"] = {
        "agent_id": url.rpartition("/")[2],
        "available_endpoints": [url, f"{url}/.well-known/agent.json"],
    }
    return members
