"""The options that client commands share, and the command class that reports failures in the chosen output.

Invariant: every option can come from the environment or a file except `--stream`, `--help` and `--version`, which
change what a command does (a2a-cli §5.2). A failure is one error document with `-o json`, and one line with `text`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import click

from dragoman.cli.a2a.settings import SETTINGS, Settings, SettingsError, load_settings
from dragoman.cli.arguments import EXPOSED, complete_files, complete_words
from dragoman.cli.endings import Code, asks_for_json, help_hint, usage_text

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("text", "json")

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h)?", re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """Declare an option that can also come from the environment or a file; its default is applied in Settings."""
    attributes.setdefault("default", None)
    return click.option(*names, **attributes)


_AGENT = (
    _option(
        "-a",
        "--agent-card",
        metavar="REF",
        shell_complete=complete_files,
        help="The agent: a host, an origin, a URL or a file of its card, a catalog entry, or grpc://host:port.",
    ),
    _option(
        "--config",
        metavar="FILE",
        shell_complete=complete_files,
        help="Read settings from FILE instead of the nearest .env.",
    ),
    _option(
        "-o",
        "--output",
        metavar="text|json",
        shell_complete=complete_words(*OUTPUTS),
        help="Format of the result.  [default: text]",
    ),
    _option("--verbose", is_flag=True, help="Show all that was exchanged.  [default: concise]"),
    _option("--debug", is_flag=True, help="Log to stderr what goes over the wire, without credentials."),
    _option(
        "--a2a-version",
        metavar="VERSION",
        shell_complete=complete_words("1.0", "0.3"),
        help="Protocol version to speak.  [default: the highest that both speak, never below 1.0]",
    ),
    _option(
        "--transport",
        multiple=True,
        metavar="BINDING",
        shell_complete=complete_words("JSONRPC", "HTTP+JSON", "GRPC"),
        help="Preferred binding (JSONRPC, HTTP+JSON, GRPC); repeatable, the first wins.  [default: the card's order]",
    ),
    _option(
        "--dialect",
        metavar="NAME",
        shell_complete=complete_words("beeos", "kaos", "evoai", "protoagent"),
        help="Speak a vendor's dialect at this URL, without a card: beeos, kaos, evoai, protoagent.",
    ),
    _option(
        "--svc-param",
        multiple=True,
        metavar="KEY:VALUE",
        help="Add a service parameter: a header, or gRPC metadata; repeatable.",
    ),
    _option("--extension", multiple=True, metavar="URI", help="Declare support for a protocol extension; repeatable."),
    _option(
        "--insecure", is_flag=True, help="Do not verify TLS certificates. For development only.  [default: verified]"
    ),
    _option(
        "--ca-cert",
        metavar="FILE",
        shell_complete=complete_files,
        help="Trust the certificate authorities in this PEM file.  [default: the system's]",
    ),
    _option(
        "--trust-origin",
        multiple=True,
        metavar="ORIGIN",
        help="Also send credentials to this origin, if the card names it; repeatable.",
    ),
    _option("--bearer", metavar="TOKEN", help=f"Bearer token.  [A2ACLI_BEARER] {EXPOSED}, or a file."),
    _option("--api-key", metavar="KEY", help=f"API key.  [A2ACLI_API_KEY] {EXPOSED}, or a file."),
    _option(
        "--client-cert",
        metavar="FILE",
        shell_complete=complete_files,
        help="Certificate to show in mutual TLS, as PEM.",
    ),
    _option(
        "--client-key",
        metavar="FILE",
        shell_complete=complete_files,
        help="Private key of --client-cert, if that file does not hold it.",
    ),
)
"""Options of every command that talks to an agent."""

_WAITING = (
    _option("--poll-interval", metavar="DURATION", help="How often to ask for the state while waiting.  [default: 2s]"),
    _option("--timeout", metavar="DURATION", help="Give up after this time, such as 30s or 5m.  [default: none]"),
)


def agent_options(command: F) -> F:
    """Add the options that name an agent and say how to talk to it."""
    for option in reversed(_AGENT):
        command = option(command)
    return command


def waiting_options(command: F) -> F:
    """Add the options for a wait."""
    for option in reversed(_WAITING):
        command = option(command)
    return command


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


class ClientCommand(click.Command):
    """A command whose usage errors keep to the output that was asked for (a2a-cli §9.4)."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments; a mistake in them is a usage error in the chosen format."""
        words = tuple(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            refuse(error, words)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; usage errors that it finds itself are reported in the same way."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            refuse(error, tuple(_json_words(ctx)))
        except SettingsError as error:
            refuse(click.UsageError(str(error), ctx), tuple(_json_words(ctx)))


def _json_words(ctx: click.Context) -> Sequence[str]:
    return ("-o", "json") if ctx.params.get("output") == "json" else ()


def refuse(error: click.UsageError, words: Sequence[str]) -> NoReturn:
    """Report a usage error and exit with 2. `words` are the arguments, of which only the output format is read."""
    import os

    from dragoman.cli.a2a.failures import Failure
    from dragoman.cli.a2a.output import print_failure

    failure = Failure(Code.USAGE, usage_text(error), hint=help_hint(error))
    as_json = asks_for_json(words) or os.environ.get("A2ACLI_OUTPUT") == "json"
    print_failure(failure, "json" if as_json else "text")
    raise SystemExit(failure.status)
