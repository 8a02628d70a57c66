"""`dragoman admin agents|workers|upstreams|replicas`: what a running server serves.

Invariant: they ask the server, which alone knows, and change nothing.
"""

from typing import Any, TypeVar

import click

from dragoman.cli.admin.server import TaskPlace, run, with_server
from dragoman.cli.tables import age, output, table

TASKS_SHOWN = 3
"""How many tasks of a worker are listed."""

T = TypeVar("T")


@click.command()
@output
@with_server
def agents(place: TaskPlace, form: str) -> None:
    """Show the agents that are served, and how many tasks they have.

    It also says which cannot do all of their work.
    """
    from dragoman.admin.overview import AgentLines

    found = _get(place, "/agents", AgentLines)
    head = ("AGENT", "KIND", "VERSION", "QUEUED", "OLDEST", "RUNNING", "WAITING", "TOTAL", "FAULT")
    rows = [
        (
            each.id,
            each.kind,
            each.version,
            str(each.queued),
            "-" if each.oldest_queued_s is None else age(each.oldest_queued_s),
            str(each.running),
            str(each.waiting),
            str(each.total),
            each.degraded or "-",
        )
        for each in found.agents
    ]
    _show(found, form, head, rows)


@click.command()
@output
@with_server
def workers(place: TaskPlace, form: str) -> None:
    """Show the agents that workers serve, and the workers.

    It says how many tasks wait for a worker, and which tasks each worker has. LAST is a worker's last call, how long
    ago it was, and what it was: a poll for work, a heartbeat, or a report on a task. The servers on one store know each
    other's workers.
    """
    from dragoman.admin.overview import WorkerLines

    found = _get(place, "/workers", WorkerLines)
    head = ("AGENT", "CONNECTED", "WORKERS", "IDLE", "RUNNING", "QUEUED", "OLDEST")
    rows = [
        (
            each.agent,
            "yes" if each.connected else "no",
            str(each.workers),
            str(each.idle),
            str(each.running),
            str(each.queued),
            "-" if each.oldest_queued_s is None else age(each.oldest_queued_s),
        )
        for each in found.workers
    ]
    _show(found, form, head, rows)
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
    from dragoman.admin.overview import UpstreamLines

    found = _get(place, "/upstreams", UpstreamLines)
    rows = [
        (each.agent, each.breaker, str(each.succeeded), str(each.refused), str(each.failed)) for each in found.upstreams
    ]
    _show(found, form, ("AGENT", "BREAKER", "SUCCEEDED", "REFUSED", "FAILED"), rows)


@click.command()
@output
@with_server
def replicas(place: TaskPlace, form: str) -> None:
    """Show the servers that are alive on the store."""
    from dragoman.admin.overview import ReplicaLines

    found = _get(place, "/replicas", ReplicaLines)
    rows = [(each.id, each.address, each.started_at, ",".join(each.agents)) for each in found.replicas]
    _show(found, form, ("REPLICA", "ADDRESS", "STARTED", "AGENTS"), rows)


def _get(place: TaskPlace, path: str, into: type[T]) -> T:
    return run(place.client().get(path, {}, into))


def _show(found: object, form: str, head: tuple[str, ...], rows: "list[Any]") -> None:
    import msgspec

    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    elif rows:
        click.echo(table(head, rows))
    else:
        click.echo("There are none.", err=True)
