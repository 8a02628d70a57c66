"""The server: assembles a configuration and agents into a listening server, and shuts it down.

Invariant: objects are assembled only here. Everything else gets its dependencies passed in.
"""

from dragoman.server.entrance import MountedEntrance, check_mounted
from dragoman.server.errors import ReloadError, StartError
from dragoman.server.process import rare_collections, run
from dragoman.server.reloading import Loaded
from dragoman.server.running import ListeningServer, running, serving

__all__ = [
    "ListeningServer",
    "Loaded",
    "MountedEntrance",
    "ReloadError",
    "StartError",
    "check_mounted",
    "rare_collections",
    "run",
    "running",
    "serving",
]
