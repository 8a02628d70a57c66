"""The card for callers who have authenticated, as Evo AI writes it: that of 0.3, and `extended`.

Invariant: it says what is so here; what Evo AI's own server has in `extended` and nobody can tell here is left out.
"""

from typing import Any

from dragoman.dialects.v03.card import card as card_03
from dragoman.model.card import AgentCard

_NO_FILES = ("text/", "application/json")


def card(of: AgentCard) -> dict[str, Any]:
    """The card. `extended` has the agent's id, which is the end of its URL, and where it answers."""
    members = card_03(of)
    members.pop("signatures", None)  # of none that has what follows
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
