"""Tails: where the stream of a task begins, for one who sends, who subscribes, and who comes back.

Invariant: with what comes before it (a snapshot, or what its reader has already) a tail tells all, each event once.
"""

from collections.abc import Callable

from dragoman.engine import policy
from dragoman.engine.dispatch import Dispatch
from dragoman.engine.handler import Snapshot
from dragoman.engine.intake import Taken
from dragoman.engine.live import LiveTask
from dragoman.engine.registry import Registry
from dragoman.engine.tail import Tail
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.lifecycle import fold
from dragoman.model.operations import Call, StreamMessage
from dragoman.model.task import INTERRUPTED, Record
from dragoman.store.api import Store


class Tails:
    """Opens tails, which send a sign of life every `keepalive_s` and end when the server is `stopping`."""

    def __init__(
        self, store: Store, registry: Registry, dispatch: Dispatch, keepalive_s: float, stopping: Callable[[], bool]
    ) -> None:
        self._store = store
        self._registry = registry
        self._dispatch = dispatch
        self._keepalive_s = keepalive_s
        self._stopping = stopping

    async def of_send(self, call: Call, send: StreamMessage, taken: Taken) -> Tail:
        """What becomes of a message, from the task as it stood then (A2A 1.0 §3.1.2). Raises A2AError, StoreError."""
        live, seq = taken.live, taken.seq
        if taken.repeated and call.after is not None:
            return await self._resumed(call, live, call.after, ends=True)
        if live.seq == seq:
            return self._tail(live, seq, Snapshot(live.record(), send.history_length), ends=True)
        log = [logged for logged in await self._registry.log(live.head.id) if logged.seq <= seq]
        if len(log) == seq:
            return self._tail(live, seq, Snapshot(fold(live.head, None, log), send.history_length), ends=True)
        return self._tail(live, live.seq, Snapshot(live.record(), send.history_length), ends=True)

    async def of_task(self, call: Call, task_id: str) -> Tail:
        """A subscription (A2A 1.0 §3.1.6). Raises A2AError, StoreError."""
        live = self._registry.pin(call, task_id)
        ends = not call.manners.subscribed_until_terminal
        try:
            if call.after is not None:
                return await self._resumed(call, live, call.after, ends=ends)
            if live.terminal and not call.manners.subscribes_to_ended:
                raise UnsupportedOperation(f"task {task_id} has ended ({live.state.value}): read it with GetTask")
            tells_end = ends and call.manners.subscribes_to_ended and live.state in INTERRUPTED
            return self._tail(live, live.seq, Snapshot(live.record(), subscribed=True), ends=ends, over=tells_end)
        finally:
            self._registry.unpin(live)

    async def _resumed(self, call: Call, live: LiveTask, after: str, *, ends: bool) -> Tail:
        """What follows the last id the caller saw; if that is not kept any more, the task and what follows."""
        seq, frame = policy.read_after(after, live.seq)
        first = max(0, seq - 1) if frame else seq
        if live.terminal and first < live.seq:  # of others nothing is pruned
            following = await self._store.read(live.head.id, first, 1)
            if not following or following[0].seq != first + 1:
                return self._tail(live, live.seq, Snapshot(live.record()), ends=ends)
        base = None
        if call.folds and first > 0:
            log = await self._registry.log(live.head.id)
            base = fold(live.head, None, (logged for logged in log if logged.seq <= first))
        return self._tail(live, first, None, ends=ends, base=base)

    def _tail(
        self,
        live: LiveTask,
        after: int,
        snapshot: Snapshot | None,
        *,
        ends: bool,
        over: bool = False,
        base: Record | None = None,
    ) -> Tail:
        return Tail(
            live,
            self._store,
            self._dispatch.loop,
            after=after,
            snapshot=snapshot,
            base=base,
            ends_when_interrupted=ends,
            ends_with_snapshot=over,
            keepalive_s=self._keepalive_s,
            stopping=self._stopping,
            released=self._registry.release,
        )
