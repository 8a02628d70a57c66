"""Paused hosts: hosts of webhooks to which nothing is sent until an operator resumes them.

Invariant: a name is stored in one spelling, so that a host is paused once.
"""

from dragoman.admin.webhooks import HostChanged, PausedHostLine, PausedHostLines
from dragoman.model.ids import timestamp
from dragoman.store.outbox import Outbox, PausedHost


async def list_paused(outbox: Outbox) -> PausedHostLines:
    """The paused hosts. Raises StoreError."""
    hosts = await outbox.paused()
    return PausedHostLines(hosts=tuple(map(paused_line, hosts)), waiting=await outbox.paused_count() if hosts else 0)


async def pause_host(outbox: Outbox, host: str, by: str, now_ms: int) -> HostChanged:
    """Send nothing to a host from now on. Raises StoreError."""
    changed = await outbox.pause(PausedHost(name=host, at_ms=now_ms, by=by))
    return HostChanged(host=host, paused=True, changed=changed, waiting=(await outbox.backlog(host, now_ms)).waiting)


async def resume_host(outbox: Outbox, host: str, now_ms: int) -> HostChanged:
    """Send to a host again. Raises StoreError."""
    backlog = await outbox.backlog(host, now_ms)
    changed = await outbox.resume(host)
    return HostChanged(
        host=host,
        paused=False,
        changed=changed,
        waiting=backlog.waiting,
        held=backlog.held,
        later=backlog.later,
        next=None if backlog.next_ms is None else timestamp(backlog.next_ms),
    )


def paused_line(host: PausedHost) -> PausedHostLine:
    """A paused host as operators see it."""
    return PausedHostLine(host=host.name, since=timestamp(host.at_ms), by=host.by, waiting=host.waiting)
