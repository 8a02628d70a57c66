"""`dragoman admin status`: what is wrong at present, why, and which command to run.

Invariant: it changes nothing. `find_troubles` is a pure function of what the server tells.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, Literal, TypeVar

import click
from msgspec import Struct

from dragoman.admin.question import Question
from dragoman.cli.admin.server import Desk, ServerRefusal, TaskPlace, with_server
from dragoman.cli.command import Command
from dragoman.cli.endings import Code, CommandFailed, sentence
from dragoman.cli.listing import repeat, repeat_in_place, watch_options
from dragoman.cli.program import program
from dragoman.cli.tables import age, count, output, print_json, print_line, printable

if TYPE_CHECKING:
    from dragoman.admin.budgets import BudgetLine
    from dragoman.admin.overview import AgentLine, Stats, UpstreamLine, WorkerLine
    from dragoman.admin.webhooks import DeliveryLine, PausedHostLine

QUEUE_S = 60.0
"""A task that waits for longer is a fault: the default of the setting `queue_warn_s`."""

DEAD_READ = 200
"""How many dead deliveries are read to find their most frequent cause."""

Level = Literal["fault", "notice"]

Answer = TypeVar("Answer")


class ServerTrouble(Struct, frozen=True, kw_only=True):
    """Something that is wrong, or, as a `notice`, that somebody decided or has yet to decide.

    `cause` is empty if the server does not know it; `command` is what to run next.
    """

    level: Level
    what: str
    cause: str = ""
    command: str


class ServerState(Struct, frozen=True, kw_only=True):
    """What a server tells. What it does not tell the operator of a team is empty."""

    stats: "Stats"
    agents: "tuple[AgentLine, ...]" = ()
    workers: "tuple[WorkerLine, ...]" = ()
    upstreams: "tuple[UpstreamLine, ...]" = ()
    paused: "tuple[PausedHostLine, ...]" = ()
    dead: "tuple[DeliveryLine, ...]" = ()
    budgets: "tuple[BudgetLine, ...]" = ()
    waiting: int = 0
    longest_waiting_s: float = 0.0


class TroubleReport(Struct, frozen=True, kw_only=True):
    """The troubles of a server, faults first. `ok`: there is no fault.

    `replicas` counts the servers on its store that give signs of life.
    """

    ok: bool
    troubles: tuple[ServerTrouble, ...]
    replicas: int


@click.command(cls=Command)
@watch_options
@output
@with_server
def status(place: TaskPlace, watch: bool, interval_s: float | None, form: str) -> None:
    """Show what is wrong now, the cause, and the command to run.

    A FAULT holds up tasks or webhooks. A NOTICE is what an operator has decided, such as a paused host, or has yet to
    decide, such as an answer. The exit status is 1 if there is a fault, and 3 if no server answers.

    Examples:
      dragoman admin status
      dragoman admin status --server https://agents.example.org -o json
    """
    if interval_s is not None and not watch:
        raise click.UsageError("--interval: goes with --watch")
    if not watch:
        report = _report(place)
        if form == "json":
            print_json(report)
        else:
            click.echo(report_text(report))
        if not report.ok:
            raise SystemExit(1)
    elif form == "json":
        repeat(lambda: print_line(_report(place)), interval_s)
    elif sys.stdout.isatty():
        repeat_in_place(lambda: report_text(_report(place)), interval_s)
    else:
        repeat(lambda: click.echo(report_text(_report(place))), interval_s)


def _report(place: TaskPlace) -> TroubleReport:
    _check_served(place)
    state = place.at_desk(_read_state, stored=False)
    found = sorted(
        find_troubles(state, _address(place), named=place.server is not None), key=lambda trouble: trouble.level
    )
    ok = all(each.level != "fault" for each in found)
    return TroubleReport(ok=ok, troubles=tuple(found), replicas=state.stats.replicas - state.stats.silent_replicas)


def _check_served(place: TaskPlace) -> None:
    """End the command if a local store has no server, instead of asking one that has ended."""
    if place.reads_store and not place.is_served():
        raise CommandFailed(
            f"no server runs on the store {place.config.store}: start one with `dragoman serve`, or name a server with "
            "--server",
            Code.UNREACHABLE,
        )


async def _read_state(desk: Desk) -> ServerState:
    from dragoman.admin.budgets import LIST_BUDGETS, BudgetQuery
    from dragoman.admin.overview import LIST_AGENTS, LIST_UPSTREAMS, LIST_WORKERS, SHOW_STATS
    from dragoman.admin.tasks import LIST_INBOX, InboxQuery
    from dragoman.admin.webhooks import LIST_PAUSED_HOSTS, LIST_WEBHOOKS, DeliveryQuery

    async def ask(question: "Question[None, Answer]") -> "Answer | None":
        """The answer; None for the operator of a team who asks about the whole server."""
        try:
            return await desk.answer(question, None)
        except ServerRefusal as error:
            if error.status != 403:
                raise
            return None

    stats = await desk.answer(SHOW_STATS, None)
    workers, upstreams, paused = await ask(LIST_WORKERS), await ask(LIST_UPSTREAMS), await ask(LIST_PAUSED_HOSTS)
    dead = None
    if stats.webhook_calls_dead and paused is not None:
        dead = await desk.answer(LIST_WEBHOOKS, DeliveryQuery(state="dead", limit=DEAD_READ))
    inbox = await desk.answer(LIST_INBOX, InboxQuery(limit=1))
    return ServerState(
        stats=stats,
        agents=(await desk.answer(LIST_AGENTS, None)).agents,
        workers=() if workers is None else workers.workers,
        upstreams=() if upstreams is None else upstreams.upstreams,
        paused=() if paused is None else paused.hosts,
        dead=() if dead is None else dead.deliveries,
        budgets=(await desk.answer(LIST_BUDGETS, BudgetQuery())).budgets,
        waiting=inbox.total,
        longest_waiting_s=max((line.task.age_s for line in inbox.waiting), default=0.0),
    )


def _address(place: TaskPlace) -> str:
    """The address of the server, for commands to paste."""
    from dragoman.store.open import noted_server

    return place.server or noted_server(place.config.store) or "URL"


def find_troubles(state: ServerState, address: str, *, named: bool) -> Iterator[ServerTrouble]:
    """What is wrong on the server at `address`, in this state. Commands name the server if the operator `named` it."""

    def run(words: str) -> str:
        return f"{program()} {words}" + (f" --server {address}" if named else "")

    stats = state.stats
    if stats.outage is not None:
        yield ServerTrouble(
            level="fault", what="The store cannot be written", cause=stats.outage, command=f"{program()} store check"
        )
    if stats.silent_replicas:
        yield ServerTrouble(
            level="fault",
            what=f"{count(stats.silent_replicas, 'replica')} of {stats.replicas} gave no sign of life lately",
            cause="tasks there stand still until the lease is over, then others continue them",
            command=run("admin replicas"),
        )
    for job, told in stats.jobs.items():
        yield ServerTrouble(level="fault", what=f"The job {job} fails", cause=told, command=run("admin stats --watch"))
    workers = {line.agent: line for line in state.workers}
    upstreams = {line.agent for line in state.upstreams if line.fault is not None or line.breaker != "closed"}
    for agent in state.agents:
        if agent.switch is not None:
            said = f"by {agent.switch.by}" + (f": {agent.switch.reason}" if agent.switch.reason else "")
            yield ServerTrouble(
                level="notice",
                what=f"Agent {agent.id} is {agent.switch.state}",
                cause=said,
                command=run(f"admin agents enable {agent.id}"),
            )
        elif agent.id in workers and not workers[agent.id].connected:
            yield _no_worker(workers[agent.id], address)
        elif agent.degraded is not None and agent.id not in upstreams:
            yield ServerTrouble(
                level="fault",
                what=f"Agent {agent.id} cannot do all of its work",
                cause=agent.degraded,
                command=f"{program()} agents check {agent.id}",
            )
        elif agent.oldest_queued_s is not None and agent.oldest_queued_s > QUEUE_S:
            yield ServerTrouble(
                level="fault",
                what=f"{_waiting(agent.queued, 'task')} for agent {agent.id}, the oldest for "
                f"{age(agent.oldest_queued_s)}",
                cause=f"{agent.running} run: its workers, or the threads of the server, may all be busy",
                command=run("admin workers" if agent.id in workers else f"admin tasks list --agent {agent.id}"),
            )
    for line in state.upstreams:
        if line.agent in upstreams and (line.fault is not None or line.breaker != "closed"):
            name = f"{line.agent}/{line.member}" if line.member else line.agent
            yield ServerTrouble(
                level="fault",
                what=f"The server of agent {name} is not called" if line.breaker != "closed" else f"Agent {name} fails",
                cause=line.fault or f"{line.failed} calls to {line.url} have failed since the start",
                command=f"{program()} agents check {line.agent}",
            )
    if stats.webhook_calls_dead:
        causes = Counter((line.host, line.reason) for line in state.dead).most_common(1)
        yield ServerTrouble(
            level="fault",
            what=f"{count(stats.webhook_calls_dead, 'webhook delivery')} died",
            cause="" if not causes else f"mostly {causes[0][0][0]}: {causes[0][0][1]}",
            command=run("webhooks list --state dead"),
        )
    for host in state.paused:
        yield ServerTrouble(
            level="notice",
            what=f"Webhooks to {host.host} are paused, and {_waiting(host.waiting, 'delivery')}",
            cause=f"by {host.by}",
            command=run(f"webhooks resume {quote(host.host)}"),
        )
    for budget in state.budgets:
        if budget.percent is not None and budget.percent >= 100:
            of = f" of {budget.member}" if budget.member else ""
            until = "" if budget.resets_at is None else f"; it resets at {budget.resets_at}"
            yield ServerTrouble(
                level="notice" if budget.mode == "soft" else "fault",
                what=f"The budget {budget.budget}{of} is used up",
                cause=f"{budget.used} of {budget.limit} {budget.unit}{until}",
                command=run("admin budgets"),
            )
    if state.waiting:
        yield ServerTrouble(
            level="notice",
            what=f"{_waiting(state.waiting, 'task')} for a person, the longest for {age(state.longest_waiting_s)}",
            command=run("admin inbox"),
        )


def _waiting(number: int, noun: str) -> str:
    return f"{count(number, noun)} {'waits' if number == 1 else 'wait'}"


def _no_worker(line: "WorkerLine", address: str) -> ServerTrouble:
    waits = f", and {_waiting(line.queued, 'task')}" if line.queued else ""
    return ServerTrouble(
        level="fault" if line.queued or line.running else "notice",
        what=f"Agent {line.agent} has no worker{waits}",
        cause="no worker of it has called lately",
        command=f"{program()} worker {line.agent}=MODULE:AGENT --server {address}",
    )


def report_text(report: TroubleReport) -> str:
    """The troubles for people, each with its cause and its command."""
    lines = []
    for trouble in report.troubles:
        cause = f": {trouble.cause}" if trouble.cause else ""
        lines += [
            f"{trouble.level.upper()}: {sentence(printable(trouble.what + cause))}",
            f"  {printable(trouble.command)}",
        ]
    if report.replicas > 1:  # a replica that died is missed by its number alone
        lines.append(f"{'' if lines else 'Nothing is wrong. '}{report.replicas} replicas are alive.")
    return "\n".join(lines) or "Nothing is wrong."
