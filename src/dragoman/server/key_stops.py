"""The work on requests to end what a leaked key began: see `engine.key_stops`.

Invariant: a stream of a stopped key ends within `WATCH_S` of the moment at which its server can read the request. Tasks
that take long to cancel delay no stream's end, and no other request.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from msgspec import Struct

from dragoman.admin.tasks import CANCEL_TASK, CancelReason
from dragoman.auth.authenticator import Authenticator
from dragoman.bindings.streams import Streams
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.administration import Administration
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.key_beginnings import open_tasks
from dragoman.engine.admin.task_batches import change_each
from dragoman.engine.key_stops import STREAMS_MS, KeyStops, StopRequest
from dragoman.model.errors import TaskNotCancelable, TaskNotFound
from dragoman.store.api import OutcomeUnknown, Store, StoreError
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

WATCH_S = 1.0
"""How often the requests are read."""

PAGE = 100
"""Webhooks that are read at once."""

KEYS_A_SECOND = 500
"""The number of keys whose streams are told in a second: with more of them they are told less often."""


class StopCounts(Struct):
    """How many webhooks and tasks of a key an attempt has ended, and how many tasks it could not cancel."""

    webhooks: int = 0
    tasks: int = 0
    left: int = 0


class KeyStopper:
    """Ends what stopped keys began, and tells the store which keys have streams here.

    Nothing is read until the `authenticator` asks callers for keys.
    """

    def __init__(
        self,
        store: Store,
        stops: KeyStops,
        streams: Streams,
        administration: Administration,
        replica: str,
        authenticator: Authenticator,
    ) -> None:
        self._store = store
        self._stops = stops
        self._streams = streams
        self._administration = administration
        self._replica = replica
        self._authenticator = authenticator
        self._told: dict[str, int] = {}
        self._tell_s = 0.0
        """The loop's time at which streams may be told again, and at which they have to be."""
        self._due_s = 0.0
        self._pending: tuple[StopRequest, ...] = ()
        self._news = asyncio.Event()

    async def remove_webhooks(self) -> None:
        """Remove the webhooks of stopped keys before any is called."""
        if self._authenticator.required:
            with suppress(StoreError, OutcomeUnknown):  # the job tries again
                for request in await self._stops.refresh():
                    if not request.done_ms:
                        await self._remove_webhooks(request)

    async def close(self) -> None:
        """Tell the others that no stream is open here any more."""
        if self._told:
            with suppress(StoreError):
                await self._stops.tell_streams(self._replica, {})

    async def run(self) -> None:
        """Read the requests and end streams for ever."""
        while True:
            if self._authenticator.required:
                try:
                    requests = await self._stops.refresh()
                    self._pending = tuple(request for request in requests if not request.done_ms)
                    if self._pending:
                        self._news.set()
                    self._end_streams()
                    await self._tell_streams()
                except StoreError as error:
                    self._end_streams()
                    log.warning("requests to stop keys cannot be read: %s", error, extra=about("requests"))
            await asyncio.sleep(WATCH_S)

    def _end_streams(self) -> None:
        if self._stops.stopped and (ended := self._streams.end(self._stops.stopped)):
            log.info("closed the streams of keys that an operator stopped: %d", ended)

    async def _tell_streams(self) -> None:
        now_s = asyncio.get_running_loop().time()
        counts = self._streams.by_key()
        if now_s >= self._due_s or (counts != self._told and now_s >= self._tell_s):
            if counts or self._told:
                await self._stops.tell_streams(self._replica, counts)
            self._told = counts
            self._tell_s = now_s + len(counts) / KEYS_A_SECOND
            self._due_s = now_s + STREAMS_MS / 3000

    async def work(self) -> None:
        """Remove webhooks and cancel tasks for ever. A request waits for no other one."""
        under_way: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                self._news.clear()
                for request in self._pending:
                    if request.key not in under_way:
                        under_way.add(request.key)
                        done = group.create_task(self._attempt(request.key), name=f"stop {request.key}")
                        done.add_done_callback(partial(_forget, under_way, request.key))

    async def _attempt(self, key_id: str) -> None:
        try:
            await self._carry_out(key_id)
        except (StoreError, OutcomeUnknown) as error:
            log.warning("what key %s began goes on: %s", key_id, error, extra=about(key_id))
        except Exception:  # nobody foresaw it, and the other requests are carried out all the same
            log.exception("what key %s began goes on", key_id, extra=about(key_id))

    async def _carry_out(self, key_id: str) -> None:
        claimed = await self._stops.claim(key_id, self._replica, self._store.replicas.alive)
        if claimed is None:
            return
        request, version = claimed
        ended = StopCounts(webhooks=await self._remove_webhooks(request))
        if request.tasks:
            await self._cancel_tasks(request, ended)
        found = bool(ended.webhooks or ended.tasks)
        await self._stops.settle(request, version, found=found, left=ended.left)
        if found or ended.left:
            log.info(
                "key %s of %s was stopped by %s: webhooks removed: %d, tasks canceled: %d%s",
                request.key,
                request.name,
                request.by,
                ended.webhooks,
                ended.tasks,
                f", {ended.left} go on and are tried again" if ended.left else "",
            )

    async def _remove_webhooks(self, request: StopRequest) -> int:
        outbox, removed, more = self._store.outbox, 0, True
        while more:
            before = removed
            for webhook in await outbox.made_with(request.key, PAGE):
                removed += await outbox.remove(webhook.task_id, webhook.config_id)
            more = removed > before
        return removed

    async def _cancel_tasks(self, request: StopRequest, ended: StopCounts) -> None:
        """Cancel the open tasks that the key began, some at a time."""
        operator, reason = Operator(request.by), CancelReason(reason=f"key {request.key} was revoked")

        async def cancel(task_id: str) -> None:
            with suppress(TaskNotCancelable, TaskNotFound):  # it has just ended by itself
                await self._administration.answer(CANCEL_TASK, Asked(operator, reason, task_id))
                ended.tasks += 1

        found = [row.head.id async for row in open_tasks(self._store, request.owner) if row.head.key == request.key]
        for failure in await change_each(found, cancel):
            ended.left += 1
            log.warning("task %s of a stopped key goes on: %s", failure.id, failure.reason, extra=about(failure.id))


def _forget(under_way: set[str], key_id: str, _: "asyncio.Task[None]") -> None:
    under_way.discard(key_id)
