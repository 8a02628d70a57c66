"""From the file, then the environment, then the flags, to a `Config`.

Invariant: whatever is in them, the result is a `Config` or a `ConfigError`.
"""

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.config.agents import agent_entries
from dragoman.config.errors import ConfigError, check_keys
from dragoman.config.profiles import SYSTEMS, variables
from dragoman.config.settings import Config, Setting, settings

FILE = "dragoman.toml"
"""The file that is read when no other is named and it exists in the working directory."""


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Config:
    """The configuration from `file`, then `environ`, then `flags` (by setting name); later ones win.

    Raises ConfigError if a value is not allowed, or the file has a key that is not a setting. Variables that are no
    setting are ignored: platforms inject some of their own.
    """
    table = _read(file) if file else {}
    known = {setting.name: setting for setting in settings()}
    where = str(file)
    check_keys(where, table, [*known, "agents"], "")
    profile = flags.get("profile") or environ.get("DRAGOMAN_PROFILE") or table.get("profile")
    system = SYSTEMS.get(profile) if isinstance(profile, str) else None
    own = variables(profile if system is not None else None, environ)
    values: dict[str, Any] = {}
    for name, setting in known.items():
        for source, key, given in (
            (f"profile {profile}", name, system.defaults.get(name) if system is not None else None),
            (where, name, table.get(name)),
            ("environment", *own.get(name, (name, None))),
            ("environment", setting.env, environ.get(setting.env) or None),
            ("command line", setting.flag, flags.get(name)),
        ):
            if given is not None:
                values[name] = _parsed(setting, source, key, given)
    return Config(**values, agents=agent_entries(where, table.get("agents", [])))


def loopback(host: str) -> bool:
    """Whether listening on `host` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(file), "", None, f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ConfigError(str(file), "", None, f"is not TOML: {error}") from error


def _parsed(setting: Setting, source: str, key: str, given: object) -> Any:
    try:
        return setting.kind.parse(given)
    except ValueError as error:
        raise ConfigError(source, key, given, setting.kind.allowed) from error
