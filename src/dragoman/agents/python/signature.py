"""Checks whether a function can be a skill, and of which kind it is.

Invariant: a function that passes can be called with one positional argument, the context.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

Kind = Literal["async generator", "coroutine", "plain"]


def checked_kind(agent_id: str, function: Any) -> tuple[Kind, str, str]:
    """The kind of the function, its name, and its docstring (empty: none).

    Raises TypeError, which names the function and the fix, if it cannot be a skill.
    """
    if isinstance(function, staticmethod):
        function = function.__func__
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"agent {agent_id}: {function!r} cannot be a skill: put @agent.skill above a function")
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__name__", type(inner).__name__)
    kind = _kind(function)
    _check_signature(f"agent {agent_id}: skill {name}", function, kind)
    return kind, name, inspect.getdoc(inner) or "" if hasattr(inner, "__name__") else ""


def _kind(function: Callable[..., Any]) -> Kind:
    for candidate in (function, getattr(function, "__call__", None)):  # noqa: B004  an object may have an async one
        if inspect.isasyncgenfunction(candidate):
            return "async generator"
        if inspect.iscoroutinefunction(candidate):
            return "coroutine"
    return "plain"


def _check_signature(what: str, function: Callable[..., Any], kind: Kind) -> None:
    wanted = "SyncContext" if kind == "plain" else "Context"
    keyword = "def" if kind == "plain" else "async def"
    fix = f"write `{keyword} {what.rpartition(' ')[2]}(ctx: {wanted})`"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a builtin without a signature
        return
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    if not positional:
        raise TypeError(f"{what} takes no context: {fix}")
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if unmet := [name for name in needed if name != positional[0].name]:
        raise TypeError(f"{what} needs {', '.join(unmet)}, but gets only the context: {fix}")
    annotation = positional[0].annotation
    written = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    other = "Context" if kind == "plain" else "SyncContext"
    if written.rpartition(".")[2] == other:
        raise TypeError(f"{what} is {_in_words(kind)} and gets a {wanted}: {fix}")


def _in_words(kind: Kind) -> str:
    return (
        "a plain function that runs in a thread" if kind == "plain" else f"an {kind}" if kind[0] == "a" else f"a {kind}"
    )
