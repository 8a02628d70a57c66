"""The options that client commands share, and commands made of their work, which report failures in the chosen output.

Invariant: every option can come from the environment or a file except `--stream`, `--help` and `--version`, which
change what a command does (a2a-cli §5.2). A failure is one error document with `-o json`, and one line with `text`.
"""

from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import wraps
from inspect import signature
from typing import Any, NoReturn, TypeVar

import click

from dragoman.cli.a2a.completion import complete_references
from dragoman.cli.a2a.settings import OUTPUTS, SettingsError
from dragoman.cli.arguments import EXPOSED, complete_files, complete_words
from dragoman.cli.command import Command, SharedOption, shared_option
from dragoman.cli.endings import Code, Unusable, asks_for_json, help_hint, usage_text

F = TypeVar("F", bound=Callable[..., Any])


_AGENT, _OUTPUT, _WAIT, _CREDENTIALS, _WIRE = "Agent", "Output", "Waiting", "Credentials", "Wire"
"""The sections of the help in which these options stand."""


def _option(section: str, *names: str, **attributes: Any) -> Callable[[F], F]:
    """Declare an option that can also come from the environment or a file; its default is applied in Settings."""
    return shared_option(section, *names, **{"default": None, **attributes})


_AGENT_OPTIONS = (
    _option(
        _AGENT,
        *("-a", "--agent-card"),
        metavar="REF",
        shell_complete=complete_references,
        help="The agent: a host, an origin, a URL or a file of its card, a catalog entry, or grpc://host:port.  "
        "[A2ACLI_AGENT_CARD]",
    ),
    _option(
        _AGENT,
        "--config",
        metavar="FILE",
        shell_complete=complete_files,
        help="Read settings from FILE instead of the nearest .env.",
    ),
    _option(
        _OUTPUT,
        *("-o", "--output"),
        metavar="text|json",
        shell_complete=complete_words(*OUTPUTS),
        help="Output format.  [default: text]",
    ),
    _option(_OUTPUT, "--verbose", is_flag=True, help="Show everything that was exchanged.  [default: concise]"),
    _option(_OUTPUT, "--debug", is_flag=True, help="Log the messages on the wire to stderr, without credentials."),
    _option(_CREDENTIALS, "--bearer", metavar="TOKEN", help=f"Bearer token.  [A2ACLI_BEARER] {EXPOSED}, or a file."),
    _option(_CREDENTIALS, "--api-key", metavar="KEY", help=f"API key.  [A2ACLI_API_KEY] {EXPOSED}, or a file."),
    _option(
        _CREDENTIALS,
        "--client-cert",
        metavar="FILE",
        folds=True,
        shell_complete=complete_files,
        help="Certificate to show in mutual TLS, as PEM.",
    ),
    _option(
        _CREDENTIALS,
        "--client-key",
        metavar="FILE",
        folds=True,
        shell_complete=complete_files,
        help="Private key of --client-cert, if that file does not hold it.",
    ),
    _option(
        _WIRE,
        "--a2a-version",
        metavar="VERSION",
        shell_complete=complete_words("1.0", "0.3"),
        help="Protocol version to speak.  [default: the highest that both speak, never below 1.0]",
    ),
    _option(
        _WIRE,
        "--transport",
        multiple=True,
        metavar="BINDING",
        shell_complete=complete_words("JSONRPC", "HTTP+JSON", "GRPC"),
        help="Preferred binding: JSONRPC, HTTP+JSON or GRPC; repeatable, the first wins.  [default: the card's order]",
    ),
    _option(
        _WIRE,
        "--insecure",
        is_flag=True,
        help="Do not verify TLS certificates. For development only.  [default: verified]",
    ),
    _option(
        _WIRE,
        "--ca-cert",
        metavar="FILE",
        folds=True,
        shell_complete=complete_files,
        help="Trust the certificate authorities in this PEM file.  [default: the system's]",
    ),
    _option(
        _WIRE,
        "--dialect",
        metavar="NAME",
        folds=True,
        shell_complete=complete_words("beeos", "kaos", "evoai", "protoagent"),
        help="Speak a vendor's dialect at this URL, without a card: beeos, kaos, evoai or protoagent.",
    ),
    _option(
        _WIRE,
        "--svc-param",
        multiple=True,
        metavar="KEY:VALUE",
        folds=True,
        help="Add a service parameter: a header, or gRPC metadata; repeatable.",
    ),
    _option(
        _WIRE,
        "--extension",
        multiple=True,
        metavar="URI",
        folds=True,
        help="Declare support for a protocol extension; repeatable.",
    ),
    _option(
        _WIRE,
        "--trust-origin",
        multiple=True,
        metavar="ORIGIN",
        folds=True,
        help="Also send credentials to this origin, if the card names it; repeatable.",
    ),
)
"""Options of every command that talks to an agent."""

POLLING = "poll_interval"

_WAITING_OPTIONS = (
    _option(
        _WAIT,
        "--poll-interval",
        metavar="DURATION",
        help="How often the agent is asked for the state of a task.  [default: 2s]",
    ),
    _option(
        _WAIT, "--timeout", metavar="DURATION", help="Give up after this time, such as 30s or 5m.  [default: none]"
    ),
)

_NO_CALL = ("bearer", "api_key", "a2a_version", "transport", "dialect", "svc_param", "extension", POLLING)

LOGIN_IDLE = ("verbose", "debug", *_NO_CALL)
"""Options that do nothing where only the issuer of tokens is called."""

_NOBODY = ("timeout", "debug", "client_cert", "client_key", "insecure", "ca_cert", "trust_origin", *_NO_CALL)

OFFLINE_IDLE = ("verbose", *_NOBODY)
"""Options that do nothing where nobody is called."""

LISTENING_IDLE = ("agent_card", *_NOBODY)
"""Options that do nothing where agents call."""


def agent_options(command: F) -> F:
    """Add the options that name an agent and say how to talk to it."""
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


def waiting_options(command: F) -> F:
    """Add the options for a wait."""
    for option in reversed(_WAITING_OPTIONS):
        command = option(command)
    return command


def client_command(
    group: click.Group | None = None,
    name: str | None = None,
    *,
    connects: bool = True,
    lines: bool = False,
    idle: Collection[str] = (),
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], click.Command]:
    """Make a command of its work, a coroutine function. Its options are its own, then those of a wait and of an agent.

    The work gets a session, or the settings and the output if it `connects` to no agent, and the values of those
    options and arguments that it names. JSON is one object a line with `lines`, or with the option `--stream`. Options
    that are `idle` here are accepted, and not offered.
    """

    def declare(work: Callable[..., Coroutine[Any, Any, None]]) -> click.Command:
        own = work.__dict__.pop("__click_params__", [])
        arguments = {each.name for each in own if isinstance(each, click.Argument)}
        named = list(signature(work).parameters)[1 if connects else 2 :]

        @wraps(work)
        def run(**values: Any) -> None:
            from dragoman.cli.a2a.session import run_command, run_session

            given = {each: values[each] for each in named}
            options = {each: value for each, value in values.items() if each not in arguments}
            by_line = lines or bool(values.get("stream"))
            if connects:
                run_session(options, lambda session: work(session, **given), lines=by_line)
            else:
                run_command(options, lambda settings, output, _: work(settings, output, **given), lines=by_line)

        agent_options(waiting_options(run))
        vars(run)["__click_params__"] += own  # click shows the last first
        command = click.command(name, cls=ClientCommand, idle=idle)(run)
        if group is not None:
            group.add_command(command)
        return command

    return declare


class ClientCommand(Command):
    """A command whose usage errors keep to the output that was asked for (a2a-cli §9.4).

    It accepts all options of client commands (§5.2), and offers those that are not `idle`.
    """

    def __init__(self, *args: Any, idle: Collection[str] = (), **given: Any) -> None:
        for option in given.get("params", ()):
            if isinstance(option, SharedOption) and option.name in idle:
                option.hidden = True
        super().__init__(*args, **given)

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
            refuse(Unusable(str(error), ctx), tuple(_json_words(ctx)))


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
