"""The rules for several replicas of one store, checked before anything is opened.

Invariant: a setting that cannot work with the store, or with another setting, is refused at start, with the fix.
"""

from dragoman.config import Config
from dragoman.server.errors import StartError
from dragoman.store.path import hide_password, is_shared

SHARE = "store = 'postgresql://user@host/database'"
BEATS_PER_LEASE = 3
"""A lease survives two lost heartbeats."""


def check_replicas(config: Config) -> None:
    """Raises StartError for settings of replicas that contradict each other or the store."""
    if config.replica_beat_s > config.replica_lease_s / BEATS_PER_LEASE:
        raise StartError(
            f"replica_beat_s = {config.replica_beat_s:g} is more than a third of replica_lease_s = "
            f"{config.replica_lease_s:g}, so that one late heartbeat could end the lease: set replica_beat_s to "
            f"{config.replica_lease_s / BEATS_PER_LEASE:.3g} or less"
        )
    if config.bus_listen_url is not None and config.bus not in ("auto", "postgres"):
        raise StartError(
            f"bus_listen_url is for bus = 'postgres', and bus is {hide_password(config.bus)!r}: remove one"
        )
    if is_shared(config.store):
        return
    own = f"the store {config.store} has one server only: set {SHARE}"
    if config.processes > 1:
        raise StartError(f"processes = {config.processes} runs several replicas, and {own}, or remove processes")
    if config.bus not in ("auto", "none") or config.bus_listen_url is not None:
        name = "bus" if config.bus not in ("auto", "none") else "bus_listen_url"
        raise StartError(f"{name} is for replicas, and {own}, or remove {name}")
