"""Key beginnings: what one key began that has not ended: streams, webhooks and tasks.

Invariant: it only reads, and a namesake's beginnings are not among them. Those without a noted key are counted apart.
"""

from collections.abc import AsyncIterator, Iterable

from msgspec.structs import replace

from dragoman.admin.keys import BegunStreams, BegunTask, BegunWebhook, KeyBeginnings, KeyStopLine
from dragoman.admin.tasks import state_word
from dragoman.engine.key_stops import KeyStops
from dragoman.model.ids import timestamp
from dragoman.model.task import STATES, TERMINAL
from dragoman.store.api import ListQuery, Store, TaskRow
from dragoman.store.keyring import StoredKey

SHOWN_MAX = 100
"""Most tasks and webhooks of a key that are listed; all open tasks are counted."""

PAGE = 500

OPEN_STATES = tuple(state for state in STATES if state not in TERMINAL)


async def read_beginnings(store: Store, stops: KeyStops, key: StoredKey) -> KeyBeginnings:
    """Read the beginnings of a key that go on. Raises StoreError."""
    owner = key.owner
    tasks: list[BegunTask] = []
    count = unknown = 0
    async for row in open_tasks(store, owner):
        if row.head.key == key.id:
            count += 1
            if len(tasks) < SHOWN_MAX:
                state = state_word(row.state)
                head = row.head
                tasks.append(BegunTask(id=head.id, agent=head.agent, state=state, created_at=head.created_at))
        elif not row.head.key:
            unknown += 1
    webhooks = await store.outbox.made_with(key.id, SHOWN_MAX + 1)
    streams = await stops.streams(key.id)
    request = await stops.find(key.id)
    return KeyBeginnings(
        streams=tuple(BegunStreams(server=server, streams=number) for server, number in sorted(streams.items())),
        webhooks=tuple(
            BegunWebhook(task=each.task_id, agent=each.agent, id=each.config_id, host=each.host)
            for each in webhooks[:SHOWN_MAX]
        ),
        more_webhooks=len(webhooks) > SHOWN_MAX,
        tasks=tuple(tasks),
        open_tasks=count,
        unknown_tasks=unknown,
        unknown_webhooks=await store.outbox.keyless(owner),
        stop=None
        if request is None
        else KeyStopLine(
            asked=timestamp(request.asked_ms),
            by=request.by,
            tasks=request.tasks,
            done=timestamp(request.done_ms) if request.done_ms else None,
            left=request.left,
        ),
    )


async def open_tasks(store: Store, owner: str) -> AsyncIterator[TaskRow]:
    """The tasks of an owner that have not ended, page by page. Raises StoreError."""
    for state in OPEN_STATES:
        query, more = ListQuery(owner=owner, agent=None, state=state, limit=PAGE), True
        while more:
            listed = await store.list_rows(query)
            for row in listed.rows:
                yield row
            more = listed.more and bool(listed.rows)
            if more:
                query = _after(query, listed.rows)


def _after(query: ListQuery, rows: Iterable[TaskRow]) -> ListQuery:
    *_, last = rows
    return replace(query, before=(last.status_ms, last.head.id))
