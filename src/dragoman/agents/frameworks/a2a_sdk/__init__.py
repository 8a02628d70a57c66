"""Executors of the official A2A SDK for Python (`a2a-sdk` 1.x and 0.3) behind a card.

`agent` is the runner, `executor_run` one task's work with an executor. `turn` is the value of one call of it. `sdk`,
with `v1` or `v03`, turns it into the SDK's own types, and its events back into ours.

Invariant: an executor cannot tell that another server than the SDK's calls it, as long as it keeps to the contract of
`AgentExecutor`. The types are those of the executor's own SDK, whichever release that is.
"""

import inspect
from collections.abc import Mapping
from traceback import extract_tb
from typing import Any

from dragoman.agents.frameworks.a2a_sdk.agent import ExecutorAgent
from dragoman.agents.frameworks.a2a_sdk.card import choose_card, profile_without_card
from dragoman.agents.frameworks.a2a_sdk.sdk import find_sdk
from dragoman.agents.remote.card import profile_of


def adapts(value: object) -> bool:
    """Whether the object is an executor, or a class of executors that is not abstract."""
    kind = value if isinstance(value, type) else type(value)
    calls = (getattr(kind, name, None) for name in ("execute", "cancel"))
    return all(map(callable, calls)) and not inspect.isabstract(kind)


def name_of(value: Any) -> str:
    """Empty: the name is on the card, which is apart from the executor and may stand for several of them."""
    return ""


def adapt(value: Any, agent_id: str) -> ExecutorAgent:
    """Put the executor behind a card, which says what its class does. A class is called without arguments.

    Raises ValueError if it needs some, or if its `__init__` raises.
    """
    executor = _make(value) if isinstance(value, type) else value
    return ExecutorAgent(executor, find_sdk(), profile_without_card(executor, agent_id))


def introduce(agent: ExecutorAgent, beside: Mapping[str, object]) -> None:
    """Let the card say what the AgentCard among the names `beside` says. Raises ValueError if several fit."""
    sdk = find_sdk()
    card = choose_card(beside, sdk)
    if card is not None:
        agent.profile = profile_of(sdk.card_members(card), agent.profile)


def _make(kind: type) -> Any:
    needed = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise ValueError(
            f"{kind.__name__} needs {', '.join(needed)}: name an object of it, executor = {kind.__name__}(…)"
        )
    try:
        return kind()
    except (Exception, SystemExit) as error:  # a user's class may raise anything
        places = [each for each in extract_tb(error.__traceback__) if not each.filename.startswith("<frozen ")]
        place = f"{places[-1].filename}:{places[-1].lineno}"
        raise ValueError(f"{kind.__name__}() failed with {type(error).__name__}: {error} ({place})") from error
