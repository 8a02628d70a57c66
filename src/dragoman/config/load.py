"""Loads a `Config` from the file, then the environment, then the flags, as the profile of a system reads them.

Invariant: whatever they contain, the result is a `Config` or a `ConfigError`. A profile (`profile = "kaos"`) only
changes defaults and reads the system's own variables. Settings of Dragoman itself win.
"""

import ipaddress
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman.config.agents import AgentEntry, agent_entries, agent_entry, agent_tables
from dragoman.config.budgets import Budget, read_budgets
from dragoman.config.errors import ConfigError, check_keys
from dragoman.config.pools import add_member_prices
from dragoman.config.prices import NO_PRICES, read_prices
from dragoman.config.settings import TABLES, Config, Setting, settings
from dragoman.config.teams import TeamEntry, read_teams
from dragoman.dialects.registry import PROFILES, load_profile
from dragoman.dialects.system import Variable
from dragoman.store.path import hide_password

FILE = "dragoman.toml"
"""The file that is read when no other is named and it exists in the working directory."""

FLAG_SOURCE = "command line"
"""The source of a ConfigError that a flag gave."""

EVERYWHERE: Mapping[str, Variable] = {
    "PUSH_NOTIFICATION_ALLOWED_HOSTS": Variable("push_allowed_hosts"),
    "PUSH_NOTIFICATION_ALLOWED_CIDRS": Variable("push_allowed_cidrs"),
}
"""Variables of protoAgent that have the same meaning with any profile or none: its guard applies to everybody."""


class FaultyEntry(Struct, frozen=True):
    """A table `[[agents]]` that cannot be used. `id` is its place in the file if it has no id."""

    id: str
    error: ConfigError


class ConfigParts(Struct, frozen=True):
    """A configuration in its parts, those that can be used and those that cannot.

    `config` is None if the settings cannot be used. `faults` are those of the file and its settings, `tables` are the
    agents.
    """

    config: Config | None
    tables: tuple[AgentEntry | FaultyEntry, ...]
    faults: tuple[ConfigError, ...]


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Config:
    """The configuration from `file`, then `environ`, then `flags` (by setting name); later ones win.

    Raises ConfigError if a value is not allowed, or the file has a key that is not a setting. Unknown variables are
    ignored, since platforms inject some of their own.
    """
    return load_table(str(file), _read(file) if file else {}, environ, flags)


def load_table(where: str, table: Mapping[str, Any], environ: Mapping[str, str], flags: Mapping[str, str]) -> Config:
    """As `load`, from a `table` with the contents of a file. Errors say that it stands at `where`."""
    values = _values(where, table, environ, flags)
    prices = read_prices(where, table.get("prices"))
    teams = read_teams(where, table.get("teams", []))
    agents = agent_entries(where, table.get("agents", []))
    prices = add_member_prices(where, prices, {entry.id: entry.pool for entry in agents})
    budgets = read_budgets(where, table.get("budgets"), prices, [team.id for team in teams])
    return Config(**values, prices=prices, teams=teams, budgets=budgets, agents=agents)


def load_parts(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> ConfigParts:
    """As `load`, as far as the parts can be used: one faulty table does not hide the others."""
    faults: list[ConfigError] = []
    found: list[AgentEntry | FaultyEntry] = []
    try:
        table = _read(file) if file else {}
    except ConfigError as error:
        return ConfigParts(None, (), (error,))
    values: dict[str, Any] | None = None
    try:
        values = _values(str(file), table, environ, flags)
    except ConfigError as error:
        faults.append(error)
    prices = NO_PRICES
    try:
        prices = read_prices(str(file), table.get("prices"))
    except ConfigError as error:
        faults.append(error)
    teams: tuple[TeamEntry, ...] = ()
    try:
        teams = read_teams(str(file), table.get("teams", []))
    except ConfigError as error:
        faults.append(error)
    budgets: tuple[Budget, ...] = ()
    try:
        budgets = read_budgets(str(file), table.get("budgets"), prices, [team.id for team in teams])
    except ConfigError as error:
        faults.append(error)
    try:
        tables = agent_tables(str(file), table.get("agents", []))
    except ConfigError as error:
        faults.append(error)
        tables = []
    for index, each in enumerate(tables):
        try:
            earlier = {one.id: at for at, one in enumerate(found) if isinstance(one, AgentEntry)}
            found.append(agent_entry(str(file), index, each, earlier))
        except ConfigError as error:
            named = each.get("id")
            found.append(FaultyEntry(named if isinstance(named, str) and named else f"agents[{index}]", error))
    entries = tuple(one for one in found if isinstance(one, AgentEntry))
    try:
        prices = add_member_prices(str(file), prices, {entry.id: entry.pool for entry in entries})
    except ConfigError as error:
        faults.append(error)
    config = None if values is None else Config(**values, prices=prices, teams=teams, budgets=budgets, agents=entries)
    return ConfigParts(config, tuple(found), tuple(faults))


def loopback(host: str) -> bool:
    """Whether a server that listens on `host` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def read_variables(profile: str | None, environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Read a system's own variables: by setting, the variable's name and its value. Empty ones are ignored.

    Raises ConfigError if a variable has a value that it cannot have.
    """
    known = dict(EVERYWHERE)
    if profile is not None:
        system = load_profile(profile)
        known |= {**system.variables, **system.named_variables(environ)}
    return {
        variable.setting: (name, translate(name, variable, value))
        for name, variable in known.items()
        if (value := environ.get(name, "").strip())
    }


def translate(name: str, variable: Variable, value: str) -> str:
    """Return the setting's value for a variable's. Raises ConfigError if the variable cannot have it."""
    if variable.values is None:
        return value.lower() if variable.setting == "log_level" else value
    if value.lower() not in variable.values:
        raise ConfigError("environment", name, value, variable.allowed)
    return variable.values[value.lower()]


def _values(
    where: str, table: Mapping[str, Any], environ: Mapping[str, str], flags: Mapping[str, str]
) -> dict[str, Any]:
    """Parse the given settings, by name. Raises ConfigError."""
    known = {setting.name: setting for setting in settings()}
    table = _flatten(where, table, known)
    check_keys(where, table, [*known, *TABLES], "")
    profile = flags.get("profile") or environ.get("DRAGOMAN_PROFILE") or table.get("profile")
    posed = profile if isinstance(profile, str) and profile in PROFILES else None
    defaults = {} if posed is None else load_profile(posed).defaults
    own = read_variables(posed, environ)
    values: dict[str, Any] = {}
    for name, setting in known.items():
        for source, key, given in (
            (f"profile {profile}", name, defaults.get(name)),
            (where, name, table.get(name)),
            ("environment", *own.get(name, (name, None))),
            ("environment", setting.env, environ.get(setting.env) or None),
            (FLAG_SOURCE, setting.flag, flags.get(name)),
        ):
            if given is not None:
                values[name] = _parse(setting, source, key, given)
    if (path := values.get("api_key_file")) is not None:
        if values.get("api_key") is not None:
            raise ConfigError("settings", "api_key_file", path, "is set beside api_key: leave one of them out")
        try:
            values["api_key"] = read_secret(path)
        except ValueError as error:
            raise ConfigError("settings", "api_key_file", path, str(error)) from error
    return values


def _flatten(where: str, table: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Give the settings in tables their full names: `question_mark` in `[openai]` is `openai_question_mark`.

    Raises ConfigError for a key of such a table that is no setting, and for a setting that stands there twice.
    """
    flat: dict[str, Any] = {}
    for name, value in table.items():
        own = [full for full in known if full.startswith(f"{name}_")]
        if not isinstance(value, dict) or name in TABLES or not own:
            flat[name] = value
            continue
        check_keys(where, value, [full.removeprefix(f"{name}_") for full in own], f"{name}.")
        for key, given in value.items():
            full = f"{name}_{key}"
            if full in table:
                raise ConfigError(where, f"{name}.{key}", given, f"is set as {full} too: leave one of them out")
            flat[full] = given
    return flat


def read_secret(path: str) -> str:
    """Return the secret that a file holds, without the spaces and line ends around it.

    Raises ValueError, which completes a sentence that begins with the file.
    """
    try:
        secret = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError("cannot be read: it is not text") from error
    if not secret:
        raise ValueError("is empty: write the secret into it")
    if not secret.isprintable():
        raise ValueError("holds more than one line, or a control character: write nothing but the secret into it")
    return secret


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        how = "name one that exists (--config or DRAGOMAN_CONFIG), or none for the defaults"
        raise ConfigError(str(file), "", None, f"no such file in {file.absolute().parent}: {how}") from error
    except OSError as error:
        how = f"cannot be read: {error.strerror}: name a file that this user may read"
        raise ConfigError(str(file), "", None, how) from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ConfigError(str(file), "", None, f"is not TOML: {error}") from error


def _parse(setting: Setting, source: str, key: str, given: object) -> Any:
    try:
        return setting.kind.parse(given)
    except ValueError as error:
        shown = hide_password(given) if isinstance(given, str) else given
        raise ConfigError(source, key, shown, setting.kind.allowed) from error
