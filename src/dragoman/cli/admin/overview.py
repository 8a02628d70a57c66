"""`dragoman admin agents|workers|upstreams|replicas`: what a running server serves.

Invariant: they ask the server, which alone knows, and change nothing.
"""

import click

from dragoman.admin.overview import LIST_AGENTS, LIST_REPLICAS, LIST_UPSTREAMS, LIST_WORKERS
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.tables import age, output, show_lines, table

TASKS_SHOWN = 3
"""How many tasks of a worker are listed."""


@click.command()
@output
@with_server
def agents(place: TaskPlace, form: str) -> None:
    """Show the agents that are served, and how many tasks they have.

    It also says which cannot do all of their work.
    """
    show_lines(LIST_AGENTS, place.ask(LIST_AGENTS, None), form)


@click.command()
@output
@with_server
def workers(place: TaskPlace, form: str) -> None:
    """Show the agents that workers serve, and the workers.

    It says how many tasks wait for a worker, and which tasks each worker has. LAST is a worker's last call, how long
    ago it was, and what it was: a poll for work, a heartbeat, or a report on a task. The servers on one store know each
    other's workers.
    """
    found = place.ask(LIST_WORKERS, None)
    show_lines(LIST_WORKERS, found, form)
    if form == "json" or not found.known:
        return
    known = [
        (
            each.agent,
            each.name,
            "-" if each.last_word_s is None else f"{age(each.last_word_s)} {each.last_word}",
            "yes" if each.waits else "no",
            str(len(each.leases)),
            ",".join(lease.task for lease in each.leases[:TASKS_SHOWN]) + (",…" * (len(each.leases) > TASKS_SHOWN)),
        )
        for each in found.known
    ]
    click.echo()
    click.echo(table(("AGENT", "WORKER", "LAST", "WAITS", "LEASES", "TASKS"), known))


@click.command()
@output
@with_server
def upstreams(place: TaskPlace, form: str) -> None:
    """Show the agents of other servers, and how calls have gone.

    It also says whether they are called at present.
    """
    show_lines(LIST_UPSTREAMS, place.ask(LIST_UPSTREAMS, None), form)


@click.command()
@output
@with_server
def replicas(place: TaskPlace, form: str) -> None:
    """Show the servers that are alive on the store."""
    show_lines(LIST_REPLICAS, place.ask(LIST_REPLICAS, None), form)
