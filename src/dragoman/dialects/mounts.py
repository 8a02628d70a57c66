"""Mounts: under which paths an agent is reached, and which systems are served there.

Invariant: a table; whoever needs to know what a path speaks asks here.
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
    # What BeeOS and the official versions have in common there, only who makes a task can tell: a card promises what
    # holds for every call.
    Mount.TENANT: Served(("0.3",), ("1.0",)),
    Mount.PROTOAGENT: Served(("1.0", "0.3"), ()),
    Mount.EVOAI: Served(("0.3",), ()),
}


def mount_of(path: str) -> Mount:
    """The kind of the mount at `path`: `/`, `/agents/echo`, `/a2a` …"""
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
"""The only mount of a server that is one of the systems."""
