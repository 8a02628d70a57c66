"""Worker processes: `dragoman worker` as it is, whose calls reach some replica of those that serve its agent.

Invariant: a worker knows the replicas only by HTTP, through a balancer that sends each call to any of them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.engine.api import Run
from dragoman.net.egress import HttpReply
from dragoman.net.errors import Unreachable
from dragoman.net.target import Target
from tests.simulation.agents import HIRED, ScriptedAgent
from tests.simulation.history import Ended, Executed, Fault, History, Idle, Let, Took
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.replica import Connection, Lost, Place

GRACE_S = 0.5
"""How long a worker that is told to stop goes on with what it has."""

DOWN_S = 1.0
"""After how long a worker that has ended is followed by the next."""


class Balancer:
    """The way of one worker to the replicas: see `client.http.Requester`."""

    def __init__(self, worker: "Worker", places: Sequence[Place], random: Random) -> None:
        self._worker = worker
        self._places = [place for place in places if HIRED in place.serves]
        self._random = random

    async def request(
        self,
        method: str,
        url: str | Target,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpReply:
        """Send a call to some replica. Raises EgressError if no answer comes."""
        action = str(url).rpartition("/")[2]
        running = [place for place in self._places if place.running]
        place = self._random.choice(running or self._places)
        waits = action == "lease"
        if waits:
            self._worker.asks = True
            self._worker.waits()
        connection = place.work(self._worker.process, HIRED, action, body or b"")
        self._worker.connections[connection] = None
        try:
            answer: tuple[int, bytes] = await connection.receive(timeout_s)
        except Lost as lost:
            if waits:
                self._worker.waits_no_more()
            raise Unreachable(place.name, str(lost)) from lost
        finally:
            del self._worker.connections[connection]
            connection.close()
            if waits:
                self._worker.asks = False
        if waits and answer[0] not in (200, 204):
            self._worker.waits_no_more()
        return HttpReply(status=answer[0], headers={}, body=answer[1])


class Worker:
    """Where worker processes run, one after the other, each with at most `tasks` at once."""

    def __init__(
        self, name: str, loop: SimulatedLoop, places: Sequence[Place], history: History, random: Random, *, tasks: int
    ) -> None:
        self.name = name
        self.process = Process(name)
        self.process.dead = True
        self.connections: dict[Connection, None] = {}
        """The calls under way, which end with the process."""
        self._loop = loop
        self._places = places
        self._history = history
        self._random = random
        self.tasks = tasks
        self._starts = 0
        self._has: dict[str, None] = {}
        self._idle = False
        self.asks = False
        """Whether it asks for a further task at present."""
        self._stop = asyncio.Event()

    def start(self) -> None:
        """Start a process, if there is none."""
        if self.process.dead:
            self._starts += 1
            self.process = Process(f"{self.name}.{self._starts}")
            self._history.add(Fault(f"{self.process.name} starts"))
            self._stop = asyncio.Event()
            self._loop.spawn(self.process, self._work())

    def kill(self) -> None:
        """End the process at once. What it has is another's when its lease is over."""
        if not self.process.dead:
            self._history.add(Fault(f"{self.process.name} is killed"))
            self._end(gives_back=False)

    def stop(self) -> None:
        """Let the process stop by itself (SIGTERM)."""
        if not self.process.dead:
            self._history.add(Fault(f"{self.process.name} is told to stop"))
            self._loop.post(self.process, 0.0, self._stop.set)

    def pause(self) -> Process | None:
        """Let nothing of the process run until `go_on`, if it works and waits for no further task (SIGSTOP)."""
        process = self.process
        if process.dead or process.stopped or self._idle or not self._has:
            return None
        self._history.add(Fault(f"{process.name} is stopped"))
        self._loop.stop_process(process)
        return process

    def go_on(self, process: Process) -> None:
        """Let a process run again that was paused, unless it was killed meanwhile (SIGCONT)."""
        if not process.dead:
            self._history.add(Fault(f"{process.name} goes on"))
            self._loop.go_on(process)

    def _end(self, *, gives_back: bool) -> None:
        self._loop.kill(self.process)
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        self.asks = False
        self.waits_no_more()
        for task_id in self._has:
            self._history.add(Let(self.name, task_id, gives_back))
        self._has.clear()
        self._history.add(Ended(self.name))

    async def _work(self) -> None:
        balancer: Any = Balancer(self, self._places, self._random)
        server = WorkerApi(balancer, "http://balancer", HIRED)
        agent = _Hand(self)
        await Lessee(agent, server, name=self.name, tasks=self.tasks).work(self._stop, GRACE_S)
        self._history.add(Fault(f"{self.process.name} has stopped"))
        self._end(gives_back=True)

    # -- what it has ---------------------------------------------------------------------------------------------------

    def waits(self) -> None:
        """Note that it waits for a task."""
        if not self._idle:
            self._idle = True
            self._history.add(Idle(self.name, True))

    def waits_no_more(self) -> None:
        """Note that it does not wait for a task any more."""
        if self._idle:
            self._idle = False
            self._history.add(Idle(self.name, False))

    def begun(self, run: Run) -> None:
        """Note that it begins with a task."""
        self.waits_no_more()
        self._has[run.head.id] = None
        self._history.add(Took(self.name, run.head.id))
        if self.asks:  # it asked before it had begun
            self.waits()

    def executed(self, run: Run, step: str) -> None:
        """Note that its agent executes a step."""
        self._history.add(Executed(run.head.id, self.name, step, run.epoch))

    def ended(self, task_id: str) -> None:
        """Note that its agent is done with a task, or was stopped, because the lease is over."""
        if task_id in self._has:
            del self._has[task_id]
            self._history.add(Let(self.name, task_id, True))


class _Hand(ScriptedAgent):
    """The agent of a worker, which says what becomes of its runs."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(HIRED, worker)
        self._worker = worker

    async def run(self, run: Run) -> None:
        """Play the script."""
        try:
            await super().run(run)
        finally:
            self._worker.ended(run.head.id)
