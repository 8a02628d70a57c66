"""The server: from a configuration and agents to something that listens, and back.

Invariant: only here are things put together; everything else is given what it needs.
"""

from dragoman.server.errors import ReloadError, StartError
from dragoman.server.process import run
from dragoman.server.reloading import Loaded
from dragoman.server.running import Listening, running, serving

__all__ = ["Listening", "Loaded", "ReloadError", "StartError", "run", "running", "serving"]
