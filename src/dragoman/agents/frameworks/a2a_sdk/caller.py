"""The caller of a turn, in the SDK's types, which are the same in all releases.

Invariant: a caller is authenticated exactly if the server asks its callers who they are.
"""

import importlib
from functools import cache
from typing import Any

from dragoman.agents.frameworks.a2a_sdk.turn import ExecutorTurn


def make_call_context(turn: ExecutorTurn) -> Any:
    """Make the ServerCallContext. Its `state` is a new dict for each call, with `headers`, as the SDK's own server has.

    Only those are there that the agent lists. If they are lost, there are none, and `headers_lost` is True.
    """
    users = importlib.import_module("a2a.auth.user")
    user = users.UnauthenticatedUser() if turn.caller is None else _caller_type()(turn.caller)
    contexts = importlib.import_module("a2a.server.context")
    state: dict[str, Any] = {"headers": dict(turn.headers or {})}
    if turn.headers is None:
        state["headers_lost"] = True
    return contexts.ServerCallContext(user=user, state=state, requested_extensions=set(turn.extensions))


@cache
def _caller_type() -> Any:
    """Make the class of authenticated callers: ServerCallContext accepts only the SDK's own User."""

    def remember(self: Any, name: str) -> None:
        self.name = name

    members = {
        "__init__": remember,
        "is_authenticated": property(lambda _: True),
        "user_name": property(lambda self: self.name),
    }
    return type("Caller", (importlib.import_module("a2a.auth.user").User,), members)
