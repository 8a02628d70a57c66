"""How many packages an installation consists of, read from the metadata of what is installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from servers import Broken, Kind

SDK_ROOTS = ("a2a-sdk[http-server]", "uvicorn", "httptools", "uvloop")


def closure(roots: tuple[str, ...], installed: Mapping[NormalizedName, Distribution]) -> set[str]:
    """The names of all packages that the roots need, themselves included, each extra followed only where asked for."""
    followed: set[tuple[str, str]] = set()
    todo = [Requirement(root) for root in roots]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if name not in installed:
            raise Broken(f"{name} is not installed: the count would be wrong")
        for extra in {"", *wanted.extras}:
            if (name, extra) in followed:
                continue
            followed.add((name, extra))
            for line in installed[name].requires or []:
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    todo.append(needed)
    return {name for name, _ in followed}


def packages(kind: Kind) -> int:
    """Packages of the core install of that server, in the environment that its command belongs to."""
    environment = kind.program.parent.parent
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = [path for path in environment.glob("lib/python*/site-packages") if path.parent.name == version]
    site = site or list(environment.glob("lib/python*/site-packages"))
    installed = {canonicalize_name(found.name): found for found in distributions(path=[str(path) for path in site])}
    roots = SDK_ROOTS if kind.name.startswith("sdk") else ("dragoman",)
    return len(closure(roots, installed))
