"""Mounts: the paths under which an agent is reached, and the systems served there.

Invariant: this table alone says which dialects a path speaks.
"""

from enum import Enum

from msgspec import Struct


class Mount(Enum):
    """The kinds of mounts (DESIGN: dialects and mounts)."""

    ROOT = "/"
    AGENT = "/agents/{id}"
    TENANT = "/{id}"
    PROTOAGENT = "/a2a"
    EVOAI = "/api/v1/a2a/{id}"


class Served(Struct, frozen=True):
    """The official versions that a mount serves over JSON-RPC and over HTTP+JSON; its card lists them."""

    rpc: tuple[str, ...]
    rest: tuple[str, ...]


SERVED: dict[Mount, Served] = {
    Mount.ROOT: Served(("1.0", "0.3"), ("1.0", "0.3")),
    Mount.AGENT: Served(("1.0", "0.3"), ("1.0", "0.3")),
    # Some calls of BeeOS and of the official versions look the same here, and only the task's own dialect tells them
    # apart. A card promises only what holds for every call.
    Mount.TENANT: Served(("0.3",), ("1.0",)),
    Mount.PROTOAGENT: Served(("1.0", "0.3"), ()),
    Mount.EVOAI: Served(("0.3",), ()),
}


def mount_of(path: str) -> Mount:
    """Return the kind of the mount at `path`: `/`, `/agents/echo`, `/a2a` …"""
    if path == "/":
        return Mount.ROOT
    if path == "/a2a":
        return Mount.PROTOAGENT
    if path.startswith("/agents/"):
        return Mount.AGENT
    return Mount.EVOAI if path.startswith("/api/v1/a2a/") else Mount.TENANT


OF_PROFILE: dict[str, Mount] = {
    "beeos": Mount.TENANT,
    "kaos": Mount.ROOT,
    "evoai": Mount.EVOAI,
    "protoagent": Mount.PROTOAGENT,
}
"""The only mount of a server that runs as one of the systems."""
