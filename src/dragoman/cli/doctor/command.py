"""`dragoman doctor` and `dragoman conformance`: what an agent gets wrong, and what to change.

Invariant: without `--active` the doctor sends no message. The exit status follows from the findings alone.
"""

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.options import ClientCommand, agent_options, waiting_options
from dragoman.cli.arguments import EXPOSED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.session import KnownTask
    from dragoman.cli.a2a.settings import Settings
    from dragoman.doctor.trial import Wish


_text = click.option("--text", metavar="TEXT", help="Text of the messages.  [default: Hello]")
_second_key = click.option(
    "--second-key",
    metavar="KEY",
    envvar="A2ACLI_SECOND_KEY",
    help=f"Key of another caller, who must not see the first one's tasks.  [A2ACLI_SECOND_KEY] {EXPOSED}.",
)
_interface = click.option(
    "--interface",
    metavar="WHICH",
    help="The interface that messages go to: JSONRPC, HTTP+JSON or GRPC, also with a version (JSONRPC/0.3), a URL of "
    "the card, or `every`.  [default: as for `send`]",
)


@click.command(cls=ClientCommand)
@click.argument("agent", metavar="[URL]", required=False)
@click.option(
    "--fail-on",
    type=click.Choice(["red", "yellow", "never"]),
    default="red",
    show_default=True,
    help="Exit with 1 if a finding has this colour or a worse one.",
)
@click.option("--active", is_flag=True, help="Send a handful of messages, too, which may cost money.")
@_text
@_interface
@click.option("--probe-webhooks", is_flag=True, help="With --active: try to register a webhook at the agent's machine.")
@_second_key
@waiting_options
@agent_options
def doctor(
    agent: str | None,
    fail_on: str,
    active: bool,
    text: str | None,
    interface: str | None,
    probe_webhooks: bool,
    second_key: str | None,
    **options: Any,
) -> None:
    """Say what is wrong with an agent, and how to correct it.

    It fetches the card, and asks every endpoint for what changes nothing there. Without --active no message is sent.
    """
    for given, name in (
        (text, "--text"),
        (interface, "--interface"),
        (probe_webhooks, "--probe-webhooks"),
        (second_key, "--second-key"),
    ):
        if given and not active:
            raise click.UsageError(f"{name} is for messages: add --active")
    wish = _wish(text, interface, webhooks=probe_webhooks) if active else None
    _run(agent, options, lambda settings, output: _examine(settings, output, fail_on, wish, second_key or ""))


@click.command(cls=ClientCommand)
@click.argument("agent", metavar="[URL]", required=False)
@_text
@_interface
@_second_key
@waiting_options
@agent_options
def conformance(
    agent: str | None, text: str | None, interface: str | None, second_key: str | None, **options: Any
) -> None:
    """Send a live agent messages, and check it against A2A.

    It is a smoke check of the rules that A2A's TCK tests. The exit status is 1 if one of them is broken.
    """
    _run(agent, options, lambda settings, output: _conform(settings, output, _wish(text, interface), second_key or ""))


def _run(agent: str | None, options: dict[str, Any], work: "Callable[[Settings, Output], Awaitable[bool]]") -> None:
    """Run a command on the agent that an argument or `--agent-card` names; exit with 1 if `work` says that it fails."""
    from dragoman.cli.a2a.session import run_command

    if agent is not None:
        if options.get("agent_card") is not None:
            raise click.UsageError("the agent is named twice: give its URL, or --agent-card")
        options["agent_card"] = agent
    failed = []

    async def once(settings: "Settings", output: "Output", task: "KnownTask") -> None:
        failed.append(await work(settings, output))

    run_command(options, once)
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

    seen = await examine_named(settings, wish, second_key)
    rules, identity = judge_rules(CHECKS, seen), identify(seen)
    output.value(conformance_value(seen, identity, rules), conformance_lines(seen, identity, rules))
    return any(rule.result == "fail" for rule in rules)


async def _examine(settings: "Settings", output: "Output", fail_on: str, wish: "Wish | None", second_key: str) -> bool:
    from dragoman.cli.doctor.report import drawn_lines, fails, report_lines, report_value
    from dragoman.cli.doctor.subject import examine_named
    from dragoman.doctor.checks import CHECKS
    from dragoman.doctor.finding import judge_all
    from dragoman.doctor.identity import identify

    seen = await examine_named(settings, wish, second_key)
    findings, identity = judge_all(CHECKS, seen), identify(seen)
    lines: Iterable[str] = report_lines(seen, identity, findings, verbose=settings.flag("verbose"))
    if sys.stdout.isatty():
        lines = drawn_lines(lines, shutil.get_terminal_size().columns, colored=not os.environ.get("NO_COLOR"))
    output.value(report_value(seen, identity, findings), lines)
    return fails(findings, fail_on)
