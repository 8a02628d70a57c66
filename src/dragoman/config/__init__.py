"""The configuration of the server: settings from the file, then the environment, then the flags.

Invariant: pure values. It imports only the table of systems and the URLs of stores from the rest of Dragoman.
"""

from dragoman.config.agents import (
    DEADLINE_S_MAX,
    DEADLINE_S_MIN,
    DIRECT_WAIT_S_MAX,
    DIRECT_WAIT_S_MIN,
    LIFESPAN_TIMEOUT_S_MAX,
    LIFESPAN_TIMEOUT_S_MIN,
    RESERVED_AGENT_IDS,
    WORKER,
    AgentEntry,
    ProviderEntry,
    SkillEntry,
    agent_id_fault,
    steps_version_fault,
)
from dragoman.config.errors import ConfigError
from dragoman.config.headers import check_header
from dragoman.config.load import (
    FILE,
    FLAG_SOURCE,
    ConfigParts,
    FaultyEntry,
    load,
    load_parts,
    load_table,
    loopback,
    read_secret,
)
from dragoman.config.models import OPENAI, Model
from dragoman.config.pools import Affinity, AgentPool, AgentPoolMember, Strategy
from dragoman.config.prices import Price, Prices
from dragoman.config.programs import COMMAND, Program
from dragoman.config.settings import Config, Setting, SettingKind, settings, spell
from dragoman.config.teams import TeamEntry, TeamLimits
from dragoman.config.upstreams import A2A, Upstream, UpstreamCredentials

__all__ = [
    "A2A",
    "COMMAND",
    "DEADLINE_S_MAX",
    "DEADLINE_S_MIN",
    "DIRECT_WAIT_S_MAX",
    "DIRECT_WAIT_S_MIN",
    "FILE",
    "FLAG_SOURCE",
    "LIFESPAN_TIMEOUT_S_MAX",
    "LIFESPAN_TIMEOUT_S_MIN",
    "OPENAI",
    "RESERVED_AGENT_IDS",
    "WORKER",
    "Affinity",
    "AgentEntry",
    "AgentPool",
    "AgentPoolMember",
    "Config",
    "ConfigError",
    "ConfigParts",
    "FaultyEntry",
    "Model",
    "Price",
    "Prices",
    "Program",
    "ProviderEntry",
    "Setting",
    "SettingKind",
    "SkillEntry",
    "Strategy",
    "TeamEntry",
    "TeamLimits",
    "Upstream",
    "UpstreamCredentials",
    "agent_id_fault",
    "check_header",
    "load",
    "load_parts",
    "load_table",
    "loopback",
    "read_secret",
    "settings",
    "spell",
    "steps_version_fault",
]
