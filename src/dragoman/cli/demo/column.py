"""A column of the demo: servers, a caller who follows one task on them, and the kill in between."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from dragoman.cli.demo.balancer import Balancer
from dragoman.cli.demo.process import DemoProcess, ServerFailed, free_port
from dragoman.cli.demo.steps import FILE_ENV, KILLED_IN, STEP_S_ENV, STEPS, StepCounts
from dragoman.cli.tables import printable

DOWN_S = 1.0
"""How long a killed server stays away. A replica stays away until the end: another one has its work."""

COMPLETED = "TASK_STATE_COMPLETED"

LOOK_S = 0.1
"""How often it is looked whether a server has ended."""

ENDED = (COMPLETED, "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")


class DemoPlan(Struct, frozen=True, kw_only=True):
    """What all columns do. `agent` is a reference to one of the user's; empty: the demo's own work.

    `step_s` is how long a step of that work takes. `after_s` is when the server of a user's agent is killed, counted
    from its first event. `store` is the URL of a PostgreSQL database for `replicas` servers; empty: one on SQLite.
    """

    text: str
    agent: str = ""
    step_s: float = 1.0
    after_s: float = 3.0
    replicas: int = 1
    store: str = ""


class DemoColumn:
    """What is the same in all columns: what was seen, and the kill. Subclasses have the servers and the caller."""

    def __init__(self, name: str, title: str, plan: DemoPlan, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        """The path of its webhooks, and its member in the JSON of the result."""
        self.title = title
        self.plan = plan
        self.folder = folder
        self.port = free_port()
        """Where the caller calls."""
        self.ports = [self.port] if plan.replicas == 1 else [free_port() for _ in range(plan.replicas)]
        """Where the servers listen."""
        self.environment = {
            **environment,
            FILE_ENV: str(folder / f"{name}.steps"),
            STEP_S_ENV: str(plan.step_s),
        }
        self.lines: list[tuple[float, str]] = []
        """What happened, for people, with the seconds since the message was sent."""
        self.artifacts: set[str] = set()
        """The names of the artifacts that the caller has, from the stream or from a read."""
        self.lacking: int | None = None
        """How many characters of the server's task the caller's stream has not brought, if that was compared."""
        self.state = ""
        """The last state that the caller was told."""
        self.why = ""
        """What the last state came with, if the caller was told."""
        self.killed = False
        self.back = asyncio.Event()
        """Whether a server runs again after the kill."""
        self.took_s: float | None = None
        """How long the caller waited for the end of the task; None if it never came."""
        self._servers: list[DemoProcess] = []
        self._balancer = Balancer(self.port, self.ports)
        self._began_s = 0.0
        self._first = asyncio.Event()

    @property
    def url(self) -> str:
        """Where the caller calls."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def steps(self) -> StepCounts:
        """What the work wrote."""
        return StepCounts(self.folder / f"{self.name}.steps")

    @property
    def settings(self) -> str:
        """What the servers and the caller are set to, in a sentence."""
        raise NotImplementedError

    def make_server(self, number: int, port: int) -> DemoProcess:
        """Make the server of that number, from 1 on."""
        raise NotImplementedError

    async def follow(self, webhook: str) -> None:
        """Send the message, and follow the task as long as the caller can."""
        raise NotImplementedError

    async def start(self) -> None:
        """Start the servers. Raises ServerFailed."""
        self._servers = [self.make_server(number, port) for number, port in enumerate(self.ports, start=1)]
        for server, port in zip(self._servers, self.ports, strict=True):  # the first one makes the tables
            await server.listen(port)
        if len(self.ports) > 1:
            await self._balancer.open()

    @property
    def last_words(self) -> str:
        """The last line of a server's log; empty before the start."""
        return self._servers[0].last_words if self._servers else ""

    async def run(self, webhook: str) -> None:
        """Call a server, and kill it meanwhile. Raises ServerFailed if it ends by itself or does not come back."""
        self._began_s = time.monotonic()
        self.say("message sent")
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch())
                killing = group.create_task(self._kill())
                await self.follow(webhook)
                if self.killed:
                    await killing
                killing.cancel()
                watching.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def stop(self) -> None:
        """End what still runs."""
        await self._balancer.close()
        for server in self._servers:
            await server.stop()

    def say(self, text: str) -> None:
        """Add a line. No text of an agent moves the cursor of the terminal."""
        self.lines.append((time.monotonic() - self._began_s, printable(text)))

    def take_artifact(self, name: str) -> None:
        """The caller has an artifact."""
        self._first.set()
        if name not in self.artifacts:
            self.artifacts.add(name)
            self.say(name)

    def take_state(self, state: str) -> None:
        """The caller was told of a state."""
        self._first.set()
        if state != self.state:
            self.state = state
            self.say(state.removeprefix("TASK_STATE_").lower().replace("_", "-"))
            if state in ENDED:
                self.took_s = time.monotonic() - self._began_s

    def take_cut(self, why: str) -> None:
        """The caller's connection was lost, or its call refused."""
        self.say(f"cut: {why}")

    async def _watch(self) -> None:
        """Wait until a server ends by itself. Raises ServerFailed then."""
        while not (ended := [server for server in self._servers if server.ended_by_itself]):  # noqa: ASYNC110  one of several
            await asyncio.sleep(LOOK_S)
        raise ServerFailed(f"the server ended by itself: {ended[0].last_words}")

    async def _kill(self) -> None:
        """Kill the server that has the task at its moment. A single one is started again."""
        if not self.plan.agent:
            while KILLED_IN not in (begun := self.steps.begun_by):  # noqa: ASYNC110  a file tells nobody
                await asyncio.sleep(0.02)
            await asyncio.sleep(self.plan.step_s / 2)
            number = next((at for at, each in enumerate(self._servers) if each.pid == begun[KILLED_IN]), 0)
        else:
            await self._first.wait()
            await asyncio.sleep(self.plan.after_s)
            number = 0
        self.killed = True
        which = f" of replica {number + 1}" if len(self._servers) > 1 else ""
        self.say(f"kill -9{which}" + ("" if self.plan.agent else f", in step {KILLED_IN} of {STEPS}"))
        await self._servers[number].kill()
        if len(self._servers) == 1:
            await asyncio.sleep(DOWN_S)
            await self._servers[number].listen(self.ports[number])
            self.say("the server runs again")
        self.back.set()
