"""Lineage: through which agents a task has come, so that none of them is asked again for what it has asked for.

Invariant: pure. What a caller says of it can only make a lineage longer: it is refused the sooner.
"""

import re
from hashlib import blake2b
from typing import Any
from uuid import UUID

from msgspec import Struct

from dragoman.dialects.extensions import LINEAGE
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.task import TaskHead

DEPTH_MAX = 8
"""How many agents a task may have come through."""

NAME_CHARACTERS = 200
"""How much is kept of a name that a caller gives."""

TIMED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Origin(Struct, frozen=True):
    """What a task is made with that an agent delegates: its own id, and of its head what an agent says, not a caller.

    See `model.task.TaskHead`.
    """

    task_id: str
    parent: str
    lineage: tuple[str, ...]
    detached: bool
    deadline_ms: int | None


def server_name(holder: str) -> str:
    """What this server is called among others in lineages; it says nothing of the machine."""
    return blake2b(holder.encode(), digest_size=6).hexdigest()


def heard(metadata: dict[str, Any] | None, server: str) -> tuple[str, ...]:
    """The lineage that a message came with: our own agents by their ids, those of others as they are called there."""
    said = (metadata or {}).get(LINEAGE)
    if not isinstance(said, list):
        return ()
    names = (name[:NAME_CHARACTERS].removeprefix(f"{server}/") for name in said if isinstance(name, str) and name)
    return tuple(name for name, _ in zip(names, range(DEPTH_MAX + 1), strict=False))


def told(head: TaskHead, server: str) -> tuple[str, ...]:
    """The lineage of what the agent of a task asks of other servers: as LINEAGE has it."""
    return tuple(name if "/" in name else f"{server}/{name}" for name in (*head.lineage, head.agent))


def check(lineage: tuple[str, ...], agent: str) -> None:
    """Raises UnsupportedOperation, showing the way, for a task of `agent` that went round, or too far."""
    if not lineage:
        return
    way = " → ".join((*lineage, agent))
    if agent in lineage:
        raise UnsupportedOperation(f"a delegation that goes round: {way}")
    if len(lineage) > DEPTH_MAX:
        raise UnsupportedOperation(f"a delegation through more than {DEPTH_MAX} agents: {way}")


def child_of(parent_id: str, number: int) -> str:
    """The id of the task that is the delegation of that number: the same however often it is asked for.

    It is a UUID of version 7 (RFC 9562) with the time of the parent, if that has one.
    """
    hashed = bytearray(blake2b(f"{parent_id}\0{number}".encode(), digest_size=16).digest())
    if TIMED.fullmatch(parent_id):
        hashed[:6] = UUID(parent_id).bytes[:6]
    hashed[6] = hashed[6] & 0x0F | 0x70
    hashed[8] = hashed[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(hashed)))
