"""The figures that are read when somebody scrapes: of the store, of streams, of the cluster.

Invariant: values. A figure that is not known, because the store does not answer, is None or empty.
"""

from msgspec import Struct

from dragoman.telemetry.cluster import ClusterFigures
from dragoman.telemetry.histogram import Histogram


class OpenTaskFigures(Struct, frozen=True):
    """How many tasks of an agent are `queued`, `working` or `interrupted`, and the age of the oldest such status."""

    agent: str
    state: str
    count: int
    oldest_s: float


class Gauges(Struct, frozen=True, kw_only=True):
    """`writes` are those that the store was given, and those that failed. `readers_cut` counts slow readers."""

    streams: int
    readers_cut: int
    writes: tuple[int, int]
    commits: Histogram
    store_bytes: int | None = None
    open_tasks: tuple[OpenTaskFigures, ...] = ()
    cluster: ClusterFigures | None = None
