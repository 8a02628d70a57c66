"""History: an agent's access to its caller's earlier tasks.

Invariant: an agent sees only tasks of the same owner with itself, and those that the owner names and may read
(invariant 9).
"""

from collections.abc import Collection, Sequence

from dragoman.engine.files import Files
from dragoman.model.lifecycle import fold
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record, TaskHead
from dragoman.store.api import Store

NEWEST = 2
"""How many tasks of a context are searched first: the last one, and that of the run itself."""

NOTES_MAX = 10
"""How many tasks of a context are searched for a note."""


class History:
    """Reads a context's messages and referenced tasks from the store, with their files. It is the `Past` of runs."""

    def __init__(self, store: Store, files: Files, sharing_teams: Collection[str] = ()) -> None:
        """The members of `sharing_teams` read each other's tasks."""
        self._sharing_teams = sharing_teams
        self._store = store
        self.files = files

    async def references(self, head: TaskHead, task_ids: Sequence[str]) -> tuple[Record, ...]:
        """The named tasks that exist and that the owner may read, in the order named (A2A 1.0 §3.4.2)."""
        found = [await self._store.load(task_id) for task_id in task_ids]
        records = tuple(
            fold(stored.head, stored.snapshot, stored.events)
            for stored in found
            if stored is not None and stored.head.agent == head.agent and self._may_read(head, stored.head)
        )
        return tuple([await self.files.record(record) for record in records])

    def _may_read(self, head: TaskHead, other: TaskHead) -> bool:
        """Whether the owner of a task may read another one: see `engine.rights`."""
        return other.owner == head.owner or (head.team in self._sharing_teams and other.team == head.team)

    async def messages(self, head: TaskHead, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context of `head`, oldest first, without those of its own task.

        If the caller sent the conversation along with its message, that is returned instead, or follows if it continues
        the context.
        """
        if limit <= 0:
            return ()
        if head.earlier and not head.continues:
            return head.earlier[-limit:]
        tasks = await self._store.messages(head.owner, head.agent, head.context_id, limit + 1)
        messages: list[Message] = []
        for stored in tasks:
            if stored.head.id != head.id:
                record = fold(stored.head, stored.snapshot, stored.events)
                messages.extend(record.history)
                if answer := answer_of(record):
                    messages.append(answer)
        messages.extend(head.earlier)
        newest = tuple(messages[-limit:])
        return tuple([await self.files.message(message) for message in newest]) if self.files.keeps else newest

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part. Raises Unreadable."""
        return await self.files.read(part)

    async def note(self, head: TaskHead) -> dict[str, str]:
        """The last note of an earlier task of the context of `head`; empty if there is none."""
        for limit in (NEWEST, NOTES_MAX):
            tasks = await self._store.messages(head.owner, head.agent, head.context_id, limit)
            for stored in reversed(tasks):
                if stored.head.id != head.id:
                    note = fold(stored.head, stored.snapshot, stored.events).note
                    if note:
                        return note
            if len(tasks) < limit:
                break
        return {}


def answer_of(record: Record) -> Message | None:
    """The agent's output in a task as one message: the parts of its artifacts in order. None if there is none."""
    parts: list[Part] = [part for artifact in record.artifacts for part in artifact.parts]
    if not parts:
        return None
    head = record.head
    return Message(
        message_id=f"{head.id}-answer",
        role=Role.AGENT,
        parts=tuple(parts),
        context_id=head.context_id,
        task_id=head.id,
    )
