"""SessionItems: a session of a framework in the store, as the items that the tasks of a conversation have added.

    i/session/task/number/piece   a piece of an item; long items have several
    f/session/number              the task that has finished as that one, with the output that its items do not have

Invariant: a task's items are together, in the order in which tasks have finished. No other task sees those of a task
that works, waits, has failed or was canceled, so that no conversation goes on from what was left half done.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec
from msgspec import Struct

from dragoman.engine.state_space import StateSpace, read_below
from dragoman.store.api import StateChanged
from dragoman.store.state import StateEntry, StatePut, key_segment

PIECE_BYTES = 4 << 20
"""The longest piece of an item. A value of the store is in memory several times while it is written."""


class SessionItem(Struct, frozen=True):
    """An item as it is stored: its keys, and its bytes."""

    keys: tuple[str, ...]
    value: bytes


class FinishedTask(Struct, frozen=True, array_like=True):
    """A task that has finished. `output` is what its run has given beside its items."""

    task: str
    output: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_decode_finished = msgspec.msgpack.Decoder(FinishedTask).decode


class SessionItems:
    """The items of the session `name`, for the run of a task.

    It has what had finished when it was loaded, and the task's own items: `earlier` and `own`. `finished` is set if the
    task itself has finished; a run that repeats finds that. `others` are the tasks that have items
    and had not finished.
    """

    def __init__(self, space: StateSpace, task: str, name: str) -> None:
        self._space = space
        self._task = task
        self._name = key_segment(name)
        self._next = 0
        self._adding = asyncio.Lock()
        self.earlier: list[SessionItem] = []
        self.own: list[SessionItem] = []
        self.others: set[str] = set()
        self.finished: FinishedTask | None = None

    @property
    def values(self) -> list[bytes]:
        """The items of the session, the oldest first."""
        return [item.value for item in (*self.earlier, *self.own)]

    async def load(self) -> None:
        """Read the session."""
        done = [task async for _, task in self._finished()]
        items: dict[str, dict[str, list[StateEntry]]] = {}
        async for entry in read_below(self._space, f"i/{self._name}/"):
            _, _, task, number, _ = entry.key.split("/")
            items.setdefault(task, {}).setdefault(number, []).append(entry)
        self.finished = next((each for each in done if each.task == self._task), None)
        self.earlier = [
            item
            for each in done
            if each is not self.finished
            for item in _join_pieces(items.get(key_segment(each.task), {}).values())
        ]
        self.others = items.keys() - {key_segment(each.task) for each in done} - {key_segment(self._task)}
        own = items.get(key_segment(self._task), {})
        self.own = _join_pieces(own.values())
        self._next = int(max(own)) + 1 if own else 0

    async def append(self, values: Sequence[bytes]) -> None:
        """Add items of the task, together. Calls at the same time are made one after the other."""
        async with self._adding:
            added = [self._item(self._next + place, value) for place, value in enumerate(values)]
            await self._space.write_entries(puts=[put for item in added for put in _puts(item)])
            self._next += len(added)
            self.own.extend(added)

    async def cut(self, count: int) -> None:
        """Keep only the first `count` items of the task."""
        if dropped := self.own[count:]:
            await self._space.write_entries(deletes=[key for item in dropped for key in item.keys])
            del self.own[count:]

    async def pop(self) -> bytes | None:
        """Remove the newest item, of this task or of an earlier one. Returns it; None if there is none."""
        items = self.own or self.earlier
        if not items:
            return None
        await self._space.write_entries(deletes=items[-1].keys)
        return items.pop().value

    async def clear(self) -> None:
        """Remove all items."""
        await self._space.write_entries(prefixes=[f"i/{self._name}/", f"f/{self._name}/"])
        self.earlier, self.own, self.finished = [], [], None

    async def finish(self, output: bytes = b"") -> None:
        """Let the tasks that begin from now on have the items of this one."""
        while True:
            number = 0
            async for key, each in self._finished():
                if each.task == self._task:
                    return
                number = int(key.rpartition("/")[2]) + 1
            key = f"f/{self._name}/{number:012d}"
            self.finished = FinishedTask(self._task, output)
            try:
                await self._space.write_entries(puts=[StatePut(key, _encode(self.finished))], if_versions={key: 0})
            except StateChanged:  # by another task; or by this one, when nobody heard of it
                continue
            return

    async def _finished(self) -> AsyncIterator[tuple[str, FinishedTask]]:
        async for entry in read_below(self._space, f"f/{self._name}/"):
            yield entry.key, _decode_finished(entry.value)

    def _item(self, number: int, value: bytes) -> SessionItem:
        place = f"i/{self._name}/{key_segment(self._task)}/{number:08d}"
        pieces = range(max(1, -(-len(value) // PIECE_BYTES)))
        return SessionItem(tuple(f"{place}/{piece:04d}" for piece in pieces), value)


def _join_pieces(items: Iterable[Sequence[StateEntry]]) -> list[SessionItem]:
    return [
        SessionItem(tuple(piece.key for piece in pieces), b"".join(piece.value for piece in pieces)) for pieces in items
    ]


def _puts(item: SessionItem) -> list[StatePut]:
    return [
        StatePut(key, item.value[place * PIECE_BYTES : (place + 1) * PIECE_BYTES])
        for place, key in enumerate(item.keys)
    ]
