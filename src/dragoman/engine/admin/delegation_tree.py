"""The tree of delegations: a task with the tasks that were delegated from it, for an operator.

Invariant: it only reads.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.admin.inspection import LOG_BYTES, StateWord
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import Delegated, Noted, StatusChanged
from dragoman.model.lifecycle import SPELLED
from dragoman.model.task import TERMINAL
from dragoman.store.api import Store

TREE_TASKS = 100
"""Most tasks of one tree of delegations."""

UPSTREAM_TASK = "task"
"""The note in which an agent of another server keeps the id that a task has there."""


class TreeTask(Struct, frozen=True, kw_only=True):
    """A task of a tree of delegations. `ended_at` is null while it is open.

    A task that was sent to an agent of another server has that server's `url` and the id that it has there. If it is
    not in this store, too, it is `elsewhere`: then its state and times are those of the task that was sent on.
    """

    id: str
    parent: str | None
    agent: str
    state: StateWord
    created_at: str
    ended_at: str | None = None
    url: str | None = None
    elsewhere: bool = False


class Tree(Struct, frozen=True, kw_only=True):
    """A task, those that it delegated, and so on, each after its parent. `more`: there are others beyond the limit."""

    tasks: tuple[TreeTask, ...]
    more: bool = False


class DelegationTrees:
    """Reads the trees of everybody's tasks from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, task_id: str, upstreams: Mapping[str, str]) -> Tree:
        """The task with those that were delegated from it, at most `TREE_TASKS`, and what other servers made of them.

        `upstreams` are the URLs of the agents of other servers. Raises TaskNotFound, or StoreError.
        """
        if await self._store.head(task_id) is None:
            raise TaskNotFound(task_id)
        found: list[TreeTask] = []
        known_ids = {task_id}  # the ids that another server gave to its tasks may form a circle
        ahead: list[tuple[str, str | None, str | None]] = [(task_id, None, None)]
        while ahead and len(found) < TREE_TASKS:
            here, parent, url = ahead.pop(0)
            known = await self._store.head(here)
            if known is None:
                continue  # it has been deleted since
            head, _, state = known
            log = await self._read_log(here, sends_on=head.agent in upstreams)
            children = dict.fromkeys([*log.children, *[child.id for child in await self._store.children(here)]])
            task = TreeTask(
                id=here,
                parent=parent,
                agent=head.agent,
                state=SPELLED[state],  # type: ignore[arg-type]  # the words of StateWord
                created_at=head.created_at,
                ended_at=log.ended_at,
                url=url,
            )
            found.append(task)
            ahead += [(child, here, None) for child in children if child not in known_ids]
            known_ids |= children.keys()
            for there, at in log.sent_on.items():
                if there in known_ids:
                    continue
                known_ids.add(there)
                if await self._store.head(there) is not None:  # the agent is of this server, or of another replica
                    ahead.append((there, here, upstreams[head.agent]))
                else:
                    url_there = upstreams[head.agent]
                    found.append(replace(task, id=there, parent=here, created_at=at, url=url_there, elsewhere=True))
        return Tree(tasks=tuple(found), more=bool(ahead))

    async def _read_log(self, task_id: str, *, sends_on: bool) -> "_Log":
        children: list[str] = []
        sent_on: dict[str, str] = {}
        ended_at = None
        after, at = 0, ""
        while page := await self._store.read(task_id, after, LOG_BYTES):
            after = page[-1].seq
            for logged in page:
                at = getattr(logged.event, "timestamp", at)
                match logged.event:
                    case Delegated(task_id=child) if child:
                        children.append(child)
                    case Noted(note) if sends_on and (there := note.get(UPSTREAM_TASK)):
                        sent_on.setdefault(there, at)
                    case StatusChanged(state=reached) if reached in TERMINAL:
                        ended_at = at
        return _Log(tuple(children), sent_on, ended_at)


class _Log(Struct, frozen=True):
    """Facts of a task's log: delegated tasks, tasks at an upstream with the time before each was named, and the end."""

    children: tuple[str, ...]
    sent_on: dict[str, str]
    ended_at: str | None
