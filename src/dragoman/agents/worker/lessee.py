"""Lessee: takes an agent's tasks from a server and runs the agent on them, in this process.

Invariant: a task that is canceled, or whose lease is over, is worked on only as long as its agent takes to stop.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from dragoman.agents.worker import wire
from dragoman.agents.worker.run import CALL_S, RETRY_S, Refused, RemoteRun, Server
from dragoman.engine.api import Ended, Reject, Runner
from dragoman.model.ids import new_id
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.net.errors import EgressError

log = logging.getLogger("dragoman.worker")

RETRY_S_MAX = 5.0
"""Longest pause before the next call to a server that was not reached."""

BEAT_S_MIN = 0.2
"""Shortest time between two heartbeats, if the server answers at once."""

LEAVE_S = 5.0
"""How long a canceled agent may clean up before it is left behind."""

LEAVE_AT_STOP_S = 1.5
"""The same when the worker stops, which is to be over soon."""

GIVE_BACK_S = 1.0
"""How long a server may take to accept a task that is given back; after that, its lease runs out."""


class Lessee:
    """A worker for one agent, with at most `tasks` at once. `name` identifies this worker to the server."""

    def __init__(self, agent: Runner, server: Server, *, name: str, tasks: int) -> None:
        self._agent = agent
        self._server = server
        self._name = name
        self._leave_s = LEAVE_S
        self._slots = asyncio.Semaphore(tasks)

    async def work(self, stop: asyncio.Event, grace_s: float) -> None:
        """Take tasks until `stop`; then give those back that do not end within `grace_s`."""
        stopping = asyncio.ensure_future(stop.wait())
        running: set[asyncio.Task[None]] = set()
        try:
            while not stop.is_set():
                slot = asyncio.ensure_future(self._slots.acquire())
                await asyncio.wait((slot, stopping), return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    slot.cancel()
                    break
                taking = asyncio.ensure_future(self._take())
                await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    taking.cancel()
                    break
                task = asyncio.create_task(self._run(taking.result()))
                running.add(task)
                task.add_done_callback(running.discard)
                task.add_done_callback(lambda _: self._slots.release())
            if running:
                await asyncio.wait(running, timeout=grace_s)
        finally:
            stopping.cancel()
            self._leave_s = LEAVE_AT_STOP_S
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    async def _take(self) -> wire.Delivery:
        """Wait for the next task, however long it takes."""
        pause_s = RETRY_S
        request = wire.TakeRequest(self._name, wait_s=wire.WAIT_S_MAX, replays=True)
        while True:
            try:
                delivery = await self._server.call("lease", request, wire.Delivery, wire.WAIT_S_MAX)
            except (EgressError, Refused) as error:
                if isinstance(error, Refused) and not error.temporary:
                    raise
                log.warning("agent %s: no work, the server cannot be asked: %s", self._server.agent, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
                continue
            pause_s = RETRY_S
            if delivery is not None:
                return delivery

    async def _run(self, delivery: wire.Delivery) -> None:
        """Do one task. Returns when it has ended, or was canceled or lost."""
        run = RemoteRun(self._server, delivery)
        doing = asyncio.create_task(self._do(run))
        beating = asyncio.create_task(self._beat(run))
        try:
            await asyncio.wait((doing, beating), return_when=asyncio.FIRST_COMPLETED)
            if run.ending:
                await asyncio.wait((doing,), timeout=CALL_S)
        finally:
            doing.cancel()
            await asyncio.wait((doing,), timeout=self._leave_s)
            beating.cancel()
            await asyncio.wait((beating,))
            if not doing.done() or doing.cancelled():
                await self._give_back(run)

    async def _do(self, run: RemoteRun) -> None:
        try:
            await self._agent.run(run)
        except Reject as reject:
            await self._end(run, TaskState.REJECTED, _text(str(reject)))
        except Ended as ended:
            await self._end(run, ended.state, ended.parts)
        except (Exception, SystemExit, BaseExceptionGroup, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (run.over or task is None or task.cancelling()):
                raise
            reference = new_id()[-12:]
            log.error(
                "agent %s raised in task %s (reference %s)",
                self._server.agent,
                run.head.id,
                reference,
                exc_info=error,
            )
            await self._end(run, TaskState.FAILED, _text(f"The agent failed (reference {reference})."))
        else:
            await self._end(run, TaskState.COMPLETED)

    async def _end(self, run: RemoteRun, state: TaskState, parts: Sequence[Part] = ()) -> None:
        try:
            await run.end(state, parts)
        except Refused as refused:
            log.warning("task %s: its end was refused: %s", run.head.id, refused)

    async def _beat(self, run: RemoteRun) -> None:
        """Keep the lease. Returns when the task is canceled or lost."""
        wait_s = min(run.expires_s / 2, wire.WAIT_S_MAX)
        request = wire.Heartbeat(run.lease, wait_s, answers=1 << 30)  # answers come by `ask` instead
        heard = time.monotonic()
        while True:
            began = time.monotonic()
            try:
                pulse = await self._server.call("heartbeat", request, wire.Pulse, wait_s)
            except (EgressError, Refused) as error:
                if run.ending:
                    return
                if isinstance(error, Refused) and not error.temporary:
                    log.warning("task %s is lost: %s", run.head.id, error)
                    return
                if time.monotonic() - heard > run.expires_s:
                    log.warning("task %s is lost: the server cannot be reached: %s", run.head.id, error)
                    return
            else:
                heard = time.monotonic()
                if pulse is None or pulse.cancel:
                    log.info("task %s is canceled", run.head.id)
                    return
            await asyncio.sleep(max(0.0, BEAT_S_MIN - (time.monotonic() - began)))

    async def _give_back(self, run: RemoteRun) -> None:
        """Let another worker have the task at once. The server refuses this for one that was canceled or lost."""
        try:
            async with asyncio.timeout(GIVE_BACK_S):
                await self._server.call("release", wire.Release(run.lease), wire.Nothing)
        except (EgressError, Refused, TimeoutError):
            return


def _text(text: str) -> tuple[Part, ...]:
    return (Part(text=text),) if text else ()
