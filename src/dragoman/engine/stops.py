"""Stops: the ends of tasks that their runs do not write, because they are canceled, died, or were never begun.

Invariant: a task ends once, by what commits first; then nothing goes on with it here: a run that does not stop is left
behind, and what it writes later is refused (invariant 5).
"""

import asyncio

from dragoman.engine.api import Outreaching
from dragoman.engine.delegations import Delegations
from dragoman.engine.endings import closing
from dragoman.engine.live import LiveTask, wait_until
from dragoman.engine.registry import Registry
from dragoman.engine.runs import TaskRun
from dragoman.engine.writer import RETRY_S
from dragoman.model.ids import Clock
from dragoman.model.task import TaskState
from dragoman.store.api import Append, Moved, Refused, Store, StoreError


class Stops:
    """Ends tasks in place of their runs. A run that is to stop has `cancel_grace_s` seconds for it."""

    def __init__(
        self, registry: Registry, store: Store, clock: Clock, delegations: Delegations, cancel_grace_s: float
    ) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock
        self._delegations = delegations
        self._cancel_grace_s = cancel_grace_s

    async def cancel(self, live: LiveTask, waiter: "asyncio.Future[None]") -> None:
        """Stop the task's run and cancel the task. `waiter` is told when it is terminal, or why it cannot be now."""
        stopped = False
        idle = live.run is None or live.run.suspended
        try:
            while not live.terminal:
                try:
                    stopped = stopped or await self._asked(live)
                    await self.end(live, TaskState.CANCELED)
                except StoreError as error:
                    if not waiter.done():
                        waiter.set_exception(error)
                    if not stopped:
                        return
                    await asyncio.sleep(RETRY_S)
                except Refused:
                    break
        except Exception as error:
            if not waiter.done():
                waiter.set_exception(error)
            raise
        finally:
            if not waiter.done():
                waiter.set_result(None)
        if idle:
            self.tell(live)

    def tell(self, live: LiveTask) -> None:
        """A task that no run of this process ended is canceled: its runner may have something of it elsewhere."""
        agent, runners = live.head.agent, self._delegations.serving.runners
        if agent in runners and live.state is TaskState.CANCELED:
            runner = runners[agent]
            if isinstance(runner, Outreaching):
                runner.stopped(live.record())

    async def _asked(self, live: LiveTask) -> bool:
        """Mark the task, ask its run to stop, and give it its time; that of a suspended run is over at once."""
        run = live.run
        if run is not None and not run.suspended:
            await self._store.request_cancel(live.head.id)
            run.cancel()
            self._delegations.children.parent_ends(live)
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._cancel_grace_s
            while not live.terminal and live.run is not None and await wait_until(live, loop, deadline):
                pass
        return True

    async def end(self, live: LiveTask, state: TaskState, text: str = "", reason: str = "") -> None:
        """Write the end of a task on behalf of its run, unless it has ended. Raises StoreError, or Unknown."""
        loop = asyncio.get_running_loop()
        while not live.terminal:
            if live.run is not None:
                live.run.abandon()
            if live.in_flight:
                await live.wait(loop)
                continue
            now_ms = self._clock.now_ms()
            event = closing(live, state, now_ms, text, reason, live.usage)
            append = Append(
                task_id=live.head.id,
                events=(event,),
                state=state,
                status_ms=now_ms,
                expected_seq=live.tip_seq,
                snapshot=live.snapshot_after((event,)),
            )
            try:
                await live.write(self._store, append)
            except Moved:
                continue
        if live.run is not None:  # it does not stop: its task goes on without it
            self.leave_behind(live.run, live)

    def leave_behind(self, run: TaskRun, live: LiveTask) -> None:
        """The task goes on without its run, whether that stops or not."""
        run.abandon()
        if live.run is run:
            live.run = None
            self._registry.release(live)
