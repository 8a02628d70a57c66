"""The tree of delegations: a task with the tasks that were delegated from it, for an operator.

Invariant: it only reads.
"""

from msgspec import Struct

from dragoman.engine.inspection import LOG_BYTES, StateWord
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import Delegated, StatusChanged
from dragoman.model.lifecycle import SPELLED
from dragoman.model.task import TERMINAL
from dragoman.store.api import Store

TREE_TASKS = 100
"""Most tasks of one tree of delegations."""


class TreeTask(Struct, frozen=True, kw_only=True):
    """A task of a tree of delegations. `ended_at` is null while it is open."""

    id: str
    parent: str | None
    agent: str
    state: StateWord
    created_at: str
    ended_at: str | None = None


class Tree(Struct, frozen=True, kw_only=True):
    """A task, those that it delegated, and so on, each after its parent. `more`: there are others beyond the limit."""

    tasks: tuple[TreeTask, ...]
    more: bool = False


class DelegationTrees:
    """Reads the trees of everybody's tasks from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, task_id: str) -> Tree:
        """The task with those that were delegated from it, at most `TREE_TASKS`. Raises TaskNotFound, or StoreError."""
        if await self._store.head(task_id) is None:
            raise TaskNotFound(task_id)
        found: list[TreeTask] = []
        known_ids = {task_id}  # the ids that another server gave to its tasks may form a circle
        ahead: list[tuple[str, str | None]] = [(task_id, None)]
        while ahead and len(found) < TREE_TASKS:
            here, parent = ahead.pop(0)
            known = await self._store.head(here)
            if known is None:
                continue  # it has been deleted since
            head, _, state = known
            children: dict[str, None] = {}
            ended_at = None
            after = 0
            while page := await self._store.read(here, after, LOG_BYTES):
                after = page[-1].seq
                for logged in page:
                    match logged.event:
                        case Delegated(task_id=child) if child:
                            children[child] = None
                        case StatusChanged(state=reached, timestamp=at) if reached in TERMINAL:
                            ended_at = at
            children.update(dict.fromkeys(child.id for child in await self._store.children(here)))
            found.append(
                TreeTask(
                    id=here,
                    parent=parent,
                    agent=head.agent,
                    state=SPELLED[state],  # type: ignore[arg-type]  # the words of StateWord
                    created_at=head.created_at,
                    ended_at=ended_at,
                )
            )
            ahead += [(child, here) for child in children if child not in known_ids]
            known_ids |= children.keys()
        return Tree(tasks=tuple(found), more=bool(ahead))
