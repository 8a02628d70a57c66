"""`dragoman serve`: read the configuration, load the agents, run the server.

Invariant: every setting has a flag, made from the setting's declaration. There is no second list of settings.
"""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from msgspec import Struct

from dragoman import __version__
from dragoman.cli.arguments import complete_files
from dragoman.cli.command import Command, shared_option
from dragoman.cli.command_table import collections_paused
from dragoman.cli.endings import PROGRAM, Unusable
from dragoman.cli.program import program
from dragoman.cli.store_commands import CONFIG_ENV, config_fault, config_file
from dragoman.config import FILE, Config, ConfigError, load, settings
from dragoman.store.path import hide_password

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.engine.api import Runner
    from dragoman.server import ListeningServer
    from dragoman.server.supervision.supervised import Supervised


COMMON = {
    *("profile", "host", "port", "store", "processes", "tls_cert", "tls_key", "public_url", "default"),
    *("authentication", "api_key_file", "cors_origins", "log_level", "log_format", "console"),
}
"""The settings that `--help` explains. It only lists the others."""


def _with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every setting to `command`. Values are passed on as text and parsed as any other source is."""
    for setting in reversed(settings()):
        source = f"[{setting.env}]" if not setting.default else f"[{setting.env}; default: {setting.default}]"
        name = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}" if setting.default in ("true", "false") else ""
        shown: dict[str, Any] = {"default": None} if name else {"metavar": "VALUE"}
        command = shared_option(
            setting.section,
            *(name or setting.flag, setting.name),
            short="Common settings",
            folds=setting.name not in COMMON,
            help=f"{setting.help}  {source}",
            **shown,
        )(command)
    return command


@click.command(
    cls=Command,
    epilog=f"Settings come from {FILE}, then from the environment, then from these flags; later ones win. Agents can "
    "also be declared in the file, as [[agents]] tables. See docs/configuration.md.",
)
@click.argument("agents", nargs=-1, metavar="[MODULE:AGENT]...", shell_complete=complete_files)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    shell_complete=complete_files,
    help=f"Configuration file.  [{CONFIG_ENV}; default: {FILE} if it exists]",
)
@click.option(
    "--reload", is_flag=True, help="For developers: restart the agents after every change of the code and the file."
)
@click.option("--supervised", hidden=True, help="The place of this replica among those of its supervisor.")
@_with_settings
def serve(agents: tuple[str, ...], file: str | None, reload: bool, supervised: str | None, **flags: Any) -> None:
    """Serve agents to every A2A client, versions 1.0 and 0.3.

    An agent is MODULE:AGENT or path/to/file.py:AGENT; without :AGENT, every agent in the module is served. The first
    one answers at /, each at /agents/ID.

    Examples:
      dragoman serve agent.py:agent --reload
      dragoman serve --config dragoman.toml --port 8080 --store sqlite:////var/lib/dragoman/dragoman.db
    """
    line = CommandLine(agents, file, {name: str(value) for name, value in flags.items() if value is not None})
    try:
        config = line.load()
    except ConfigError as error:
        raise config_fault(error) from error
    if reload and config.processes > 1:
        raise click.UsageError("--reload goes with one process: leave it out, or set processes to 1")
    if supervised is not None:
        from dragoman.server.supervision.supervised import Supervised

        place = Supervised.parse(supervised)
        place.end_with_supervisor()
        _run(line, config, place)
    elif reload:
        from dragoman.cli.loader import source_files
        from dragoman.server.supervision.reloader import reload_on_change

        files = source_files(config.agents, agents, config_file(file))
        reload_on_change(config, lambda *where: line.spell(1, *where), files.stamps, _print, line.load)
    elif config.processes > 1:
        from dragoman.server.supervision.processes import supervise

        supervise(config, lambda *where: line.spell(config.processes, *where), _print, line.load)
    else:
        _run(line, config, None)


class CommandLine(Struct, frozen=True):
    """The words of the command: the agents, the file that it names, and its flags for settings, as text."""

    agents: Sequence[str]
    file: str | None
    given: Mapping[str, str]

    def load(self) -> Config:
        """Read the configuration as it is now. Raises ConfigError."""
        return load(config_file(self.file), os.environ, self.given)

    def spell(self, processes: int, place: "Supervised", port: int) -> Sequence[str]:
        """The command of a replica: this one's, with the port that the supervisor has and the replica's place."""
        flags: list[str] = [] if self.file is None else ["--config", self.file]
        for setting in settings():
            if (value := self.given.get(setting.name)) is not None:
                if setting.default in ("true", "false"):
                    flags.append(setting.flag if value == "True" else f"--no-{setting.flag.removeprefix('--')}")
                else:
                    flags.append(f"{setting.flag}={value}")
        flags += [f"--processes={processes}", f"--port={port}"]  # the last one counts
        return [sys.executable, "-m", "dragoman", "serve", *flags, f"--supervised={place.spell()}", "--", *self.agents]


def _run(line: CommandLine, config: Config, place: "Supervised | None") -> None:
    """Run the server in this process, which has a `place` among those of a supervisor, or none."""
    with collections_paused():
        from dragoman.cli.entries import make_added_agent
        from dragoman.cli.loader import load_served
        from dragoman.cli.references import AgentReferenceError

        try:
            served = load_served(config.agents, line.agents, config.default, none=config.begins_empty)
        except AgentReferenceError as error:
            raise Unusable(str(error)) from error
        from dragoman.server import Loaded, ReloadError, run
        from dragoman.telemetry.logs import log_to

    def again() -> Loaded:
        nonlocal served
        before = served
        try:
            anew = line.load()
            made = load_served(anew.agents, line.agents, anew.default, before, none=anew.begins_empty)
        except (ConfigError, AgentReferenceError) as error:
            raise ReloadError(str(error)) from error
        except Exception:
            raise
        except BaseException as error:  # SystemExit, the panic of an extension …: it must not end the server
            raise ReloadError(f"importing the modules ends the process ({type(error).__name__})") from error
        served = made.without_replaced()

        def undo() -> None:
            nonlocal served
            made.undo()
            served = before

        return Loaded(anew, made.agents, undo)

    name = "" if place is None or config.processes == 1 else str(place.number)
    log_to(sys.stderr, config.log_level, config.log_format, name)
    run(
        config,
        served.agents,
        lambda listening: _report(listening, served.agents, place),
        again,
        name,
        make_added_agent,
    )


def _report(listening: "ListeningServer", agents: Sequence["Runner"], place: "Supervised | None") -> None:
    """Print the banner, or let the supervisor do so, and note the server's URL beside its store."""
    from dragoman.auth.operator_token import read_token, token_path
    from dragoman.store.open import note_server

    config = listening.config
    note_server(config.store, own_url(config))
    token, token_file = read_token(config.store, config.port) or "", None
    if token and not (place is None and sys.stdout.isatty()):  # it would be in a log, for others to read
        token, token_file = "", token_path(config.store, config.port)
    show = _print if place is None else place.report
    asks_callers, command = listening.asks_callers, program()
    known = {"asks_callers": asks_callers, "console_built": not (config.console and _building_console())}
    show(banner(config, agents, token=token, token_file=token_file, command=command, **known))


def _building_console() -> bool:
    """Whether a build of the console is under way. This program may be without one."""
    from dragoman.bindings.optional import load_optional

    console = load_optional("dragoman.bindings.console")
    return console is not None and bool(console.being_built())


def _print(text: str) -> None:
    """Print a text. If stdout is closed, the server runs nevertheless."""
    from dragoman.server.process import show_nothing

    try:
        click.echo(text)
    except OSError:
        show_nothing((sys.stdout.fileno(),))


def banner(
    config: Config,
    agents: Sequence["Runner"],
    *,
    asks_callers: bool = False,
    console_built: bool = True,
    token: str = "",
    token_file: "Path | None" = None,
    command: str = PROGRAM,
) -> str:
    """The text that the server prints once it listens: its agents, their URLs, and commands to paste.

    `asks_callers`: every caller must authenticate; otherwise the link to the console carries `token` in its fragment,
    which browsers send to nobody, or `token_file` stands beside it. `console_built`: no build of the console is under
    way. `command` is this program in commands to paste.
    `config.port` is the port on which it listens; the
    first of `agents` is the default.
    The streaming sample goes to the second agent, if there is one; the texts are the agents' own examples. Under a
    profile there is one sample, in that system's format.
    """
    base = base_url(config)
    here = local_url(config)
    known = f", which callers know as {base}/," if here != base else ""
    lines = [
        f"Dragoman {__version__} listens on {here}/{known} and keeps its tasks in {hide_password(config.store)}",
        "",
    ]
    if agents:
        listed, samples = _list_agents(config, agents, asks_callers, command)
    else:
        listed, samples = [f"  It serves the agents that operators add: {command} admin agents add URL"], []
    if config.console and config.tasks and config.profile is None:
        link = f"Console: {base}/console"
        notes = [] if console_built else ["it is being built, and is there in a moment"]
        if token and not asks_callers:
            link += f"#token={token}"
        elif token_file is not None and not asks_callers:
            notes.append(f"its token is in {token_file}")
        elif config.oidc_issuer is None and config.store != "memory:":
            notes.append("it takes a key of the role operator")
        samples.append(f"{link} ({'; '.join(notes)})" if notes else link)
    who = _access_lines(config, [agent.profile.id for agent in agents], asks_callers, command)
    return "\n".join([*lines, *listed, "", *samples, "", *who, "Ctrl-C stops it."])


def _list_agents(
    config: Config, agents: Sequence["Runner"], asks_callers: bool, command: str
) -> tuple[list[str], list[str]]:
    """The lines of the agents with their URLs, and those of the commands to paste for them."""
    base, lines = base_url(config), list[str]()
    width = max(len(agent.profile.id) for agent in agents)
    first, second = agents[0], agents[min(1, len(agents) - 1)]
    if config.profile is None:
        for agent in agents:
            at_root = f"  (default: {base}/)" if agent is first else ""
            lines.append(f"  {agent.profile.id:<{width}}  {base}/agents/{agent.profile.id}{at_root}")
        send = f"curl {base}/message:send {_rest_arguments(config, first, asks_callers)}"
        stream = (
            f"curl -N {base}/agents/{second.profile.id}/message:stream {_rest_arguments(config, second, asks_callers)}"
        )
        key = "A2ACLI_API_KEY=YOUR-KEY " if _key_header(config, first, asks_callers) else ""
        samples = ["Send:    " + send, "Stream:  " + stream, f"Chat:    {key}{command} chat -a {base}"]
    else:
        paths = {agent.profile.id: _path(config.profile, agent, first) for agent in agents}
        lines = [f"  {agent_id:<{width}}  {base}{path}" for agent_id, path in paths.items() if path]
        samples = ["Send:    " + f"curl {base}{paths[first.profile.id]} {_rpc_arguments(config, first, asks_callers)}"]
    if config.grpc_port:
        samples.append("gRPC:    " + _grpc_sample(config, first, asks_callers))
    return lines, [f"Card:    curl {base}/.well-known/agent-card.json", *samples]


def _grpc_sample(config: Config, agent: "Runner", asks: bool) -> str:
    """The grpcurl command that sends the agent its first example. It needs no proto file: the server reflects it."""
    import msgspec

    host = urlsplit(local_url(config)).netloc.rpartition(":")[0]
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": _example(agent)}]}
    body = shlex.quote(msgspec.json.encode({"message": message}).decode())
    key = _key_header(config, agent, asks)
    plain = "" if config.tls_cert is not None else "-plaintext "
    return f"grpcurl {plain}{key}-d {body} {host}:{config.grpc_port} lf.a2a.v1.A2AService/SendMessage"


def _access_lines(config: Config, agents: Sequence[str], asks_callers: bool, command: str) -> list[str]:
    """Lines that say who may call, and how to make a key. A server in memory cannot store keys."""
    at = "" if config.store == Config().store else f" --store {shlex.quote(hide_password(config.store))}"
    make = "set DRAGOMAN_API_KEY" if config.store == "memory:" else f"{command} keys create NAME{at}"
    if asks_callers:
        return [f"Callers must authenticate, with {_credential_kinds(config, at, command)}."]
    own = [entry.id for entry in config.agents if entry.api_key]
    besides = f", but for callers of {', '.join(own)}" if own else ""
    lines = [f"Callers need no key{besides}. To require one: {make}"]
    if "*" in config.cors_origins and not set(agents) <= set(own):
        lines.append(
            "Warning: cors_origins is *, so any web page in a browser that can reach this server can use these agents."
        )
    return lines


def _credential_kinds(config: Config, at: str, command: str) -> str:
    """The credentials that callers may send, and where keys come from."""
    ways = ["the key of the setting api_key"] if config.api_key else []
    if config.jwt_issuer or config.jwt_jwks_url:
        ways.append("a token of the issuer in Authorization: Bearer")
    if config.store != "memory:":
        ways.append(f"a key made by `{command} keys create NAME{at}` (`{command} keys list{at}` shows all keys)")
    return ", or ".join(ways)


def _path(profile: str, agent: "Runner", default: "Runner") -> str:
    """The agent's path under a profile; empty if the profile serves only the default agent."""
    from dragoman.dialects.registry import load_system

    mount = load_system(profile).mount
    assert mount is not None
    pattern = mount.path
    return pattern.replace("{id}", agent.profile.id) if "{id}" in pattern or agent is default else ""


def _rpc_arguments(config: Config, agent: "Runner", asks: bool) -> str:
    """The curl arguments that send the agent its first example, as the clients of the profile's system do."""
    import msgspec

    from dragoman.dialects.registry import load_profile

    assert config.profile is not None
    profile = load_profile(config.profile)
    message = {"role": "user", "parts": [{**profile.part, "text": _example(agent)}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": profile.method, "params": {"message": message}}
    body = shlex.quote(msgspec.json.encode(call).decode())
    return f"{_key_header(config, agent, asks)}-H 'Content-Type: application/json' -d {body}"


def base_url(config: Config) -> str:
    """The server's URL for callers, without a slash at the end."""
    return config.public_url or local_url(config)


def local_url(config: Config) -> str:
    """The server's URL on its own machine, without a slash at the end."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    return f"{config.scheme}://[{host}]:{config.port}" if ":" in host else f"{config.scheme}://{host}:{config.port}"


def own_url(config: Config) -> str:
    """Where commands on the server's own machine ask it.

    In a container nothing may answer at the address for callers, and a proxy there may refuse operators; but a
    certificate is good for that address alone.
    """
    return base_url(config) if config.scheme == "https" else local_url(config)


def _key_header(config: Config, agent: "Runner", asks: bool) -> str:
    """The header for the agent's key, if callers need one. It has a placeholder instead of the key."""
    own = any(entry.api_key for entry in config.agents if entry.id == agent.profile.id)
    return "-H 'x-api-key: YOUR-KEY' " if own or asks else ""


def _rest_arguments(config: Config, agent: "Runner", asks: bool) -> str:
    """The curl arguments that send the agent its first example.

    The message id is not a UUID, so that a second call is not taken for a retry.
    """
    import msgspec

    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": _example(agent)}]}
    body = shlex.quote(msgspec.json.encode({"message": message}).decode())
    return f"-H 'A2A-Version: 1.0' {_key_header(config, agent, asks)}-H 'Content-Type: application/json' -d {body}"


def _example(agent: "Runner") -> str:
    return next((example for skill in agent.profile.skills for example in skill.examples), "Hello")
