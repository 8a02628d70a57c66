"""The URLs of stores: `sqlite:///path`, `memory:` and `postgresql://host/database`.

Invariant: a URL that has a path is one that `store.open` has a driver for.
"""

import re
from pathlib import Path

ALLOWED = "use sqlite:///path (sqlite:////path from the root), postgresql://user@host/database or memory:"


def store_path(url: str) -> Path | None:
    """The file of a store url `sqlite:///path`; None for a url that names no file. An absolute path has four slashes.

    Raises ValueError for a url that names no store.
    """
    if url == "memory:" or re.fullmatch(r"postgres(ql)?://\S+", url):
        return None
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///") and "\0" not in url:
        return Path(url.removeprefix("sqlite:///"))
    raise ValueError(f"store url {url!r}: {ALLOWED}")


def is_shared(url: str) -> bool:
    """Whether several servers, each a replica, may use the store at `url` at the same time."""
    return url.startswith(("postgresql://", "postgres://"))


def hide_password(url: str) -> str:
    """The url as people and logs may see it: without a password."""
    shown = re.sub(r"(?<=password=)[^&#]*", "…", url)
    return re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1:…@", shown)
