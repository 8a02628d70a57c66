"""The tree of delegations: a task with the tasks that were delegated from it, and what other servers made of them.

Invariant: it only reads the store, and asks no other server. The times of another server's clock are told apart.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import asdict

from dragoman.admin.logs import AttemptLine, Tree, TreeTask, UpstreamWord
from dragoman.admin.overview import UpstreamLine
from dragoman.admin.tasks import STATES_BY_WORD, acting_lines, state_word
from dragoman.engine.admin.folded_places import LOG_BYTES
from dragoman.engine.admin.playback import find_head
from dragoman.engine.lineage import child_of
from dragoman.engine.upstream_notes import UpstreamNotes, read_upstream_notes
from dragoman.model.acting_chain import NOTE, spelled_chain
from dragoman.model.events import Delegated, Logged, Noted, StatusChanged
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskHead, TaskState
from dragoman.store.api import Store

TREE_TASKS = 100
"""Most tasks of one tree of delegations."""

_ROUTED = ("member", "bound", "tried")

LOGS_MAX = 200
NAMES_MAX = 1_000
"""Most logs whose facts are remembered, and most tasks that such a log names: others are read again each time."""


class DelegationTrees:
    """Reads the trees of everybody's tasks from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._logs: OrderedDict[str, _Log] = OrderedDict()
        """The facts of the logs that were read last, by the ids of their tasks."""

    async def read(self, task_id: str, upstreams: Sequence[UpstreamLine]) -> Tree:
        """The task with those that were delegated from it, at most `TREE_TASKS`, and what other servers made of them.

        `upstreams` are the agents of other servers, and the members of their pools, that are served here. Raises
        TaskNotFound, or StoreError.
        """
        await find_head(self._store, task_id)
        found: list[TreeTask] = []
        known_ids = {task_id}  # the ids that another server gave to its tasks may form a circle
        ahead: list[tuple[str, str | None, str | None]] = [(task_id, None, None)]
        while ahead and len(found) < TREE_TASKS:
            here, parent, url = ahead.pop(0)
            known = await self._store.head(here)
            if known is None:
                continue  # it has been deleted since
            head, _, state = known
            log = await self._read_log(head, state)
            children = await self._find_children(here, log)
            task = TreeTask(
                id=here,
                parent=parent,
                agent=head.agent,
                state=state_word(state),
                created_at=head.created_at,
                ended_at=log.ended_at,
                url=url,
                acting=acting_lines(spelled_chain(log.acting), told=False),
                attempts=tuple(
                    AttemptLine(member=each.member, at=each.at, reason=each.reason, why=each.why)
                    for each in read_upstream_notes(log.routed).attempts
                ),
            )
            found.append(task)
            ahead += [(child, here, None) for child in children if child not in known_ids]
            known_ids.update(children)
            for sent in log.sent_on:
                line = _find_line(upstreams, head.agent, sent.notes)
                if sent.notes.task in known_ids or (line is None and sent.notes.said not in STATES_BY_WORD):
                    continue  # the notes of other agents are their own
                known_ids.add(sent.notes.task)
                if await self._store.head(sent.notes.task) is not None:  # of this server, or of another replica
                    ahead.append((sent.notes.task, here, None if line is None else line.url))
                else:
                    found.append(_upstream_task(task, state, sent, line))
        return Tree(tasks=tuple(found), more=bool(ahead))

    async def _find_children(self, task_id: str, log: "_Log") -> tuple[str, ...]:
        """The ids of the tasks that were delegated, in their order.

        The log names those whose outcome it has. If it ended before that, or was deleted, they are found by their ids,
        which follow from their numbers.
        """
        found: list[str] = []
        for number in range(1, TREE_TASKS + 1):
            child = child_of(task_id, number)
            if child in log.children.values() or await self._store.head(child) is not None:
                found.append(child)
            elif number >= max(log.children, default=0):
                break
        running = [child.id for child in await self._store.children(task_id)]
        return tuple(dict.fromkeys([*found, *log.children.values(), *running]))

    async def _read_log(self, head: TaskHead, state: TaskState) -> "_Log":
        """The facts of a log. Those that were read before are remembered, because events never change."""
        log = self._logs.pop(head.id, None) or _Log(head.created_at)
        try:
            while page := await self._store.read(head.id, log.after, LOG_BYTES):
                if not log.after and page[0].seq > 1:
                    break  # the beginning has been deleted
                log.add(page)
        finally:
            if len(log.children) + len(log.sent_on) <= NAMES_MAX:
                self._logs[head.id] = log
            while len(self._logs) > LOGS_MAX:
                self._logs.popitem(last=False)
        if state not in TERMINAL or log.ended_at is not None:
            return log
        stored = await self._store.load_snapshot(head.id)
        if stored is None or stored.snapshot is None:
            return log
        ended = _Log(
            head.created_at,
            log.after,
            dict(log.children),
            list(log.sent_on),
            stored.snapshot.status.timestamp,
            log.acting,
            dict(log.routed),
        )
        if not log.after:
            ended.add_note(stored.snapshot.note or {})
        return ended


class _SentOn(Struct, frozen=True):
    """The notes on a task at an upstream, and the time before it was named."""

    notes: UpstreamNotes
    at: str


class _Log(Struct):
    """Facts of a task's log up to seq `after`: delegated tasks by number, tasks at an upstream, and the end.

    `at` is the time of the last event that carries one, `acting` the note of the acting chain, and `routed` the notes
    about the members of a pool, which come before the task at the upstream has a name.
    """

    at: str
    after: int = 0
    children: dict[int, str] = field(default_factory=dict)
    sent_on: list[_SentOn] = field(default_factory=list)
    ended_at: str | None = None
    acting: str = ""
    routed: dict[str, str] = field(default_factory=dict)

    def add(self, page: Sequence[Logged]) -> None:
        """Add the events that follow `after`."""
        self.after = page[-1].seq
        for logged in page:
            self.at = getattr(logged.event, "timestamp", self.at)
            match logged.event:
                case Delegated(number=number, task_id=child) if child:
                    self.children[number] = child
                case Noted(note):
                    self.add_note(note)
                case StatusChanged(state=reached) if reached in TERMINAL:
                    self.ended_at = self.at

    def add_note(self, note: Mapping[str, str]) -> None:
        """Add a note to those on the task that it names, or else on the one that was named before."""
        self.acting = note.get(NOTE, self.acting)
        self.routed |= {name: note[name] for name in _ROUTED if name in note}
        sent_on = self.sent_on
        task_id = note.get("task", sent_on[-1].notes.task if sent_on else "")
        if not task_id:
            return
        if not sent_on or sent_on[-1].notes.task != task_id:
            sent_on.append(_SentOn(read_upstream_notes(self.routed | dict(note)), self.at))
            return
        earlier = {name: text for name, text in asdict(sent_on[-1].notes).items() if text}
        sent_on[-1] = _SentOn(read_upstream_notes(earlier | dict(note)), sent_on[-1].at)


def _find_line(upstreams: Sequence[UpstreamLine], agent: str, notes: UpstreamNotes) -> UpstreamLine | None:
    """The line of the agent, or of the member of its pool that has the task; None if it is not served here.

    A task without a member is from before there was a pool: it is at the first one.
    """
    lines = [line for line in upstreams if line.agent == agent]
    return next((line for line in lines if line.member in ("", notes.member) or not notes.member), None)


def _upstream_task(task: TreeTask, state: TaskState, sent: _SentOn, line: UpstreamLine | None) -> TreeTask:
    """The task that an upstream made of `task`, as it was last heard. `state` is that of `task`."""
    notes = sent.notes
    theirs = STATES_BY_WORD.get(notes.said, state)
    lost_at = notes.lost or None
    ended_at = task.ended_at if theirs in TERMINAL else None
    return TreeTask(
        id=notes.task,
        parent=task.id,
        agent=task.agent,
        state=state_word(theirs),
        created_at=sent.at,
        ended_at=ended_at,
        url=None if line is None else line.url,
        member=notes.member,
        history_at=notes.bound if notes.bound != notes.member else "",
        elsewhere=True,
        upstream=UpstreamWord(
            known=notes.said in STATES_BY_WORD,
            first_status_at=notes.first or None,
            last_status_at=notes.last or None,
            lost_at=lost_at,
            followed_until=None if theirs in TERMINAL else lost_at or task.ended_at,
            cancel=notes.cancel or None,
            differs=states_differ(state, theirs),
            dragoman=None if line is None else line.dragoman,
        ),
    )


def states_differ(ours: TaskState, theirs: TaskState) -> bool:
    """Whether the states of a task and of the one that it was sent on as do not fit. Both may be open in either way."""
    settled = TERMINAL | INTERRUPTED
    return ours is not theirs and (ours in settled or theirs in settled)
