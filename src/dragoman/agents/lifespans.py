"""The lifespans that are open in this process: entered before an agent is served, left after its last task.

A lifespan is entering, open, leaving and left. It is held by an asyncio task of its own, because what it opens may have
to be closed by the task that opened it (task groups and cancel scopes do). Agents may share one; the last one that is
closed leaves it.

Invariant: what was entered is left once, whatever fails. If one of several agents cannot be entered, none of them is.
No exception of a lifespan ends the process: one that breaks while its agents are served makes them degraded.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from typing import Any

from dragoman.agents.user_code import describe_error, error_place, file_place
from dragoman.engine.api import Lifespan, Runner
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.agents")

CANCEL_S = 1.0
"""How long a lifespan that took too long may take to end after its cancellation."""


class LifespanError(Exception):
    """A lifespan could not be entered. The message says of which agent, what went wrong and where, in one line."""


class OpenLifespan:
    """A lifespan from its entering to its end, for one agent, or for all that share it."""

    def __init__(self, lifespan: Lifespan, agent: Runner, group: JobGroup) -> None:
        self.lifespan = lifespan
        self.broken = False
        """Whether it has ended by itself."""
        self.holders: list[Runner] = []
        """The agents for which it is open."""
        self._abandoned = False
        """Whether it took too long to open. It is canceled then, and may ignore that."""
        self._agent_id = agent.profile.id
        self._manager: Any = None
        self._entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task = group.create_task(self._hold(agent), name=lifespan.name)
        self._task.add_done_callback(self._give_up)

    async def enter(self, timeout_s: float) -> Any:
        """Wait until it is open, and return what it yields. Raises LifespanError; then nothing of it is open."""
        await asyncio.wait((self._entered,), timeout=timeout_s)
        if not self._entered.done():
            late = f"{self._told()} took longer than lifespan_timeout_s = {timeout_s:g} to open{self._waits_at()}"
            self._entered.set_exception(LifespanError(late))  # also for others that wait for it
            self._abandoned = True
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=CANCEL_S)
        if self._entered.cancelled():
            raise LifespanError(f"{self._told()} was canceled as it opened")
        return self._entered.result()

    async def leave(self, timeout_s: float) -> None:
        """Close it, and wait for its end: at most `timeout_s`, or until this call is canceled. Then it is canceled."""
        if self._abandoned:
            return
        self._leaving.set()
        if not self._entered.done():
            self._task.cancel()
        try:
            await asyncio.wait((self._task,), timeout=timeout_s)
        finally:
            if not self._task.done():
                log.warning("%s did not close in time%s: it is canceled", self._told(), self._waits_at())
                self._task.cancel()
        if not self._task.done():
            await asyncio.wait((self._task,), timeout=CANCEL_S)

    async def _hold(self, agent: Runner) -> None:
        try:
            self._manager = self.lifespan.manager(agent)
            async with self._manager as yielded:
                self._entered.set_result(yielded)
                await self._leaving.wait()
        except (Exception, SystemExit) as error:  # noqa: BLE001  a user's code may raise anything
            self._report(error)

    def _report(self, error: BaseException) -> None:
        if not self._entered.done():
            log.debug("%s failed", self._told(), exc_info=error)
            self._entered.set_exception(LifespanError(self._fault(error)))
        elif self._leaving.is_set():
            log.error("%s failed as it closed: %s", self._told(), describe_error(error), exc_info=error)
        else:
            self.broken = True
            log.error("%s ended while it was in use: %s", self._told(), describe_error(error), exc_info=error)

    def _fault(self, error: BaseException) -> str:
        if isinstance(error, LifespanError):
            return f"{self._told()}: {error}"
        at = f" ({place})" if (place := error_place(error)) else ""
        return f"{self._told()} failed with {describe_error(error)}{at}"

    def _give_up(self, task: "asyncio.Task[None]") -> None:
        """Let nobody wait for a lifespan whose task was canceled before it was open."""
        if not self._entered.done():
            self._entered.cancel()
        elif not self._entered.cancelled():
            self._entered.exception()  # it is told to those who wait, of whom there may be none any more

    def _told(self) -> str:
        return f"agent {self._agent_id}: {self.lifespan.name}"

    def _waits_at(self) -> str:
        """The line of a generator at which it waits, in words; empty if that is not known."""
        frame = getattr(getattr(self._manager, "gen", None), "ag_frame", None)
        return "" if frame is None else f", and waits at {file_place(frame.f_code.co_filename, frame.f_lineno)}"


class Lifespans:
    """The open lifespans of the agents of a process."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], OpenLifespan] = {}
        """By function and, where it takes the agent, by agent: both are kept alive by the values."""

    async def enter(self, group: JobGroup, agents: Iterable[Runner]) -> None:
        """Enter the lifespans of all agents, those of different agents at the same time.

        Raises LifespanError, and then the agents have none open.
        """
        entering = tuple(agent for agent in agents if agent.lifespans())
        try:
            faults = await asyncio.gather(*(self._enter(group, agent) for agent in entering))
            if said := dict.fromkeys(str(fault) for fault in faults if fault is not None):
                raise LifespanError("; ".join(said))
        except BaseException:
            await self.leave(entering)
            raise

    async def leave(self, agents: Collection[Runner]) -> None:
        """Leave the lifespans that are open for these agents, and for no others. It is no fault if there are none."""
        await asyncio.gather(*(self._leave(agent) for agent in agents))

    async def leave_all(self) -> None:
        """Leave all that are open: also those for whose agents a call of `leave` was canceled before it had begun."""
        holders = {id(agent): agent for opened in self._open.values() for agent in opened.holders}
        await self.leave(holders.values())

    def broken(self, agent: Runner) -> bool:
        """Whether a lifespan of the agent has ended by itself."""
        return any(agent in opened.holders and opened.broken for opened in self._open.values())

    async def _enter(self, group: JobGroup, agent: Runner) -> LifespanError | None:
        """Enter the lifespans of one agent, one after the other. Returns the fault of one that could not be entered."""
        for lifespan in agent.lifespans():
            key = _key(lifespan, agent)
            opened = self._open.get(key)
            if opened is None or opened.broken:
                opened = self._open[key] = OpenLifespan(lifespan, agent, group)
            opened.holders.append(agent)
            try:
                agent.take_state(lifespan, await opened.enter(agent.lifespan_timeout_s))
            except LifespanError as fault:
                return fault
        return None

    async def _leave(self, agent: Runner) -> None:
        for key, opened in reversed(tuple(self._open.items())):
            if agent in opened.holders:
                opened.holders.remove(agent)
                if not opened.holders:
                    del self._open[key]
                    await opened.leave(agent.lifespan_timeout_s)


async def enter_in(stack: AsyncExitStack, agent: Runner) -> None:
    """Enter the lifespans of one agent in a stack, for as long as that is open."""
    for lifespan in agent.lifespans():
        agent.take_state(lifespan, await stack.enter_async_context(lifespan.manager(agent)))


def _key(lifespan: Lifespan, agent: Runner) -> tuple[int, int]:
    return id(lifespan.subject), id(agent) if lifespan.takes_agent else 0
