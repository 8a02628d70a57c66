"""`dragoman demo`: shows on this machine what Dragoman promises.

Invariant: it needs no key and no network, and leaves nothing behind.
"""

from typing import TYPE_CHECKING

import click

from dragoman.cli.arguments import Seconds, WholeNumber
from dragoman.cli.command import Group
from dragoman.cli.tables import json_flag, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.demo.contest import Contest
    from dragoman.cli.demo.counted import Counted

TEXT = "Do the work"

AFTER_S = 3.0

POSTGRES = ("postgresql://", "postgres://")

ELSEWHERE = ("a2a:", "openai:", "worker", "command:")


@click.group(cls=Group)
def demo() -> None:
    """Show on this machine what Dragoman promises.

    Examples:
      dragoman demo kill
      dragoman demo kill agents.py:agent --text "Write a report" --after 5
    """


@demo.command()
@click.argument("agent", required=False, metavar="[MODULE:OBJECT]")
@click.option("--text", metavar="TEXT", default=TEXT, show_default=True, help="Message that is sent.")
@click.option(
    "--after",
    type=Seconds(0.1, 3600),
    metavar="SECONDS",
    help=f"Time from the first event of your agent to the kill.  [default: {AFTER_S:.0f}]",
)
@click.option(
    "--step",
    type=Seconds(0.02, 60),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="Time that each of the twenty steps takes.",
)
@click.option(
    "--replicas",
    type=WholeNumber(2, 9),
    metavar="N",
    help="Run N servers on the database of --store. The one that has the task is killed, and stays away.",
)
@click.option("--store", metavar="URL", help="PostgreSQL database for --replicas. Both systems make tables in it.")
@click.option("--alone", is_flag=True, help="Leave the official SDK out, although it is installed.")
@json_flag("what was counted, an object for each column")
def kill(
    agent: str | None,
    text: str,
    after: float | None,
    step: float,
    replicas: int | None,
    store: str | None,
    alone: bool,
    as_json: bool,
) -> None:
    """Kill a server in the middle of a task, and count what was lost.

    The task has twenty steps; SIGKILL cuts step 11. If the official SDK is installed, its server and client do the same
    beside it, with the SDK's own database stores. It takes some 40 seconds. The exit status is 1 if Dragoman lost
    anything, did a finished step again, or did not complete the task.

    An agent, a graph or an executor of yours is shown instead of the steps, unless it needs keys or a network. An agent
    has to continue after a crash, with restartable=True or steps.

    Examples:
      dragoman demo kill
      dragoman demo kill agents.py:agent --text "Write a report" --after 5
      dragoman demo kill --replicas 3 --store postgresql://localhost/demo
    """
    import asyncio

    from dragoman.cli.demo.column import DemoPlan
    from dragoman.cli.demo.contest import Contest, DemoRefused
    from dragoman.cli.demo.process import ServerFailed
    from dragoman.cli.demo.screen import Screen

    if agent is None and after is not None:
        raise click.UsageError("--after is for an agent of yours: the demo's own work is cut in step 11")
    if agent is not None and agent.startswith(ELSEWHERE):
        raise click.UsageError(f"{agent} is elsewhere, and may need keys or a network: name an agent in Python")
    if (replicas is None) != (store is None):
        raise click.UsageError("--replicas and --store go together: replicas share a database of PostgreSQL")
    if store is not None and not store.startswith(POSTGRES):
        raise click.UsageError(f"--store {store!r} is no database of PostgreSQL: write postgresql://HOST/DATABASE")
    if replicas is not None and agent is not None:
        raise click.UsageError("--replicas is for the demo's own work, whose steps tell which replica has the task")
    plan = DemoPlan(
        text=text, agent=agent or "", step_s=step, after_s=after or AFTER_S, replicas=replicas or 1, store=store or ""
    )
    beside_sdk = not alone and _has_sdk_column(plan.agent)
    screen = Screen(quiet=as_json)
    if not (alone or beside_sdk or as_json):
        click.echo(_why_alone(plan.agent))
    try:
        counted = asyncio.run(_run(Contest(plan, beside_sdk=beside_sdk, screen=screen)))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except (ServerFailed, DemoRefused) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(counted)
    else:
        screen.show(counted)
    if not counted[0].whole:
        raise SystemExit(1)


async def _run(contest: "Contest") -> "Sequence[Counted]":
    """Run it. The signals of a closed terminal and of `kill` end it as Ctrl-C does, so that nothing is left behind."""
    import asyncio
    import signal

    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    return await contest.run()


def _has_sdk_column(agent: str) -> bool:
    """Whether the official SDK is installed, and can do the task, too."""
    from dragoman.cli.demo.sdk_column import is_installed

    return is_installed() and (not agent or _is_executor(agent))


def _is_executor(reference: str) -> bool:
    """Whether a reference names an executor of the SDK, or its class."""
    from dragoman.cli.demo.sdk_column import is_executor
    from dragoman.cli.loader import look_in_working_directory
    from dragoman.cli.references import AgentReferenceError, load_object

    look_in_working_directory()
    try:
        found = load_object(reference)
    except AgentReferenceError as error:
        raise click.UsageError(str(error)) from error
    return is_executor(found if isinstance(found, type) else type(found))


def _why_alone(agent: str) -> str:
    from dragoman.cli.demo.sdk_column import INSTALL, is_installed

    if agent and is_installed():
        return "A server of the official SDK serves executors alone, so there is one column.\n"
    return f"For the official SDK's column beside it: {INSTALL}\n"
