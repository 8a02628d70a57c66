"""`dragoman admin agents`: the agents that a server serves, their switches, and those that are added while it runs.

Invariant: the commands ask the server, which alone knows what it serves. A switch changes on all servers of its store.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dragoman.admin.overview import LIST_AGENTS
from dragoman.cli.admin import added_agents
from dragoman.cli.admin.completion import complete_agents
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.command import Group
from dragoman.cli.listing import Listing, lists, rows_of
from dragoman.cli.tables import output, print_json, printable, second, table

if TYPE_CHECKING:
    from dragoman.admin.overview import AgentLine
    from dragoman.admin.switches import Switch, SwitchLine


def listed_alone(command: Callable[..., None]) -> Callable[..., None]:
    """Leave a group's own list out where one of its commands runs. Options of the list have no place before that."""

    @click.pass_context
    @wraps(command)
    def alone(ctx: click.Context, /, **given: Any) -> None:
        if ctx.invoked_subcommand is None:
            command(**given)
            return
        for parameter in ctx.command.params:
            if ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"{parameter.opts[0]}: options go behind the command {ctx.invoked_subcommand}", ctx
                )

    return alone


@click.group(cls=Group, invoke_without_command=True)
@listed_alone
@lists(limit=None, cut=True)
@with_server
def agents(place: TaskPlace) -> Listing:
    """Show the served agents, and how many tasks they have.

    The list says which agents cannot do all of their work, and which an operator has taken out of service: since when,
    who and why. The commands below take agents out of service and add agents. A switch holds on all servers of the
    store, and survives a restart.

    Examples:
      dragoman admin agents
      dragoman admin agents drain weather --reason "new version"
    """
    found = place.ask(LIST_AGENTS, None)
    known = {each.id: each.switch for each in found.agents}
    known |= {f"{each.id}/{member.name}": member.switch for each in found.agents for member in each.members}
    switched = [_switch_row(name, switch) for name, switch in known.items() if switch is not None]
    below = table(("AGENT", "SWITCH", "RUNNING", "SINCE", "BY", "REASON"), switched) if switched else ""
    return rows_of(LIST_AGENTS, found, words={"switch": _switch_word}, below=below)


def _switch_word(line: "AgentLine") -> str:
    return "-" if line.switch is None else line.switch.state


def _switch_row(agent: str, switch: "Switch") -> tuple[str, ...]:
    running = switch.running if switch.state == "disabled" else "finish"
    return agent, switch.state, running, second(switch.at), switch.by, switch.reason


with_reason = click.option("--reason", metavar="TEXT", default="", help="Reason, shown to other operators.")


@agents.command()
@click.argument("agent", metavar="ID", shell_complete=complete_agents)
@with_reason
@output
@with_server
def drain(place: TaskPlace, agent: str, reason: str, form: str) -> None:
    """Let the agent ID accept no new task.

    ID/MEMBER names a member of its pool. Its tasks continue: running tasks, answers to its questions, and messages to
    its tasks. Callers who begin a task are told that the agent is offline.

    Examples:
      dragoman admin agents drain weather --reason "new version"
      dragoman admin agents drain weather/eu-1
    """
    from dragoman.admin.switches import DRAIN_AGENT, DRAIN_MEMBER, SwitchReason

    question = DRAIN_MEMBER if "/" in agent else DRAIN_AGENT
    _tell(place.ask(question, SwitchReason(reason=reason), agent), form, "it takes no new task")


@agents.command()
@click.argument("agent", metavar="ID", shell_complete=complete_agents)
@click.option(
    "--running",
    type=click.Choice(("cancel", "finish")),
    default="cancel",
    show_default=True,
    help="Cancel the running tasks of the agent at once, or let them finish.",
)
@with_reason
@output
@with_server
def disable(place: TaskPlace, agent: str, running: str, reason: str, form: str) -> None:
    """Let the agent ID accept nothing.

    ID/MEMBER names a member of its pool. No task, answer or message reaches the agent, and its workers get no work. Its
    running tasks are canceled at once. Tasks that wait for their callers, sleep or are queued stay as they are until
    the agent is enabled.

    Examples:
      dragoman admin agents disable sum --reason "adds wrong"
      dragoman admin agents disable sum --running finish
    """
    from dragoman.admin.switches import DISABLE_AGENT, DISABLE_MEMBER, SwitchOrder

    order = SwitchOrder(reason=reason, running="finish" if running == "finish" else "cancel")
    then = "what it works on is canceled" if order.running == "cancel" else "what it works on may end"
    question = DISABLE_MEMBER if "/" in agent else DISABLE_AGENT
    _tell(place.ask(question, order, agent), form, f"it takes nothing, and {then}")


@agents.command()
@click.argument("agent", metavar="ID", shell_complete=complete_agents)
@with_reason
@output
@with_server
def enable(place: TaskPlace, agent: str, reason: str, form: str) -> None:
    """Let the agent ID accept tasks again.

    ID/MEMBER names a member of its pool. The agent continues with the tasks that waited.

    Examples:
      dragoman admin agents enable weather
      dragoman admin agents enable weather/eu-1 --reason "repaired"
    """
    from dragoman.admin.switches import ENABLE_AGENT, ENABLE_MEMBER, SwitchReason

    question = ENABLE_MEMBER if "/" in agent else ENABLE_AGENT
    _tell(place.ask(question, SwitchReason(reason=reason), agent), form, "it takes tasks")


def _tell(switched: "SwitchLine", form: str, then: str) -> None:
    if form == "json":
        print_json(switched)
    else:
        name = f"{switched.agent}/{switched.member}" if switched.member else switched.agent
        click.echo(f"{printable(name)} is {switched.state}: {then}.")


for command in (
    *(added_agents.add, added_agents.change, added_agents.remove, added_agents.restore),
    *(added_agents.added, added_agents.show, added_agents.versions),
):
    agents.add_command(command)
