"""Finds a program and its environment on this machine.

Invariant: nothing is started, and only the file system and the environment are read.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping

from dragoman.config import Program
from dragoman.engine.api import CheckResult

USUAL = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
"""The variables of the server's environment that every program gets, if they are set."""


def find_executable(name: str, environ: Mapping[str, str]) -> str | None:
    """The absolute path of the program with that name; None if no such file is executable.

    A name without a slash is looked up in PATH; a path is relative to the folder where the server was started.
    """
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    return None if found is None else os.path.abspath(found)


def build_environment(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: the usual variables, and the named ones."""
    return {name: environ[name] for name in (*USUAL, *names) if name in environ}


def check_program(program: Program, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check the program without starting it."""
    name = program.command[0]
    path = find_executable(name, environ)
    if path is not None:
        yield CheckResult(True, f"the program is {path}")
        yield from _interpreter(path, environ)
    elif os.path.sep in name and os.path.exists(name):
        yield CheckResult(False, f"{name} may not be executed", f"chmod +x {name}; or name its interpreter before it")
    else:
        where = "there is no file there" if os.path.sep in name else "it is not in PATH"
        yield CheckResult(False, f"the program {name} was not found: {where}", "install it, or write its path in `run`")
    if program.cwd is not None:
        there = os.path.isdir(program.cwd) and os.access(program.cwd, os.X_OK)
        what = f"the working directory {program.cwd} " + ("is there" if there else "is not there")
        yield CheckResult(there, what, "" if there else "make it, or write another `cwd`")
    for variable in program.env:
        there = variable in environ
        what = f"the environment has {'' if there else 'no '}{variable}"
        yield CheckResult(there, what, "" if there else f"set {variable}, or take it out of `env`")


def _interpreter(path: str, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check the interpreter in the first line of a script (execve(2)), and the one that `env` would find."""
    try:
        with open(path, "rb") as file:
            first = file.readline(4096)
    except OSError:  # the file may be executable, but not readable
        return
    if not first.startswith(b"#!"):
        return
    crlf = first.endswith(b"\r\n")
    words = [word for word in first[2:].rstrip(b"\n").decode(errors="replace").replace("\t", " ").split(" ") if word]
    if not words:
        return
    line = f"in the first line of {path}"
    if not os.access(words[0], os.X_OK):
        fix = "its lines end in CRLF: save it with LF" if crlf else "install it, or correct that line"
        yield CheckResult(False, f"the interpreter {words[0].strip()} {line} was not found", fix)
        return
    if os.path.basename(words[0]) == "env":
        named = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)
        if named is not None and shutil.which(named, path=environ.get("PATH", os.defpath)) is None:
            fix = "its lines end in CRLF: save it with LF" if crlf else "install it, or add its folder to PATH"
            yield CheckResult(False, f"the interpreter {named.strip()} {line} is not in PATH", fix)
            return
    yield CheckResult(True, f"its interpreter is {' '.join(words).strip()}")
