"""Where something is in a user's code, and what went wrong there, for a message of one line.

Invariant: a place is a line of the user's own, if there is one: not of an installed package, the standard library or
Dragoman.
"""

import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from typing import Any

FOREIGN = ("site-packages", "dist-packages")
"""The folders of installed packages."""


def function_place(function: Callable[..., Any]) -> str:
    """The name of a function and where it is: `open_pool (agents.py:12)`. The place is left out if it is no Python."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "func", inner)  # a partial
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({file_place(code.co_filename, code.co_firstlineno)})"


def error_place(error: BaseException) -> str:
    """The innermost line of the user's code that an exception came through: `agents.py:14`. Empty if there is none."""
    places = [file_place(file, line) for file, line in _lines(error) if _is_own(file)]
    return places[-1] if places else ""


def describe_error(error: BaseException) -> str:
    """The type and the text of an exception, in one line. A group of one exception is that exception."""
    text = " ".join(str(first_error(error)).split())
    kind = type(first_error(error)).__name__
    return f"{kind}: {text}" if text else kind


def first_error(error: BaseException) -> BaseException:
    """The exception itself, or the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def file_place(file: str, line: int) -> str:
    """A line of a file, by its path from the working directory if it is below that."""
    try:
        near = os.path.relpath(file)
    except ValueError:  # another drive of Windows
        near = file
    return f"{file if near.startswith(os.pardir) else near}:{line}"


def _lines(error: BaseException) -> Iterator[tuple[str, int]]:
    """The lines through which an exception came, those of its group first."""
    while True:
        for frame, line in traceback.walk_tb(error.__traceback__):
            if str(frame.f_globals.get("__name__")).partition(".")[0] != "dragoman":
                yield frame.f_code.co_filename, line
        if not isinstance(error, BaseExceptionGroup):
            return
        error = error.exceptions[0]


def _is_own(file: str) -> bool:
    if not os.path.isabs(file) or any(folder in file.split(os.sep) for folder in FOREIGN):
        return False  # code of compiled modules has a path that leads nowhere
    return not file.startswith(sysconfig.get_path("stdlib"))
