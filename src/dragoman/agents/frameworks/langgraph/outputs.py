"""TaskOutputs: the output that LangGraph's tasks have given, kept with their results.

A task is one execution of a node. After a crash a finished one is not executed again, so what it said would be missing
from the artifact that replaces what the dead run gave. So it is stored in the same write as the task's result, and a
later run begins with it.

Invariant: what a task said is stored with its result, or in an earlier write, except if the run is canceled or breaks
off at that moment: then it is of no use, or repeated.

LangGraph stores a result as soon as its task has ended, and its events arrive a little later. So the result waits for
the event that says so, as long as the run has events to take. One that breaks off takes no more, and tells nobody
before all results are stored: it is given up on once it has waited in vain for a while.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dragoman.engine.state_space import StateSpace, read_below
from dragoman.model.message import Part
from dragoman.store.state import StatePut

OUTPUTS = "o/"
"""The beginning of the keys."""

E = TypeVar("E")

LOOK_S, LOOKS = 0.1, 10
"""A result is stored without the rest of what its task has said if the run has waited for an event at each of so many
looks, and none has come. Time alone proves nothing on a machine that is busy with other work."""


class StoredOutput(Struct, frozen=True, array_like=True):
    """The pieces that a task said in a row, as one. `number` counts in the order of the artifact."""

    number: int
    piece: str | Part


_decode = msgspec.msgpack.Decoder(list[StoredOutput]).decode
_encode = msgspec.msgpack.Encoder().encode


class Said(Struct, frozen=True):
    """The pieces that a task said in a row, not stored yet: texts, or one file.

    `path` has the ids of the task and of those around it.
    """

    number: int
    step: int
    path: Sequence[str]
    pieces: list[str | Part]

    def output(self) -> StoredOutput:
        """The pieces as one."""
        first = self.pieces[0]
        return StoredOutput(self.number, "".join(map(str, self.pieces)) if isinstance(first, str) else first)


class TaskOutputs:
    """The output of one run since its last question. `prefix` begins its keys."""

    def __init__(self, prefix: str, kept: Sequence[StoredOutput] = ()) -> None:
        self.kept = [each.piece for each in kept]
        """The output of the tasks that had finished before the crash."""
        self._prefix = prefix
        self._number = max((each.number for each in kept), default=0)
        self._said: list[Said] = []
        """The output that is not stored yet."""
        self._arrived: dict[str, asyncio.Event] = {}
        """The tasks that have begun and whose results are not stored: whether all has arrived that they said."""
        self._taken = 0
        self._waiting = False
        """How many events the run has taken, and whether it waits for one."""

    async def watch_events(self, events: AsyncIterator[E]) -> AsyncGenerator[E, None]:
        """The events of the graph, for the run that takes them."""
        try:
            self._waiting = True
            async for event in events:
                self._taken, self._waiting = self._taken + 1, False
                yield event
                self._waiting = True
        finally:
            self._waiting = True
            for arrived in self._arrived.values():
                arrived.set()

    @contextmanager
    def taking_none(self) -> Iterator[None]:
        """The run takes no event within the block, whatever a result waits for."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def add(self, metadata: Mapping[str, Any], piece: str | Part) -> None:
        """Note what a task said; `metadata` is LangGraph's."""
        namespace = str(metadata.get("langgraph_checkpoint_ns") or "")
        path = tuple(segment.rpartition(":")[2] for segment in namespace.split("|"))
        step = int(metadata.get("langgraph_step") or 0)
        last = self._said[-1] if self._said else None
        if last is not None and last.path == path and isinstance(piece, str) and isinstance(last.pieces[-1], str):
            last.pieces.append(piece)
        else:
            self._number += 1
            self._said.append(Said(self._number, step, path, [piece]))

    def begin(self, task_id: str) -> None:
        """Note that a task has begun. One that LangGraph hides never does, and says nothing."""
        self._arrived[task_id] = asyncio.Event()

    def finish(self, task_id: str) -> None:
        """Note that all has arrived that a task said."""
        if (arrived := self._arrived.get(task_id)) is not None:
            arrived.set()

    async def entries_of(self, task_id: str) -> list[StatePut]:
        """The output of a finished task that is not stored yet, as entries."""
        if (arrived := self._arrived.get(task_id)) is not None:
            await self._await_arrival(arrived)
            self._arrived.pop(task_id, None)
        said = [each for each in self._said if task_id in each.path]
        self._said = [each for each in self._said if task_id not in each.path]
        return self._entries(said)

    def rest(self, step: int) -> list[StatePut]:
        """The output of all tasks up to a step, which have finished, as far as it is not stored yet, as entries."""
        said = [each for each in self._said if each.step <= step]
        self._said = [each for each in self._said if each.step > step]
        return self._entries(said)

    async def _await_arrival(self, arrived: asyncio.Event) -> None:
        """Wait until all has arrived, or until the run has waited in vain for so long that nothing more will."""
        vain = 0
        while vain < LOOKS and not arrived.is_set():
            taken = self._taken
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await arrived.wait()
            vain = vain + 1 if self._waiting and self._taken == taken else 0

    def _entries(self, said: Sequence[Said]) -> list[StatePut]:
        outputs = [each.output() for each in said]
        return [StatePut(f"{self._prefix}{outputs[0].number:08}", _encode(outputs))] if outputs else []


async def load_outputs(space: StateSpace, task_id: str, part: int) -> TaskOutputs:
    """The stored output of a task. `part` numbers the stretches between its questions."""
    prefix = f"{OUTPUTS}{task_id}/{part:04}/"
    found = [output async for entry in read_below(space, prefix) for output in _decode(entry.value)]
    return TaskOutputs(prefix, sorted(found, key=lambda each: each.number))
