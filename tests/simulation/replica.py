"""A replica: the real engine and courier in a process of the simulation, behind a wire on which clients call it.

Invariant: a crash takes everything in the process with it; the next process of the same place starts from the store.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.attendance import Attendance
from dragoman.bindings.http import Gone, HttpRequest, HttpResponse
from dragoman.bindings.limits import make_limits
from dragoman.bindings.routes import Route
from dragoman.bindings.workers import WorkerBinding
from dragoman.dialects.api import PushForm
from dragoman.engine.announcements import PutOff, WebhookStep
from dragoman.engine.api import Run, Runner
from dragoman.engine.engine import Engine
from dragoman.engine.policy import EngineSettings
from dragoman.engine.spending import NO_RULES, SpendingRules
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, AgentNotFound, Unavailable
from dragoman.model.ids import Clock, new_id
from dragoman.model.operations import Call, PushConfig
from dragoman.model.principal import AccessRole, Principal
from dragoman.model.task import TaskHead
from dragoman.net.egress import HttpReply
from dragoman.net.errors import Unreachable
from dragoman.net.target import Target
from dragoman.push.caller import Caller, Posters
from dragoman.push.courier import Courier, CourierSettings
from dragoman.push.outcome import Schedule
from dragoman.store.api import StoreError
from dragoman.store.outbox import Delivery, Registration
from dragoman.telemetry.job_group import JobGroup
from tests.buses import Hub, HubBus
from tests.simulation.agents import HIRED, WORKER_LEASE_S, ScriptedAgent, Witness, agents
from tests.simulation.history import Began, Complained, Delivered, Executed, Fault, History, Weather, describe
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.store import Network, Server, SimulatedStore


class SimulatedHub(Hub):
    """The bus between replicas: each message arrives in the process it is for, unless it is lost."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self.places: dict[HubBus, Place] = {}
        self._loop = loop

    def send(self, sender: HubBus, deliver: Callable[[HubBus], None]) -> None:
        """Give every other open bus the message, as fate has it."""
        for bus in self.buses:
            if bus is sender or self.down or self.places[bus].deaf_to_hints:
                continue
            for delay_s in self.fate():
                self._loop.post(self.places[bus].process, delay_s, self._arrive, bus, deliver)


HIRED_PROFILE = Profile(id=HIRED, name=HIRED, description="Done by workers", version="1", skills=())

LIMITS = make_limits(1 << 20, 64, 1000)

SETTINGS = EngineSettings(
    blocking_timeout_s=3.0,
    cancel_grace_s=4.0,
    keepalive_s=4.0,
    dedupe_s=600.0,
    retry_s=0.3,
    poll_s=0.5,
    healthy_poll_s=20.0,
    claim_s=5.0,
    suspend_after_s=0.3,
)
"""Nothing happens soon by a poll alone, nor by the time-out that hides it."""

COURIER = CourierSettings(schedule=Schedule(delays_s=(0.2,) * 60, jitter=0.1), attempt_s=1.0, claim_s=4.0, look_s=5.0)

HOST = "https://hooks.example:443"

DRAIN_S = 0.5


class Lost(Exception):
    """The connection to a replica is lost, or its answer does not come."""


class Connection:
    """A client's end of a request or a stream. The replica's words arrive in order, or not at all."""

    def __init__(self, loop: SimulatedLoop, client: Process, delay_s: Callable[[], float]) -> None:
        self.closed = False
        self.leave: Callable[[], None] | None = None
        """The replica's reaction when the client has left."""
        self._loop = loop
        self._client = client
        self._delay_s = delay_s
        self._arrives_s = 0.0
        self._items: list[Any] = []
        self._waiting: asyncio.Future[None] | None = None

    def send(self, item: object) -> None:
        """Send something to the client."""
        self._arrives_s = max(self._arrives_s, self._loop.time() + self._delay_s())
        self._loop.post(self._client, self._arrives_s - self._loop.time(), self._arrive, item)

    def _arrive(self, item: object) -> None:
        if not self.closed:
            self._items.append(item)
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(None)

    async def receive(self, timeout_s: float) -> Any:
        """The next thing that the replica says. Raises Lost."""
        if not self._items:
            self._waiting = self._loop.create_future()
            timer = self._loop.post(self._client, timeout_s, self._arrive, Lost("no answer"))
            await self._waiting
            timer.cancel()
        item = self._items.pop(0)
        if isinstance(item, Lost):
            raise item
        return item

    def close(self) -> None:
        """Leave."""
        self.closed = True
        if self.leave is not None:
            self.leave()


class Place:
    """Where replicas run, one process after the other."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        server: Server,
        hub: SimulatedHub,
        clock: Clock,
        history: History,
        seed: object,
        *,
        serves: Sequence[str],
        settings: EngineSettings,
        recovers_s: float,
        spending: SpendingRules = NO_RULES,
    ) -> None:
        """`recovers_s` is how long others need to take over what its processes leave behind."""
        self.name = name
        self._spending = spending
        self.serves = tuple(serves)
        self.deaf_to_hints = False
        """Whether nothing comes from the bus."""
        self.network = Network(f"{seed} {name}")
        self.process = Process(name)
        self.process.dead = True
        self.serving: Engine | None = None
        self.workers: WorkerBinding
        """The endpoint of workers in the present process."""
        self.deaf = 0.0
        """How likely a message between a client and this replica is lost, together with the connection."""
        self.down_s = 1.0
        """After how long a process that ended by itself is followed by the next."""
        self._loop = loop
        self._server = server
        self._hub = hub
        self._bus: HubBus | None = None
        self._clock = clock
        self._history = history
        self._settings = settings
        self._recovers_s = recovers_s
        self.alter: Callable[[SimulatedStore, HubBus], None] = lambda store, bus: None
        """Alters the store of each new process, which writes through it, and its bus. Only mutations change it."""
        self.make_agents: Callable[[Witness, Sequence[str]], Mapping[str, ScriptedAgent]] = agents
        """Makes the agents of each new process. Only mutations change it."""
        self._random = Random(f"place {seed} {name}").random
        self._starts = 0
        self._connections: dict[Connection, None] = {}
        self._stop: asyncio.Future[None] | None = None

    # -- processes -----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether there is a process, stopped or not."""
        return not self.process.dead

    def start(self) -> None:
        """Start a process."""
        self._starts += 1
        self.process = Process(f"{self.name}.{self._starts}")
        self._history.add(Fault(f"{self.process.name} starts"))
        self.disturb(float("inf"))
        self._loop.spawn(self.process, self._run())

    def disturb(self, for_s: float) -> None:
        """Note that nothing is expected of this place, nor of those who depend on it, for so long."""
        self._history.add(Weather(self.name, self._loop.time() + for_s))

    def kill(self) -> None:
        """End the process at once."""
        self._loop.kill(self.process)
        self.disturb(float("inf"))
        self.serving = None
        if self._bus in self._hub.buses:
            self._hub.buses.remove(self._bus)
        for connection in self._connections:
            connection.send(Lost("the replica is gone"))
        self._connections.clear()

    def drain(self) -> None:
        """Let the process stop by itself (SIGTERM)."""
        if self._stop is not None and not self._stop.done():
            self._loop.post(self.process, 0.0, _finish, self._stop)

    async def _run(self) -> None:
        try:
            await self._serve()
        except* StoreError as errors:
            self._history.add(Fault(f"{self.process.name} gives up: {errors.exceptions[0]}"))
        self._exit()

    def _exit(self) -> None:
        self._loop.post(self._server.process, 0.0, self._ended, self.process)

    def _ended(self, process: Process) -> None:
        """A process has ended by itself: its supervisor starts the next one."""
        if process is self.process and not process.dead:
            self.kill()
            self._loop.post(self._server.process, self.down_s, self.restart)

    def restart(self) -> None:
        """Start a process, if there is none."""
        if not self.running:
            self.start()

    async def _serve(self) -> None:
        name, loop = self.process.name, self._loop
        store = SimulatedStore(self._server, self.process, self.network, self._clock)
        await store.open(name)
        bus = self._bus = self._hub.bus()
        self._hub.places[bus] = self
        self.alter(store, bus)
        poster = Receiver(loop, self._history, self._random, self.network)
        posters = Posters(poster, poster, lambda host: True)  # type: ignore[arg-type]
        caller = Caller({"1.0": FORM}, posters, store.clock, chance=self._random)
        courier = Courier(store.outbox, caller, store.clock, settings=COURIER)
        hired = WorkerAgent(HIRED_PROFILE, queues=True, lease_s=WORKER_LEASE_S) if HIRED in self.serves else None
        runners: Mapping[str, Runner] = self.make_agents(self, self.serves)
        engine = Engine(
            store,
            runners if hired is None else {**runners, HIRED: hired},
            clock=store.clock,
            settings=self._settings,
            holder=name,
            announcer=Teller(courier.wake),
            name="simulation",
            bus=bus,
            spending=self._spending,
        )
        attendance = Attendance(store.shared)
        await bus.open()
        async with asyncio.TaskGroup() as group:
            self._stop = loop.create_future()
            if hired is not None:
                hired.leases.serve(engine.worker_tasks)
                hired.leases.presence.attend(attendance)
                self.workers = WorkerBinding(engine.operations, {HIRED: hired}, LIMITS)
            await engine.start(JobGroup(group))
            courier.start(JobGroup(group))
            renewing = group.create_task(attendance.run())
            self.serving = engine
            self.disturb(self._recovers_s if self._starts > 1 else 0.0)
            await self._stop
            self._history.add(Fault(f"{name} drains"))
            self.disturb(float("inf"))
            self.serving = None
            if hired is not None:
                hired.leases.close()
            await engine.drain(DRAIN_S)
            await courier.drain(DRAIN_S)
            renewing.cancel()
            await attendance.close()
        await bus.close()
        await store.close()
        self._history.add(Fault(f"{name} has stopped"))

    def begun(self, run: Run) -> None:
        """Note that a run of an agent begins here."""
        self._history.add(Began(run.head.id, self._loop.current.name, run.epoch))

    def executed(self, run: Run, step: str) -> None:
        """Note that a run here executes a step."""
        self._history.add(Executed(run.head.id, self._loop.current.name, step, run.epoch))

    # -- the wire ------------------------------------------------------------------------------------------------------

    def connect(self, client: Process, call: Call, *, stream: bool) -> Connection:
        """Send a call. The connection brings its answer, or the items of its stream and an _End."""
        loop = self._loop
        connection = Connection(loop, client, self._delay_s)
        if not self.running or self._random() < self.deaf:
            connection.send(Lost("the connection is refused"))
            return connection
        self._connections[connection] = None
        process = self.process

        def taken() -> None:
            if self.serving is None:
                connection.send(Lost("the connection is refused"))
                return
            serve = self._stream if stream else self._answer
            loop.create_task(serve(self.serving, call, connection))

        loop.post(process, self._delay_s(), taken)
        return connection

    def work(self, worker: Process, agent: str, action: str, body: bytes) -> Connection:
        """Send a worker's call. The connection brings the status and the body of its answer."""
        loop = self._loop
        connection = Connection(loop, worker, self._delay_s)
        if not self.running or self._random() < self.deaf:
            connection.send(Lost("the connection is refused"))
            return connection
        self._connections[connection] = None
        process = self.process

        def taken() -> None:
            if self.serving is None:
                connection.send(Lost("the connection is refused"))
                return
            loop.create_task(self._let_work(agent, action, body, connection))

        loop.post(process, self._delay_s(), taken)
        return connection

    async def _let_work(self, agent: str, action: str, body: bytes, connection: Connection) -> None:
        loop, process, workers = self._loop, self.process, self.workers
        left = loop.create_future()
        connection.leave = lambda: _ignored(loop.post(process, self._delay_s(), _finish, left))
        if connection.closed:
            _finish(left)

        async def receive() -> dict[str, Any]:
            await left
            return {"type": "http.disconnect"}

        request = HttpRequest(
            method="POST",
            path=f"/workers/{agent}/{action}",
            headers={b"content-type": b"application/json"},
            header_list=[(b"content-type", b"application/json")],
            receive=receive,
            body=body,
            route=Route("workers", {"POST": None}, mount="/workers", agent=agent, ids={"action": action}),
            principal=Principal("worker", role=AccessRole.AGENT),
        )
        try:
            answer = await workers.answer(request)
        except Gone:
            self._connections.pop(connection, None)
            return
        except A2AError as error:
            answer = workers.refuse(request, error)
        except Exception as error:  # noqa: BLE001  a fault of the binding or of what is behind it
            self._history.add(Complained(process.name, f"{action}: {error!r}"))
            answer = HttpResponse(500, [], b"")
        self._reply(connection, (answer.status, answer.body))

    def _delay_s(self) -> float:
        return 0.0005 + self._random() * 0.002

    def _reply(self, connection: Connection, item: object) -> None:
        self._connections.pop(connection, None)
        connection.send(Lost("the connection broke") if self._random() < self.deaf else item)

    def _routed(self, call: Call, error: Exception) -> Exception:
        """The error of a request for an agent that only others serve, as routes answer it."""
        elsewhere = isinstance(error, AgentNotFound) and call.agent not in self.serves
        return Unavailable("another replica serves it", 1) if elsewhere else error

    async def _answer(self, engine: Engine, call: Call, connection: Connection) -> None:
        try:
            answer: object = await engine.operations.call(call)
        except A2AError as error:
            answer = self._routed(call, error)
        except Exception as error:  # noqa: BLE001  a fault of the engine, which the client reports
            answer = error
        self._reply(connection, (answer,))

    async def _stream(self, engine: Engine, call: Call, connection: Connection) -> None:
        try:
            stream = await engine.operations.stream(call)
        except Exception as error:  # noqa: BLE001  as above
            self._reply(connection, self._routed(call, error))
            return
        process = self.process
        connection.leave = lambda: _ignored(self._loop.post(process, self._delay_s(), stream.close))
        if connection.closed:
            stream.close()
        try:
            while (items := await stream.next()) is not None:
                connection.send(tuple(items))
                if self._random() < self.deaf:
                    self._reply(connection, Lost("the stream broke"))
                    stream.close()
                    return
        except Exception as error:  # noqa: BLE001  as above
            self._reply(connection, error)
            stream.close()
            return
        self._reply(connection, None)


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _ignored(value: object) -> None:
    """Return nothing."""


# -- webhooks ----------------------------------------------------------------------------------------------------------


FORM = PushForm(
    content_type="application/json",
    encode=lambda head, told, stands: b"",
    authorization=lambda config: [],
    signature=lambda secret, signing: [],
)


class Teller:
    """Renders webhook calls: see `engine.announcements.Announcer`. The body is the place in the log, and the event."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """Takes every URL."""
        return Registration(config=config, host=HOST)

    def deliveries(
        self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[WebhookStep], put_off: PutOff
    ) -> tuple[tuple[Delivery, ...], PutOff]:
        """One call a step and configuration."""
        deliveries = tuple(
            Delivery(
                id=new_id(),
                config_id=config.id,
                seq=step.seq,
                kept=True,
                body=f"{head.id} {config.id} {step.seq} {'' if step.event is None else describe(step.event)}".encode(),
            )
            for step in steps
            for config in configs
        )
        return deliveries, put_off


class Receiver:
    """A webhook's receiver, as a courier reaches it: see `net.egress.Poster`."""

    def __init__(self, loop: SimulatedLoop, history: History, random: Callable[[], float], network: Network) -> None:
        self._loop = loop
        self._history = history
        self._random = random
        self._network = network

    async def post(self, to: Target, *, body: bytes, headers: Mapping[str, str], timeout_s: float) -> HttpReply:
        """Take a call, or lose it or its answer."""
        await asyncio.sleep(0.002 + self._random() * 0.01)
        lossy = self._network.lossy
        if self._random() < lossy * 3:
            raise Unreachable(HOST, "it was lost")
        task_id, config_id, seq, said = body.decode().split(" ", 3)
        answered = self._random() >= lossy * 3
        self._history.add(Delivered(task_id, config_id, headers["webhook-id"], int(seq), answered, said))
        await asyncio.sleep(0.002)
        if not answered:
            raise Unreachable(HOST, "its answer was lost")
        return HttpReply(status=200, headers={}, body=b"")

    async def close(self) -> None:
        """There is nothing to close."""
