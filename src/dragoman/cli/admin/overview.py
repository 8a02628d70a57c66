"""`dragoman admin workers|upstreams|replicas|series`: what a running server serves.

Invariant: they ask the server, which alone knows, and change nothing.
"""

from typing import TYPE_CHECKING

import click

from dragoman.admin.overview import LIST_REPLICAS, LIST_UPSTREAMS, LIST_WORKERS
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.command import Command
from dragoman.cli.listing import Listing, lists, rows_of
from dragoman.cli.tables import age, table

if TYPE_CHECKING:
    from dragoman.admin.overview import KnownWorker
    from dragoman.admin.series import Span

TASKS_SHOWN = 3
"""How many tasks of a worker are listed."""


@click.command(cls=Command)
@lists(limit=None, cut=True)
@with_server
def workers(place: TaskPlace) -> Listing:
    """Show the agents that workers serve, and the workers.

    The list says how many tasks wait for a worker, and which tasks each worker has. LAST is a worker's last call: how
    long ago it was, and whether it was a poll for work, a heartbeat, or a report on a task. The servers of one store
    know each other's workers.

    Examples:
      dragoman admin workers
      dragoman admin workers --watch
    """
    found = place.ask(LIST_WORKERS, None)
    known = [_worker_row(each) for each in found.known]
    below = table(("AGENT", "WORKER", "LAST", "WAITS", "LEASES", "TASKS"), known) if known else ""
    return rows_of(LIST_WORKERS, found, name="agent", below=below)


def _worker_row(worker: "KnownWorker") -> tuple[str, ...]:
    tasks = ",".join(lease.task for lease in worker.leases[:TASKS_SHOWN])
    return (
        worker.agent,
        worker.name,
        "-" if worker.last_word_s is None else f"{age(worker.last_word_s)} {worker.last_word}",
        "yes" if worker.waits else "no",
        str(len(worker.leases)),
        tasks + ",…" * (len(worker.leases) > TASKS_SHOWN),
    )


@click.command(cls=Command)
@lists(limit=None, cut=True)
@with_server
def upstreams(place: TaskPlace) -> Listing:
    """Show the agents of other servers, and how calls have gone.

    BREAKER says whether the agent is called at present.

    Examples:
      dragoman admin upstreams
      dragoman admin upstreams -o json
    """
    return rows_of(LIST_UPSTREAMS, place.ask(LIST_UPSTREAMS, None), name="agent")


@click.command(cls=Command)
@lists(limit=None, cut=True)
@with_server
def replicas(place: TaskPlace) -> Listing:
    """Show the servers that are alive on the store.

    One that is SILENT has given no sign of life for half of `replica_lease_s`.

    Examples:
      dragoman admin replicas
      dragoman admin replicas --watch
    """
    return rows_of(LIST_REPLICAS, place.ask(LIST_REPLICAS, None))


@click.command(cls=Command)
@click.option(
    "--span",
    type=click.Choice(("hour", "day", "month")),
    default="hour",
    show_default=True,
    help="How far to look back.",
)
@lists(limit=None, cut=True)
@with_server
def series(place: TaskPlace, span: "Span") -> Listing:
    """Show ended tasks, their times and usage by agent.

    The list counts the tasks that ended in the span, and what they used. P50 and P95 are the seconds that half of them,
    and 95 of 100, took at most.

    Examples:
      dragoman admin series
      dragoman admin series --span month -o csv
    """
    from dragoman.admin.series import SHOW_SERIES, SeriesQuery

    return rows_of(SHOW_SERIES, place.ask(SHOW_SERIES, SeriesQuery(span=span)), name="agent")
