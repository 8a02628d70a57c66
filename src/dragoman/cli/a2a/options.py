"""The options that client commands share, and commands made of their work, which report failures in the chosen output.

Invariant: every option can come from the environment or a file except `--stream`, `--help` and `--version`, which
change what a command does (a2a-cli §5.2). A failure is one error document with `-o json`, and one line with `text`.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from inspect import signature
from typing import Any, NoReturn, TypeVar

import click

from dragoman.cli.a2a.settings import OUTPUTS, SettingsError
from dragoman.cli.arguments import EXPOSED, complete_files, complete_words
from dragoman.cli.endings import Code, asks_for_json, help_hint, usage_text

F = TypeVar("F", bound=Callable[..., Any])


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


def client_command(
    group: click.Group | None = None, name: str | None = None, *, connects: bool = True, lines: bool = False
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], click.Command]:
    """Make a command of its work, a coroutine function. Its options are its own, then those of a wait and of an agent.

    The work gets a session, or the settings and the output if it `connects` to no agent, and the values of those
    options and arguments that it names. JSON is one object a line with `lines`, or with the option `--stream`.
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

        waiting_options(agent_options(run))
        vars(run)["__click_params__"] += own  # click shows the last first
        command = click.command(name, cls=ClientCommand)(run)
        if group is not None:
            group.add_command(command)
        return command

    return declare


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
