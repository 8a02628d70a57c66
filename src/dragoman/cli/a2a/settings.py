"""The settings of client commands, and the source of each (a2a-cli §5.2, §6.4).

Sources, the first one wins: a flag, a variable `A2ACLI_…`, the local file, `~/.config/a2a-cli/.env`, the default. The
local file is the one that `--config` names, or else the nearest `.env` above the working directory.

Invariant: a `.env` that was found, rather than named, may come with a stranger's repository. So it cannot make TLS less
strict, and credentials from elsewhere never go to the agent that it names. Credentials of a file go only to the agent
that the same file names.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

PREFIX = "A2ACLI_"

GLOBAL_FILE = Path(".config") / "a2a-cli" / ".env"
"""The global file, below the home directory."""

LOCAL_NAME = ".env"

FILE_BYTES_MAX = 1024 * 1024
"""The largest file that is read."""


OUTPUTS = ("text", "json")

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h)?", re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class SettingsError(Exception):
    """A setting that cannot be used. The message names it, its source and the fix."""


class ClientSetting(Struct, frozen=True, kw_only=True):
    """One setting. `name` is that of its long flag; `default` is shown by help and `config show`.

    `secret` values are never shown. A setting that `guards` TLS or secrets cannot come from a file that was found.
    `identifies` marks what tells the agent who is calling; it goes only where its source may send it. A setting that is
    not `stored` is read from flags and variables alone. Outside of flags a `separator` parts the values of one that is
    repeatable.
    """

    name: str
    default: str = ""
    separator: str = ""
    secret: bool = False
    guards: bool = False
    identifies: bool = False
    stored: bool = True

    @property
    def variable(self) -> str:
        """The variable of the environment, and the key in a file."""
        return PREFIX + self.name.upper().replace("-", "_")


SETTINGS: tuple[ClientSetting, ...] = (
    ClientSetting(name="agent-card"),
    ClientSetting(name="a2a-version", default="highest that both speak, never below 1.0"),
    ClientSetting(name="transport", separator=",", default="the card's order"),
    ClientSetting(name="dialect", default="what the card says"),
    ClientSetting(name="output", default="text"),
    ClientSetting(name="verbose", default="false"),
    ClientSetting(name="debug", default="false"),
    ClientSetting(name="async", default="false"),
    ClientSetting(name="wait", default="true for `send`"),
    ClientSetting(name="poll-interval", default="2s"),
    ClientSetting(name="timeout", default="none"),
    ClientSetting(name="context-id"),
    ClientSetting(name="task-id"),
    ClientSetting(name="metadata"),
    ClientSetting(name="svc-param", separator="\n", secret=True, identifies=True),
    ClientSetting(name="extension", separator=","),
    ClientSetting(name="history"),
    ClientSetting(name="insecure", default="false", guards=True),
    ClientSetting(name="ca-cert", default="the system's", guards=True),
    ClientSetting(name="bearer", secret=True, identifies=True),
    ClientSetting(name="api-key", secret=True, identifies=True),
    ClientSetting(name="client-id", identifies=True),
    ClientSetting(name="client-secret", secret=True, identifies=True),
    ClientSetting(name="token-url", guards=True, identifies=True),
    ClientSetting(name="client-cert", identifies=True),
    ClientSetting(name="client-key", identifies=True),
    ClientSetting(name="trust-origin", separator=",", guards=True),
    ClientSetting(name="card-keys", guards=True),
    ClientSetting(name="config", default="the nearest .env above the working directory", stored=False),
)
"""Every setting that may come from elsewhere than a flag, in the order of `config show`."""

_BY_NAME = {setting.name: setting for setting in SETTINGS}


class Level(Enum):
    """The sources, the strongest one first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    NAMED_FILE = "file named with --config"
    FOUND_FILE = "local file"
    GLOBAL_FILE = "global file"
    DEFAULT = "default"


class Value(Struct, frozen=True):
    """The value of a setting and where it came from. Repeatable settings have several values."""

    values: tuple[str, ...]
    level: Level
    place: str

    @property
    def text(self) -> str:
        """The value of a setting that is not repeatable."""
        return self.values[-1] if self.values else ""


class _File(Struct, frozen=True):
    level: Level
    path: Path
    values: Mapping[str, str]


class Settings:
    """The settings of one command. `warnings` are for the user, in the order in which they were found."""

    def __init__(
        self, flags: Mapping[str, Sequence[str]], environment: Mapping[str, str], files: Sequence[_File]
    ) -> None:
        self.warnings: list[str] = []
        self._values: dict[str, Value] = {}
        self._agents = {str(file.path): file.values.get(_BY_NAME["agent-card"].variable) for file in files}
        for setting in SETTINGS:
            self._values[setting.name] = next(
                self._candidates(setting, flags, environment, files), Value((), Level.DEFAULT, "default")
            )

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def text(self, name: str) -> str:
        """The value of a setting, empty if there is none."""
        return self._values[name].text

    def flag(self, name: str) -> bool:
        """The value of a switch. Raises SettingsError if it is neither true nor false."""
        value = self._values[name]
        word = value.text.strip().lower()
        if word in ("", "0", "false", "no", "off"):
            return False
        if word in ("1", "true", "yes", "on"):
            return True
        raise SettingsError(f"{self.describe(name)} is {value.text!r}: use true or false")

    def describe(self, name: str) -> str:
        """Name a setting as its user wrote it: the flag, or the variable with its file."""
        value, setting = self._values[name], _BY_NAME[name]
        if value.level is Level.FLAG:
            return f"--{name}"
        return f"{setting.variable} ({value.place})"

    def bound_to(self, name: str) -> str | None:
        """Return the reference of the only agent that the credential `name` may be shown to; None if any may see it.

        Empty: no agent may see it, as its file names none. A credential of a file goes to the agent of that file. A
        file that the user named may leave the agent open.
        """
        credential = self._values[name]
        agent = self._agents.get(credential.place)
        if credential.level in (Level.FOUND_FILE, Level.GLOBAL_FILE):
            return agent or ""
        if credential.level is Level.NAMED_FILE:
            return agent
        return "" if self._values["agent-card"].level is Level.FOUND_FILE else None

    def _candidates(
        self,
        setting: ClientSetting,
        flags: Mapping[str, Sequence[str]],
        environment: Mapping[str, str],
        files: Sequence[_File],
    ) -> Iterator[Value]:
        if given := flags.get(setting.name):
            yield Value(tuple(given), Level.FLAG, "flag")
        if said := environment.get(setting.variable):
            yield Value(_split(setting, said), Level.ENVIRONMENT, "environment")
        for file in files if setting.stored else ():
            said = file.values.get(setting.variable)
            if not said:
                continue
            if setting.guards and file.level is Level.FOUND_FILE:
                self.warnings.append(
                    f"{setting.variable} in {file.path} is ignored: a file that was only found cannot weaken TLS or "
                    f"widen trust; name it with --config {file.path}, or give --{setting.name}"
                )
                continue
            yield Value(_split(setting, said), file.level, str(file.path))


def _split(setting: ClientSetting, said: str) -> tuple[str, ...]:
    if not setting.separator:
        return (said,)
    return tuple(each.strip() for each in said.replace("\\n", "\n").split(setting.separator) if each.strip())


def load_settings(
    flags: Mapping[str, Sequence[str]],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    home: Path | None = None,
) -> Settings:
    """Read all sources. `flags` are those that the user gave, by setting. Raises SettingsError for an unusable file."""
    environment = os.environ if environment is None else environment
    named = next(iter(flags.get("config", ())), "") or environment.get(f"{PREFIX}CONFIG", "")
    files = []
    if named:
        files.append(_read(Level.NAMED_FILE, Path(named)))
    elif (found := _find_local((folder or Path.cwd()).resolve())) is not None:
        files.append(_read(Level.FOUND_FILE, found))
    general = (home or Path.home()) / GLOBAL_FILE
    if general.is_file():
        files.append(_read(Level.GLOBAL_FILE, general))
    settings = Settings(flags, environment, files)
    for file in files:
        settings.warnings += _complaints(file)
    return settings


def _find_local(folder: Path) -> Path | None:
    for each in (folder, *folder.parents):
        if (each / LOCAL_NAME).is_file():
            return each / LOCAL_NAME
    return None


def _read(level: Level, path: Path) -> _File:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SettingsError(f"{path} is larger than 1 MB: a settings file has one A2ACLI_NAME=value a line")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}: name a file that can be read with --config") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not text in UTF-8: a settings file has one A2ACLI_NAME=value a line") from error
    return _File(level, path, dict(_parse(text)))


def _parse(text: str) -> Iterator[tuple[str, str]]:
    """Read the lines `A2ACLI_NAME=value` of a dotenv file; other lines belong to other programs."""
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.startswith(PREFIX):
            continue
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        else:
            value = value.partition(" #")[0].rstrip()
        yield name, value


def _complaints(file: _File) -> Iterator[str]:
    known = {setting.variable for setting in SETTINGS if setting.stored}
    for name in file.values:
        if name not in known:
            yield f"{name} in {file.path} is no setting of this tool; `config show` lists them"
    secrets = {setting.variable for setting in SETTINGS if setting.secret}
    if secrets & set(file.values) and file.path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield f"{file.path} holds a secret and others may read it: run `chmod 600 {file.path}`"


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Read the settings of a command from the options that click parsed and from all other sources.

    Raises SettingsError.
    """
    flags: dict[str, Sequence[str]] = {}
    for setting in SETTINGS:
        given = options.get(setting.name.replace("-", "_"))
        if given is None or given is False or given == ():
            continue
        flags[setting.name] = tuple(map(str, given)) if isinstance(given, tuple) else (_text(given),)
    return load_settings(flags)


def _text(given: Any) -> str:
    return "true" if given is True else str(given)


def seconds(settings: Settings, name: str) -> float | None:
    """Read a duration: `30`, `30s`, `500ms`, `5m`, `1h`; None if it is not set. Raises SettingsError."""
    text = settings.text(name)
    if not text:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise SettingsError(f"{settings.describe(name)} is {text!r}: use a duration such as 30s, 500ms or 5m")
    return float(match[1]) * _UNITS_S[match[2] or "s"]


def output_of(settings: Settings) -> str:
    """Return the output format. Raises SettingsError for another word than text or json."""
    chosen = settings.text("output") or "text"
    if chosen not in OUTPUTS:
        raise SettingsError(f"{settings.describe('output')} is {chosen!r}: use text or json")
    return chosen
