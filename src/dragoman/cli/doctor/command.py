"""`dragoman doctor` and `dragoman conformance`: what an agent gets wrong, and what to change.

Invariant: without `--active` the doctor sends no message. The exit status follows from the findings alone, and with
`--watch` from none.
"""

import os
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dragoman.cli.a2a.completion import complete_references
from dragoman.cli.a2a.options import POLLING, ClientCommand, agent_options, waiting_options
from dragoman.cli.arguments import EXPOSED, Seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.session import KnownTask
    from dragoman.cli.a2a.settings import Settings
    from dragoman.doctor.finding import Evidence
    from dragoman.doctor.identity import ServerIdentity
    from dragoman.doctor.observation import Observations
    from dragoman.doctor.trial import Wish

WATCH_S = 10.0
"""The seconds between two examinations of `--watch`."""

_text = click.option("--text", metavar="TEXT", help="Text of the messages that are sent.  [default: Hello]")
_second_key = click.option(
    "--second-key",
    metavar="KEY",
    envvar="A2ACLI_SECOND_KEY",
    help=f"API key of another caller, who must not see the tasks of the first.  [A2ACLI_SECOND_KEY] {EXPOSED}.",
)
_interface = click.option(
    "--interface",
    metavar="WHICH",
    help="Interface that messages are sent to: JSONRPC, HTTP+JSON or GRPC, also with a version (JSONRPC/0.3), a URL of "
    "the card, or `every`.  [default: as for `send`]",
)


@click.command(cls=ClientCommand, idle=(POLLING,))
@click.argument("agent", metavar="[URL]", required=False, shell_complete=complete_references)
@click.option(
    "--fail-on",
    type=click.Choice(["red", "yellow", "never"]),
    default="red",
    show_default=True,
    help="Exit with 1 if a finding is of this colour or worse.",
)
@click.option("--explain", is_flag=True, help="Show the request and the response behind each red or yellow finding.")
@click.option("--active", is_flag=True, help="Also send a handful of messages, which may cost money.")
@_text
@_interface
@click.option(
    "--probe-webhooks",
    is_flag=True,
    help="With --active: register one webhook on the agent's machine, and one on this machine, which the agent must "
    "call.",
)
@_second_key
@click.option(
    "--watch", is_flag=True, help="Examine the agent again and again until Ctrl-C, and print what has changed."
)
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(1, 86_400),
    metavar="S",
    help=f"With --watch: seconds between two examinations.  [default: {WATCH_S:g}]",
)
@agent_options
@waiting_options
def doctor(
    agent: str | None,
    fail_on: str,
    explain: bool,
    active: bool,
    text: str | None,
    interface: str | None,
    probe_webhooks: bool,
    second_key: str | None,
    watch: bool,
    interval_s: float | None,
    **options: Any,
) -> None:
    """Say what is wrong with an agent, and how to correct it.

    The command fetches the card, and sends every endpoint requests that change nothing there. Without --active it sends
    no message.

    Examples:
      dragoman doctor https://agent.example
      dragoman doctor localhost:7870 --active --explain
    """
    for given, name in (
        (text, "--text"),
        (interface, "--interface"),
        (probe_webhooks, "--probe-webhooks"),
        (second_key, "--second-key"),
    ):
        if given and not active:
            raise click.UsageError(f"{name} is for messages: add --active")
    if interval_s is not None and not watch:
        raise click.UsageError("--interval: goes with --watch")
    wish = _wish(text, interface, webhooks=probe_webhooks) if active else None
    order = _Order(fail_on, explain, wish, second_key or "")
    if watch:
        _run(agent, options, partial(_watch, order=order, interval_s=interval_s or WATCH_S), endless=True)
    else:
        _run(agent, options, partial(_examine, order=order))


@click.command(cls=ClientCommand, idle=(POLLING,))
@click.argument("agent", metavar="[URL]", required=False, shell_complete=complete_references)
@_text
@_interface
@_second_key
@agent_options
@waiting_options
def conformance(
    agent: str | None, text: str | None, interface: str | None, second_key: str | None, **options: Any
) -> None:
    """Send a live agent messages, and check it against A2A.

    This is a smoke test of the rules that A2A's TCK tests. The exit status is 1 if the agent breaks one of them.

    Examples:
      dragoman conformance https://agent.example
      dragoman conformance localhost:7870 --interface every -o json
    """
    _run(agent, options, lambda settings, output: _conform(settings, output, _wish(text, interface), second_key or ""))


def _run(
    agent: str | None,
    options: dict[str, Any],
    work: "Callable[[Settings, Output], Awaitable[bool]]",
    *,
    endless: bool = False,
) -> None:
    """Run a command on the agent that an argument or `--agent-card` names; exit with 1 if `work` says that it fails.

    `endless`: it goes on until Ctrl-C, and prints JSON as lines.
    """
    from dragoman.cli.a2a.session import run_command

    if agent is not None:
        if options.get("agent_card") is not None:
            raise click.UsageError("the agent is named twice: give its URL, or --agent-card")
        options["agent_card"] = agent
    failed = []

    async def once(settings: "Settings", output: "Output", task: "KnownTask") -> None:
        failed.append(await work(settings, output))

    run_command(options, once, lines=endless, endless=endless)
    if any(failed):
        raise SystemExit(1)


def _wish(text: str | None, interface: str | None, *, webhooks: bool = False) -> "Wish":
    from dragoman.doctor.trial import TEXT, Wish

    return Wish(text=text or TEXT, webhooks=webhooks, interface=interface or "")


async def _conform(settings: "Settings", output: "Output", wish: "Wish", second_key: str) -> bool:
    from dragoman.cli.doctor.conformance import conformance_lines, conformance_value, judge_rules
    from dragoman.cli.doctor.subject import examine_named
    from dragoman.doctor.checks import CHECKS
    from dragoman.doctor.identity import identify

    seen, secrets = await examine_named(settings, wish, second_key)
    rules, identity = judge_rules(CHECKS, seen, secrets), identify(seen)
    output.value(conformance_value(seen, identity, rules), conformance_lines(seen, identity, rules))
    return any(rule.result == "fail" for rule in rules)


class _Order(NamedTuple):
    """What the user wants of an examination."""

    fail_on: str
    explain: bool
    wish: "Wish | None"
    second_key: str


async def _examine(settings: "Settings", output: "Output", *, order: _Order) -> bool:
    """Examine the agent once, and print the report. Returns whether the command fails."""
    from dragoman.cli.doctor.report import fails

    report = await _judge(settings, order)
    _print(report, settings, output, order)
    return fails([each.finding for each in report.judged], order.fail_on)


async def _watch(settings: "Settings", output: "Output", *, order: _Order, interval_s: float) -> bool:
    """Examine the agent until Ctrl-C, and print the report each time that its findings are others."""
    import asyncio

    from dragoman.cli.a2a.failures import failure_of
    from dragoman.cli.a2a.output import print_failure
    from dragoman.cli.a2a.settings import SettingsError

    before: object = None
    while True:
        began_s = asyncio.get_running_loop().time()
        try:
            report = await _judge(settings, order)
            told: object = [(each.finding.check, each.finding.where, each.finding.color) for each in report.judged]
            if told != before or output.form == "json":
                _print(report, settings, output, order)
        except SettingsError:
            raise
        except Exception as error:  # noqa: BLE001  the outermost door: an agent that is away now may be back soon
            failure = failure_of(error, credentials_given=False)
            told = failure.message
            if told != before:
                print_failure(failure, output.form)
        before = told
        await asyncio.sleep(max(0.0, began_s + interval_s - asyncio.get_running_loop().time()))


class _Report(NamedTuple):
    """The outcome of an examination."""

    seen: "Observations"
    identity: "ServerIdentity"
    judged: "list[Evidence]"
    secrets: "Sequence[str]"


async def _judge(settings: "Settings", order: _Order) -> _Report:
    from dragoman.cli.doctor.subject import examine_named
    from dragoman.doctor.checks import CHECKS
    from dragoman.doctor.finding import judge_with_evidence
    from dragoman.doctor.fixes import fixes_of
    from dragoman.doctor.identity import identify

    seen, secrets = await examine_named(settings, order.wish, order.second_key)
    identity = identify(seen)
    return _Report(seen, identity, judge_with_evidence(CHECKS, seen, fixes_of(identity), secrets), secrets)


def _print(report: _Report, settings: "Settings", output: "Output", order: _Order) -> None:
    from dragoman.cli.doctor.report import drawn_lines, report_lines, report_value

    lines: Iterable[str] = report_lines(*report, verbose=settings.flag("verbose"), explain=order.explain)
    if sys.stdout.isatty():
        lines = drawn_lines(lines, shutil.get_terminal_size().columns, colored=not os.environ.get("NO_COLOR"))
    output.value(report_value(*report, explain=order.explain), lines)
