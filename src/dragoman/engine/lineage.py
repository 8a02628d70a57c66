"""The lineage of a task, which is the agents that it came through, and the ids of delegated tasks.

Invariant: pure. The id of a delegated task depends on its parent and its number alone.
"""

import re
from hashlib import blake2b
from typing import Any
from uuid import UUID

from dragoman.dialects.extensions import LINEAGE
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.task import TaskHead

DEPTH_MAX = 8
"""How many agents a task may have come through."""

NAME_CHARACTERS = 200
"""Most characters kept of a name that a caller gives."""

TIMED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def server_name(holder: str) -> str:
    """The name of this server in lineages. It reveals nothing of the machine."""
    return blake2b(holder.encode(), digest_size=6).hexdigest()


def read_lineage(metadata: dict[str, Any], server: str) -> tuple[str, ...]:
    """Read the lineage that a message came with: agents of this server by id, others with their server's name."""
    said = metadata.get(LINEAGE)
    if not isinstance(said, list):
        return ()
    names = (name[:NAME_CHARACTERS].removeprefix(f"{server}/") for name in said if isinstance(name, str) and name)
    return tuple(name for name, _ in zip(names, range(DEPTH_MAX + 1), strict=False))


def check_lineage(lineage: tuple[str, ...], agent: str) -> None:
    """Raises UnsupportedOperation, showing the route, for a task of `agent` that went in a circle or too far."""
    way = " → ".join((*lineage, agent))
    if agent in lineage:
        raise UnsupportedOperation(f"a delegation that goes round: {way}")
    if len(lineage) > DEPTH_MAX:
        raise UnsupportedOperation(f"a delegation through more than {DEPTH_MAX} agents: {way}")


def child_of(parent_id: str, number: int) -> str:
    """The id of the task of a delegation. It depends on the parent's id and the number alone.

    It is a UUID of version 7 (RFC 9562) with the time of the parent's id, if that has one.
    """
    hashed = bytearray(blake2b(f"{parent_id}\0{number}".encode(), digest_size=16).digest())
    if TIMED.fullmatch(parent_id):
        hashed[:6] = UUID(parent_id).bytes[:6]
    hashed[6] = hashed[6] & 0x0F | 0x70
    hashed[8] = hashed[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(hashed)))


def full_lineage(head: TaskHead, server: str) -> tuple[str, ...]:
    """The lineage that the agent of a task sends to other servers, in the form of LINEAGE."""
    return tuple(name if "/" in name else f"{server}/{name}" for name in (*head.lineage, head.agent))
