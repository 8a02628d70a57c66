"""Rows of a table from the members of a class: their signatures and docstrings."""

import inspect


def member_rows(kind: type, prefix: str) -> tuple[tuple[str, ...], ...]:
    """Each public member of a class as it is called behind `prefix`, with its docstring."""
    public = ((name, member) for name, member in vars(kind).items() if not name.startswith("_"))
    return tuple((f"`{_call(f'{prefix}.{name}', member)}`", _meaning(member)) for name, member in public)


def _call(name: str, member: object) -> str:
    """How a member is written: with its parameters if it is called."""
    if not inspect.isfunction(member):
        return name
    parameters = [each for each in inspect.signature(member).parameters.values() if each.name != "self"]
    awaited = "await " if inspect.iscoroutinefunction(member) else ""
    return f"{awaited}{name}({', '.join(map(_parameter, parameters))})"


def _parameter(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is inspect.Parameter.empty else f"={parameter.default!r}"
    return f"{parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)}{default}"


def _meaning(member: object) -> str:
    return " ".join((inspect.getdoc(member) or "").split())
