"""The figures of a cluster as one of its replicas sees them: for `/ready`, for `/metrics`.

Invariant: values. Ages are in seconds; what is not known is None.
"""

from msgspec import Struct


class ReplicaFigures(Struct, frozen=True):
    """A replica that is alive. `heartbeat_age_s` is how long ago its last heartbeat was."""

    id: str
    address: str
    agents: tuple[str, ...]
    heartbeat_age_s: float | None = None


class BusStatus(Struct, frozen=True, kw_only=True):
    """How hints travel. `lag_s` is how long the last one to this replica itself took, None before the first.

    `others` is how many other replicas were heard in the last seconds: fewer than are alive if the bus is in parts.
    """

    name: str
    healthy: bool
    others: int
    lag_s: float | None
    published: int
    received: int
    refused: int
    dropped: int


class ClusterFigures(Struct, frozen=True, kw_only=True):
    """This replica and the others.

    `heartbeat_age_s` is how long ago the store answered this replica's last heartbeat. `taken_over` counts the tasks
    of dead replicas that this one went on with. `replicas` are those alive, as last read, None before that.
    """

    id: str
    heartbeat_age_s: float | None
    taken_over: int
    bus: BusStatus
    replicas: tuple[ReplicaFigures, ...] | None
