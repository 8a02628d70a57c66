"""The declaration of a lifespan: which functions can be one.

Invariant: a function that can never be entered is refused when it is declared, with the fix.
"""

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct

from dragoman.agents.user_code import function_place
from dragoman.engine.api import Runner

SPELLED = "write @asynccontextmanager above an `async def` that yields once"


class FunctionLifespan(Struct, frozen=True, eq=False):
    """The lifespan that a function makes. See `engine.api.Lifespan`."""

    subject: Callable[..., AbstractAsyncContextManager[Any]]
    name: str
    takes_agent: bool = False

    def manager(self, agent: Runner) -> AbstractAsyncContextManager[Any]:
        """Call the function, with the agent if it takes it."""
        return self.subject(agent) if self.takes_agent else self.subject()


def read_lifespan(what: str, function: Any) -> FunctionLifespan:
    """The lifespan that a function makes. `what` begins the message of an error: `agent weather: lifespan`.

    The function takes nothing, or the agent. Raises TypeError, which names the fix.
    """
    if hasattr(function, "__aenter__") and not isinstance(function, type):
        raise TypeError(f"{what}: is entered more than once: give the function that makes it, without calling it")
    if not callable(function):
        raise TypeError(f"{what}: {function!r} is no function: {SPELLED}")
    inner = inspect.unwrap(function)
    if inner is function and (inspect.isasyncgenfunction(inner) or inspect.iscoroutinefunction(inner)):
        raise TypeError(f"{what} {function.__name__}: is no context manager: {SPELLED}")
    if inspect.isgeneratorfunction(inner):
        raise TypeError(f"{what} {function.__name__}: is not asynchronous: {SPELLED}")
    return FunctionLifespan(function, _name(function), takes_agent=_takes_agent(what, function))


def required_parameters(function: Any) -> list[inspect.Parameter]:
    """The parameters that have to be given; none for a builtin without a signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    return [each for each in parameters if each.default is each.empty and each.kind not in _VARIABLE]


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _name(function: Any) -> str:
    place = function_place(function)
    return f"its {place}" if place.startswith("lifespan ") else f"its lifespan {place}"


def _takes_agent(what: str, function: Any) -> bool:
    needed = required_parameters(function)
    named = [each.name for each in needed if each.kind is each.KEYWORD_ONLY] or [each.name for each in needed[1:]]
    if named:
        name = getattr(function, "__name__", "")
        raise TypeError(f"{what} {name}: needs {', '.join(named)}: it takes nothing, or the agent")
    return bool(needed)
