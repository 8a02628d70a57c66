"""How the server is to run: settings from the file, then the environment, then the flags.

Invariant: nothing here imports anything else of Dragoman.
"""

from dragoman.config.agents import RESERVED_AGENT_IDS, WORKER, AgentEntry, AgentProvider, AgentSkill, agent_id_fault
from dragoman.config.errors import ConfigError
from dragoman.config.kinds import Kind, store_path
from dragoman.config.load import FILE, load, loopback
from dragoman.config.settings import Config, Setting, settings, spelled

__all__ = [
    "FILE",
    "RESERVED_AGENT_IDS",
    "WORKER",
    "AgentEntry",
    "AgentProvider",
    "AgentSkill",
    "Config",
    "ConfigError",
    "Kind",
    "Setting",
    "agent_id_fault",
    "load",
    "loopback",
    "settings",
    "spelled",
    "store_path",
]
