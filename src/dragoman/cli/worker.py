"""`dragoman worker`: run Python agents in this process, on the tasks that a server has for them.

Invariant: nothing listens here. The worker calls the server, so it may run behind any firewall.
"""

import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dragoman.cli.arguments import EXPOSED, Seconds, ServerUrl, WholeNumber, complete_files, secret_of
from dragoman.cli.command import Command
from dragoman.cli.command_table import collections_paused
from dragoman.cli.endings import Unusable

if TYPE_CHECKING:
    from dragoman.engine.api import Runner
    from dragoman.net.egress import Egress

KEY_ENV = "DRAGOMAN_API_KEY"
SERVER_ENV = "DRAGOMAN_SERVER"

KEY_HELP = f"Key of the role agent, or an api_key, if the server asks for one.  [{KEY_ENV}] {EXPOSED}, or --key-file."

REACH_S = 3.0
"""How long a server may take to accept a connection before the worker says that it does not answer."""

ANSWER_BYTES_MAX = 512 * 1024 * 1024
"""Largest answer of the server: a task comes with its message, its conversation and its artifacts, files included."""


CLOSING_S = 3.0
"""How long a worker takes at most, after its tasks have had their time, to give them back and to end."""


@click.command(
    cls=Command,
    epilog='The server declares each agent as [[agents]] with run = "worker" and the id that the agent has here. '
    "See docs/workers.md.",
)
@click.argument("references", nargs=-1, metavar="[[ID=]MODULE:AGENT]...", shell_complete=complete_files)
@click.option(
    "--agents",
    "more",
    multiple=True,
    metavar="[ID=]MODULE:AGENT",
    help="Agent to run, as in the arguments; repeatable.",
)
@click.option(
    "--server",
    "servers",
    required=True,
    multiple=True,
    envvar=SERVER_ENV,
    type=ServerUrl(),
    metavar="URL",
    help=f"Address of the server; repeatable for servers that share a store. The next one is called when one does not "
    f"answer.  "
    f"[{SERVER_ENV}]",
)
@click.option("--key", envvar=KEY_ENV, metavar="KEY", help=KEY_HELP)
@click.option(
    "--key-file",
    envvar=f"{KEY_ENV}_FILE",
    metavar="FILE",
    shell_complete=complete_files,
    help=f"File that holds nothing but the key.  [{KEY_ENV}_FILE]",
)
@click.option("--name", metavar="NAME", help="Name of this worker at the server.  [default: host and process id]")
@click.option(
    "--tasks",
    type=WholeNumber(1, 10_000),
    default=4,
    show_default=True,
    metavar="N",
    help="Most tasks of each agent at a time.",
)
@click.option(
    "--grace-s",
    type=Seconds(0, 86_400),
    default=5.0,
    show_default=True,
    metavar="S",
    help="How long tasks may continue after SIGTERM. Then the server gets them back, and the process ends within 3 s.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
    help="Lowest level that is logged.",
)
@click.option(
    "--log-format", type=click.Choice(("text", "json")), default="text", show_default=True, help="Format of the log."
)
def worker(
    references: tuple[str, ...],
    more: tuple[str, ...],
    servers: tuple[str, ...],
    key: str | None,
    key_file: str | None,
    name: str | None,
    tasks: int,
    grace_s: float,
    log_level: str,
    log_format: str,
) -> None:
    """Run the tasks of agents whose server is elsewhere.

    An agent is MODULE:AGENT or path/to/file.py:AGENT, of Dragoman or of an agent framework; without :AGENT, every agent
    in the module is run. ID=MODULE:AGENT runs it as the server's agent ID. Several workers may run the same agent: each
    task goes to one of them.

    Examples:
      dragoman worker agent.py:agent --server localhost:7870
      dragoman worker weather=forecasts:agent --server https://agents.example.org --key-file key.txt
    """
    key = secret_of("key", key, key_file)
    if not (more or references):
        raise click.UsageError("no agents: name one as MODULE:OBJECT or file.py:OBJECT")
    with collections_paused():
        import asyncio

        from dragoman.cli.loader import load_agents
        from dragoman.cli.references import AgentReferenceError
        from dragoman.server.agent_exits import run_to_end
        from dragoman.telemetry.logs import log_to

        try:
            agents = load_agents((), (*more, *references), None)
        except AgentReferenceError as error:
            raise Unusable(str(error)) from error
    if fault := _direct_fault(agents):
        raise Unusable(fault)
    log_to(sys.stderr, log_level, log_format)
    told = name or f"{socket.gethostname()}/{os.getpid()}"
    try:
        with asyncio.Runner() as runner:
            run_to_end(runner, _work(agents, servers, key, told, tasks, grace_s))
    except ExceptionGroup as group:
        reasons = "; ".join(dict.fromkeys(_explain(error) for error in _leaves(group)))
        raise SystemExit(f"dragoman: {reasons}") from group


async def _work(
    agents: Sequence["Runner"], servers: Sequence[str], key: str | None, name: str, tasks: int, grace_s: float
) -> None:
    import asyncio

    from dragoman.agents.lifespans import LifespanError, Lifespans
    from dragoman.agents.worker.lessee import Lessee, WorkerApi
    from dragoman.net.egress import Egress
    from dragoman.server.process import LEAVE_S, leave_after
    from dragoman.telemetry.job_group import JobGroup

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    opening = asyncio.current_task()

    def stopping() -> None:
        if not stop.is_set():
            stop.set()
            if opening is not None:  # what agents need may take long to open
                opening.cancel()
            leave_after(grace_s + CLOSING_S, "stopping: an agent ignores its cancellation and is left behind")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping)
    egress = Egress(max_answer_bytes=ANSWER_BYTES_MAX, connections_max=0)  # each task has a long-polling call
    lifespans = Lifespans()
    try:
        async with asyncio.TaskGroup() as beside:
            jobs = JobGroup(beside)
            try:
                await lifespans.enter(jobs, agents)
            except LifespanError as error:  # what they open may ignore its cancellation
                leave_after(LEAVE_S, f"dragoman: {error}", status=1)
                raise
            opening = None
            try:
                if fault := _direct_fault(agents):  # those of agents that a factory has just made
                    raise LifespanError(fault)
                await asyncio.gather(*(agent.open(jobs) for agent in agents))
                async with asyncio.TaskGroup() as group:
                    for agent in agents:
                        api = WorkerApi(egress, servers[0], agent.profile.id, key, others=servers[1:])
                        group.create_task(Lessee(agent, api, name=name, tasks=tasks).work(stop, grace_s))
                    ids, places = ", ".join(agent.profile.id for agent in agents), ", ".join(servers)
                    if await _answers(egress, servers):
                        click.echo(f"Working for {places} as {name}: {ids}. Ctrl-C stops it.")
                    else:
                        click.echo(
                            f"dragoman: no server answers at {places}: is it running there? The worker {name} waits "
                            f"for it, to work as {ids}. Ctrl-C stops it.",
                            err=True,
                        )
            finally:
                try:
                    await asyncio.gather(*(agent.close() for agent in agents))
                finally:
                    await lifespans.leave(agents)
    except asyncio.CancelledError:
        if opening is None or not stop.is_set():
            raise
    finally:
        await egress.close()


def _direct_fault(agents: Sequence["Runner"]) -> str:
    """The fault of agents that decide between a message and a task; empty if there is none."""
    direct = [agent.profile.id for agent in agents if agent.traits.direct == "auto" and not agent.traits.leasable]
    if not direct:
        return ""
    return f'{", ".join(direct)}: direct="auto" is not for workers, whose tasks are leased: leave it out'


async def _answers(egress: "Egress", servers: Sequence[str]) -> bool:
    """Whether one of the servers accepts a connection."""
    from dragoman.net.errors import EgressError

    for server in servers:
        try:
            await egress.reach(server, timeout_s=REACH_S)
        except EgressError:
            continue
        return True
    return False


def _explain(error: Exception) -> str:
    """Say what ended the worker, and which option helps."""
    from dragoman.agents.worker.lessee import CallRefused

    if isinstance(error, CallRefused) and error.unidentified:
        return (
            f"{error}; give the worker a key: --key or {KEY_ENV} (`dragoman keys create NAME --role agent` makes one)"
        )
    # For an agent that is none of workers the server names the fix itself.
    if isinstance(error, CallRefused) and error.unknown and "run = " not in str(error):
        return f'{error}; declare it in the file of the server: [[agents]] with this id and run = "worker"'
    return str(error)


def _leaves(group: ExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, ExceptionGroup) else [error])
    return found
