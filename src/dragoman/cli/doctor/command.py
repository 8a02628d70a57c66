"""`dragoman doctor`: what an agent gets wrong, and what to change.

Invariant: without `--active` no message is sent. The exit status follows from the findings alone.
"""

from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.options import ClientCommand, agent_options, waiting_options

if TYPE_CHECKING:
    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.session import KnownTask
    from dragoman.cli.a2a.settings import Settings


@click.command(cls=ClientCommand)
@click.argument("agent", metavar="[URL]", required=False)
@click.option(
    "--fail-on",
    type=click.Choice(["red", "yellow", "never"]),
    default="red",
    show_default=True,
    help="Exit with 1 if a finding has this colour or a worse one.",
)
@waiting_options
@agent_options
def doctor(agent: str | None, fail_on: str, **options: Any) -> None:
    """Examine an agent of anybody: what it is, what it gets wrong, and how to correct it.

    It fetches the card, and asks every endpoint for what changes nothing there. No message is sent.
    """
    from dragoman.cli.a2a.session import run_command

    if agent is not None:
        if options.get("agent_card") is not None:
            raise click.UsageError("the agent is named twice: give its URL, or --agent-card")
        options["agent_card"] = agent
    failed = []

    async def work(settings: "Settings", output: "Output", task: "KnownTask") -> None:
        failed.append(await _examine(settings, output, fail_on))

    run_command(options, work)
    if any(failed):
        raise SystemExit(1)


async def _examine(settings: "Settings", output: "Output", fail_on: str) -> bool:
    from dragoman.cli.doctor.checks import CHECKS
    from dragoman.cli.doctor.finding import judge_all
    from dragoman.cli.doctor.identity import identify
    from dragoman.cli.doctor.observer import observe
    from dragoman.cli.doctor.report import fails, report_lines, report_value

    seen = await observe(settings)
    findings, identity = judge_all(CHECKS, seen), identify(seen)
    lines = report_lines(seen, identity, findings, verbose=settings.flag("verbose"))
    output.value(report_value(seen, identity, findings), lines)
    return fails(findings, fail_on)
