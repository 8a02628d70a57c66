"""The figures that are read when somebody looks: of the store, of streams, of the cluster.

Invariant: values. Ages are in seconds. A figure that is not known, because the store does not answer, is None or empty.
"""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.telemetry.histogram import Histogram


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


class OpenTaskFigures(Struct, frozen=True):
    """How many tasks of an agent are in a phase before the end (`model.task.Phase`), and how old the oldest of these
    statuses is."""

    agent: str
    state: str
    count: int
    oldest_s: float


class Gauges(Struct, frozen=True, kw_only=True):
    """`writes` are those that the store was given, and those that failed. `readers_cut` counts slow readers.

    `job_failures` counts by job, zeros included. `connections` are those of HTTP; `connections_refused` counts those
    that were not served, by reason. `sweep_behind_s` is how long what should be deleted has been overdue, by kind.
    `breakers` are the states of the circuit breakers before agents of other servers, by agent: `closed` (calls go out),
    `open`, `half-open`. `switches` has the state of each agent's switch: `enabled`, `draining`, `disabled`.
    """

    streams: int
    readers_cut: int
    writes: tuple[int, int]
    commits: Histogram
    store_bytes: int | None = None
    open_tasks: tuple[OpenTaskFigures, ...] = ()
    cluster: ClusterFigures | None = None
    job_failures: Mapping[str, int] = {}
    connections: int = 0
    connections_refused: Mapping[str, int] = {}
    sweep_behind_s: Mapping[str, float] = {}
    breakers: Mapping[str, str] = {}
    switches: Mapping[str, str] = {}
