"""Inspector: an operator's view of the tasks in a store, whoever owns them.

Invariant: it only reads, and no answer costs more for more tasks in the store. A search goes on page by page. Messages
are shortened, and nothing in an answer is a secret: webhooks are counted, and a runner's notes to itself are left out.
"""

import re
from collections.abc import Callable

from msgspec.json import encode
from msgspec.structs import replace

from dragoman.admin.logs import Timeline
from dragoman.admin.tasks import (
    STATES_BY_WORD,
    ActingLine,
    ArtifactLine,
    TaskLine,
    TaskLines,
    TaskOrder,
    TaskQuery,
    TaskReport,
    acting_lines,
    state_word,
)
from dragoman.dialects.extensions import told_chain
from dragoman.engine.admin.folded_places import LOG_BYTES, FoldedPlaces
from dragoman.engine.admin.playback import find_head, find_snapshot, page_facts, timeline_entry
from dragoman.engine.policy import page_token, read_page_token
from dragoman.model.acting_chain import NOTE, spelled_chain
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import timestamp, timestamp_ms
from dragoman.model.parts import beginning
from dragoman.model.task import TERMINAL, Record, phase_of
from dragoman.model.title import given_title, title_line
from dragoman.store.api import (
    ASIDE,
    ASLEEP,
    ListOrder,
    ListQuery,
    Owners,
    Store,
    Stored,
    TaskRow,
    TaskSearch,
    Whose,
    covers,
)
from dragoman.store.members import TeamMembers

SEARCHES = 5
"""How often one page asks the store to look through tasks for a filter that no index answers. Its cursor goes on where
that stopped."""

SIFTS = 20
"""The same for a filter that the store does not know, so that what it returns is sifted."""

SIFTED_ROWS = 200
SIFTED_SCAN = 5_000
"""Most tasks that the store returns then, and looks at, each time: it walks through these to find the last one."""

PAGE_BYTES = 4 << 20
"""Most stored bytes that are read for one page of tasks."""

TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*", re.ASCII)


BY_CREATION = ("newest-created", "oldest-created")
"""The orders in which a page looks through tasks, so that any filter can be used."""

SEARCHED = ("text", "key", "dialect", "sleeping", "metadata", "longer_than_s", "shorter_than_s")
"""The filters that no index answers."""


class Inspector:
    """Reads the tasks of everybody from a store."""

    def __init__(
        self,
        store: Store,
        places: FoldedPlaces | None = None,
        idle: Callable[[str], bool] = lambda task_id: False,
    ) -> None:
        """`places` may be shared with other readers of the same store. `idle` knows the runs here: see `phase_of`."""
        self._idle = idle
        self._store = store
        self._clock = store.clock
        self._places = places or FoldedPlaces(store)

    async def list(self, wanted: TaskQuery) -> TaskLines:
        """A page of the tasks that fit. Without an `order`, the newest status is first, or the newest made if only a
        search can find them.

        Raises InvalidParams for a foreign cursor and for filters that do not go with the order, or StoreError.
        """
        chosen = _order(wanted)
        before = read_cursor(wanted.cursor, chosen) if wanted.cursor else None
        now_ms = self._clock.now_ms()
        if chosen in BY_CREATION:
            return await self._search(wanted, chosen, None if before is None else before[0], now_ms)
        until_ms = None if wanted.older_than_s is None else _ago_ms(wanted.older_than_s, now_ms)
        if before is None and until_ms is not None and chosen == "newest-changed":
            before = until_ms, ""
        listed = await self._store.list_rows(
            ListQuery(
                owner=whose_of(wanted.principal, wanted.team),
                agent=wanted.agent,
                context_id=wanted.context,
                state=None if wanted.state is None else STATES_BY_WORD[wanted.state],
                status_after_ms=None if wanted.newer_than_s is None else _ago_ms(wanted.newer_than_s, now_ms),
                order=ListOrder(chosen),
                limit=wanted.limit,
                before=before,
                max_bytes=PAGE_BYTES,
            )
        )
        rows = [row for row in listed.rows if until_ms is None or row.status_ms < until_ms]
        last = rows[-1] if listed.more and rows and len(rows) == len(listed.rows) else None
        return TaskLines(
            tasks=tuple(self.line(row, now_ms) for row in rows),
            next_cursor="" if last is None else page_cursor(last.status_ms, chosen, last.head.id),
            total=None if until_ms is not None else listed.total,
        )

    async def _search(self, wanted: TaskQuery, order: TaskOrder, after: int | None, now_ms: int) -> TaskLines:
        found: list[TaskRow] = []
        fits, at_once = _sieve(wanted, now_ms), SIFTED_ROWS
        query = TaskSearch(
            owner=whose_of(wanted.principal, wanted.team),
            agent=wanted.agent,
            context_id=wanted.context,
            state=None if wanted.state is None else STATES_BY_WORD[wanted.state],
            dialect=wanted.dialect,
            key=wanted.key,
            text=wanted.text,
            asleep=wanted.sleeping,
            status_after_ms=None if wanted.newer_than_s is None else _ago_ms(wanted.newer_than_s, now_ms),
            status_before_ms=None if wanted.older_than_s is None else _ago_ms(wanted.older_than_s, now_ms),
            oldest=order == "oldest-created",
        )
        for _ in range(SEARCHES if fits is None else SIFTS):
            room = wanted.limit - len(found)
            if fits is None:
                page = await self._store.search(replace(query, limit=room, after=after))
                found += page.rows
            else:
                limit = max(room, at_once)
                page = await self._store.search(replace(query, limit=limit, after=after, scan_max=SIFTED_SCAN))
                fitting = [row for row in page.rows if fits(row)]
                if len(fitting) > room:  # the next page can begin only where a search has ended
                    at_once = 1
                    continue
                found += fitting
            after = page.after
            if after is None or len(found) == wanted.limit or (fits is not None and 2 * len(found) > wanted.limit):
                break
        return TaskLines(
            tasks=tuple(self.line(row, now_ms) for row in found),
            next_cursor="" if after is None else page_cursor(after, order),
        )

    async def show(self, task_id: str) -> TaskReport:
        """One task. Raises TaskNotFound, or StoreError."""
        stored = await find_snapshot(self._store, task_id)
        record = await self._places.stand(stored)
        text = beginning(record.history[0].parts) if record.history else ""
        row = TaskRow(
            head=stored.head,
            state=stored.state,
            status_ms=stored.status_ms,
            holder=stored.holder,
            cancel_requested=stored.cancel_requested,
            text=text,
            title=given_title(record),
            unreadable=record.unreadable,
        )
        said = record.status.message
        return TaskReport(
            task=self.line(row, self._clock.now_ms()),
            mount=stored.head.mount,
            seq=stored.seq,
            epoch=stored.epoch,
            skill=stored.head.skill,
            text=text,
            status_text="" if said is None else beginning(said.parts),
            messages=len(record.history),
            artifacts=tuple(
                ArtifactLine(
                    id=artifact.artifact_id,
                    name=artifact.name,
                    parts=len(artifact.parts),
                    open=artifact.artifact_id in record.open_artifacts,
                )
                for artifact in record.artifacts
            ),
            webhooks=len(await self._store.outbox.configs(task_id)) if stored.pushed else 0,
            progress=record.progress,
            usage=record.usage,
            duration_ms=record.duration_ms,
            trace=_trace(stored.head.traceparent),
            wakes_at=_wakes_at(stored),
            acting=_acting(record),
        )

    async def log(self, task_id: str, after: int, limit: int) -> Timeline:
        """At most `limit` events after seq `after`. Raises TaskNotFound, or StoreError."""
        _, seq, state = await find_head(self._store, task_id)
        logged = (await self._store.read(task_id, after, LOG_BYTES))[:limit]
        return Timeline(events=tuple(map(timeline_entry, logged)), **page_facts(logged, after, seq, state))

    def line(self, row: TaskRow, now_ms: int) -> TaskLine:
        """A task as lists show it."""
        head = row.head
        return TaskLine(
            id=head.id,
            state=state_word(row.state),
            phase=phase_of(
                row.state, idle=row.holder in (None, ASIDE) or self._idle(head.id), asleep=row.holder == ASLEEP
            ),
            agent=head.agent,
            principal=head.owner,
            context=head.context_id,
            dialect=head.dialect,
            title=row.title or title_line(row.text),
            text=row.text,
            created_at=head.created_at,
            status_at=timestamp(row.status_ms),
            age_s=max(0, now_ms - row.status_ms) / 1000,
            holder=None if row.holder in (ASLEEP, ASIDE) else row.holder,
            cancel_requested=row.cancel_requested,
            parent=head.parent,
            unreadable=row.unreadable,
            key=head.key or None,
        )


def _acting(record: Record) -> tuple[ActingLine, ...]:
    """The links that the message which made the task tells, and then those of the task itself."""
    told = told_chain(record.history[0].metadata) if record.history else ()
    own = spelled_chain((record.note or {}).get(NOTE, ""))
    return (*acting_lines(told, told=True), *acting_lines(own, told=False))


def whose_of(principal: str | None, team: str | None) -> Whose:
    """The owners whose tasks are asked for. Raises InvalidParams for a principal of another team."""
    if team is None:
        return Owners.ALL if principal is None else principal
    members = TeamMembers(team)
    if principal is not None and not covers(members, principal):
        raise InvalidParams("principal", f"is not in the team {team[:100]!r}: leave one of the two out")
    return members if principal is None else principal


def _sieve(wanted: TaskQuery, now_ms: int) -> Callable[[TaskRow], bool] | None:
    """Whether a task fits the filters that the store does not know; None without such filters."""
    least_s, most_s = wanted.longer_than_s, wanted.shorter_than_s
    name, equals, value = (wanted.metadata or "").partition("=")
    if not wanted.metadata and least_s is None and most_s is None:
        return None

    def fits(row: TaskRow) -> bool:
        if wanted.metadata:
            metadata = row.head.metadata or {}
            if name not in metadata or (equals and _spell(metadata[name]) != value):
                return False
        if least_s is None and most_s is None:
            return True
        until_ms = row.status_ms if row.state in TERMINAL else now_ms
        took_s = (until_ms - timestamp_ms(row.head.created_at)) / 1000
        return (least_s is None or took_s > least_s) and (most_s is None or took_s < most_s)

    return fits


def _spell(value: object) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _wakes_at(stored: Stored) -> str | None:
    """When a task wakes that sleeps."""
    wakes_ms = stored.offered_until_ms if stored.holder == ASLEEP else None
    return None if wakes_ms is None else timestamp(wakes_ms)


def _trace(traceparent: str | None) -> str | None:
    """The trace id in a `traceparent` (W3C Trace Context §3.2.2)."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    return None if found is None else found[1]


def _order(wanted: TaskQuery) -> TaskOrder:
    """The order of a list. Raises InvalidParams if the filters do not go with it."""
    order = wanted.order
    searches = any(getattr(wanted, name) is not None for name in SEARCHED)
    if order is None:
        return "newest-created" if searches else "newest-changed"
    if searches and order not in BY_CREATION:
        raise InvalidParams(
            "order", f"must be {' or '.join(BY_CREATION)} with {', '.join(SEARCHED)}, which no index answers"
        )
    if wanted.older_than_s is not None and order == "longest-running":
        raise InvalidParams("older_than_s", "does not go with the order longest-running: choose oldest-changed")
    return order


def page_cursor(number: int, order: TaskOrder, task_id: str = "") -> str:
    """The cursor of the page after a task, whose number or time comes first."""
    return page_token(number, f"{order}/{task_id}")


def read_cursor(cursor: str, order: TaskOrder) -> tuple[int, str]:
    """The number and the id in a cursor. Raises InvalidParams if it is not of a list in this order."""
    number, place = read_page_token(cursor)
    made_in, _, task_id = place.partition("/")
    if made_in != order:
        raise InvalidParams("cursor", "comes from a list with other filters: leave it out for the first page")
    return number, task_id


def _ago_ms(age_s: float, now_ms: int) -> int:
    return now_ms - int(age_s * 1000)
