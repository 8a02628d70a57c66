"""Registry: the tasks that this process has in memory.

Invariant: whoever finds a task here has been checked to own it; foreign is not found (invariant 9).
"""

from collections.abc import Callable

from dragoman.engine.announcer import Announcer
from dragoman.engine.audience import Audience
from dragoman.engine.live import LiveTask
from dragoman.engine.observer import Observer
from dragoman.model.errors import Forbidden, TaskNotFound
from dragoman.model.events import Logged, StatusChanged
from dragoman.model.lifecycle import SPELLED, fold
from dragoman.model.operations import Call
from dragoman.model.task import Record, TaskHead
from dragoman.store.api import Store, Stored

LARGE_BYTES = 1 << 20
"""A task of that size is read beside the loop: it takes 3 ms and more."""

WHOLE_LOG_BYTES = 1 << 40
"""A limit that no log reaches: read it all."""


class Registry:
    """Live tasks by id. A task stays while it is pinned, run, or written to; after that the store has it.

    `ends` is called with each that ends.
    """

    __slots__ = ("_announcer", "_live", "_observer", "_pushes", "_store", "ends")

    def __init__(
        self,
        store: Store,
        observer: Observer | None = None,
        announcer: Announcer | None = None,
        pushes: Callable[[str], bool] = lambda agent: True,
    ) -> None:
        """`pushes` says whether webhooks are told of an agent's tasks."""
        self._store = store
        self._observer = observer
        self._announcer = announcer
        self._pushes = pushes
        self._live: dict[str, LiveTask] = {}
        self.ends: Callable[[LiveTask], None] = _nothing

    def __len__(self) -> int:
        return len(self._live)

    def all(self) -> list[LiveTask]:
        """Every task in memory."""
        return list(self._live.values())

    def add(self, live: LiveTask) -> None:
        """Keep a task that was just made or loaded, as long as something holds it."""
        live.idle = self.release
        live.ended = self._ended
        self._live[live.head.id] = live

    def _ended(self, live: LiveTask, event: StatusChanged) -> None:
        if self._observer is not None:
            self._observer.ended(live.head.agent, SPELLED[event.state], event.duration_ms or 0)
        self.ends(live)

    def find(self, call: Call, task_id: str) -> LiveTask:
        """The caller's task, for a look. Raises TaskNotFound, also when it is another's or another agent's."""
        self._check(call, task_id)
        return self._found(task_id)

    def _check(self, call: Call, task_id: str) -> None:
        """Raises TaskNotFound for what is not the caller's. Of that no more is read than of what is not there.

        How long that takes does not tell how large somebody else's task is.
        """
        live = self._live.get(task_id)
        if live is not None:
            head = live.head
        elif (found := self._store.head(task_id)) is None:
            raise TaskNotFound(task_id)
        else:
            head = found[0]
        if not _may_see(call, head):
            raise TaskNotFound(task_id)

    def _found(self, task_id: str) -> LiveTask:
        live = self._live.get(task_id)
        if live is None or not live.seq:
            stored = self._store.load(task_id)
            if stored is None:
                raise TaskNotFound(task_id)
            if live is None:
                live = self.loaded(stored)
            else:  # it is written, as a list has shown the caller, but that has not come back to its maker
                live.created(stored)
        return live

    def loaded(self, stored: Stored) -> LiveTask:
        """A task as the store has it, with its webhooks."""
        live = LiveTask.of(stored)
        if stored.pushed and self._announcer is not None and self._pushes(stored.head.agent):
            configs = self._store.outbox.configs(stored.head.id)
            live.audience = Audience(self._announcer, configs, live.joined_artifacts)
        return live

    def record(self, call: Call, task_id: str) -> Record:
        """The caller's task as it stands. Raises TaskNotFound like `find`. Costs no fold for one that rests."""
        self._check(call, task_id)
        if task_id not in self._live:
            stored = self._store.load(task_id)
            if stored is None:
                raise TaskNotFound(task_id)
            if stored.snapshot is not None and not stored.events:
                return stored.snapshot
        return self._found(task_id).record()

    async def read_record(self, call: Call, task_id: str) -> Record:
        """As `record`, without holding up the loop over a large task that nothing keeps in memory.

        Raises what `Call.room` does.
        """
        size = 0 if task_id in self._live else self._store.size(task_id)
        if size < LARGE_BYTES:
            return self.record(call, task_id)
        self._check(call, task_id)
        if call.room is not None:
            call.room(size)
        stored = await self._store.load_apart(task_id)
        if stored is None:
            raise TaskNotFound(task_id)
        live = self._live.get(task_id)
        if live is not None and live.seq > stored.seq:
            return live.record()  # it went on meanwhile
        if stored.snapshot is not None and not stored.events:
            return stored.snapshot
        return fold(stored.head, stored.snapshot, stored.events)

    def pin(self, call: Call, task_id: str) -> LiveTask:
        """The caller's task, kept in memory until `unpin`. Raises TaskNotFound like `find`."""
        return self._pinned(self.find(call, task_id))

    def pin_reported(self, call: Call, task_id: str) -> LiveTask:
        """As `pin`, for a worker of the agent, whoever owns the task. Raises Forbidden for one that is none."""
        if not call.principal.works_for(call.agent):
            raise Forbidden(f"only workers of {call.agent} may report on its tasks: use a key of the role agent")
        live = self._found(task_id)
        if live.head.agent != call.agent:
            raise TaskNotFound(task_id)
        return self._pinned(live)

    def being_made(self, task_id: str) -> LiveTask | None:
        """The task, if its first write is under way, or has not come back."""
        live = self._live.get(task_id)
        return live if live is not None and not live.seq else None

    def pin_known(self, task_id: str) -> LiveTask | None:
        """As `pin`, for the server itself, whoever owns the task; None if there is none."""
        try:
            return self._pinned(self._found(task_id))
        except TaskNotFound:
            return None

    def _pinned(self, live: LiveTask) -> LiveTask:
        if live.head.id not in self._live:
            self.add(live)
        live.pins += 1
        return live

    def unpin(self, live: LiveTask) -> None:
        """Undo one `pin`."""
        live.pins -= 1
        self.release(live)

    def release(self, live: LiveTask) -> None:
        """Let the task go if nobody holds it."""
        free = live.pins <= 0 and live.run is None and live.in_flight == 0
        if free and self._live.get(live.head.id) is live:
            del self._live[live.head.id]

    async def log(self, task_id: str) -> tuple[Logged, ...]:
        """The whole log of a task, as far as it is kept."""
        return await self._store.read(task_id, 0, WHOLE_LOG_BYTES)


def _nothing(live: LiveTask) -> None:
    """Nobody wants to know."""


def _may_see(call: Call, head: TaskHead) -> bool:
    return head.owner == call.principal.id and head.agent == call.agent
