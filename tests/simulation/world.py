"""A simulation: replicas, a database, a bus, clients, and faults, all by one seed.

Invariant: `simulate(seed)` gives the same history every time, on every machine.
"""

import gc
import logging
import random as the_random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from dragoman.config.budgets import Budget
from dragoman.engine.recovery import CHECK_S
from dragoman.engine.spending import NO_RULES, SpendingRules
from dragoman.model import ids
from tests.simulation.agents import AGENTS, ANSWERS, HIRED, WORKER_LEASE_S
from tests.simulation.checks import check, check_end
from tests.simulation.client import Client, Clients, Crowd, Waverer
from tests.simulation.database import Database, Moment
from tests.simulation.history import Complained, Fault, History, Weather, trace
from tests.simulation.loop import SimulatedLoop
from tests.simulation.replica import SETTINGS, Place, SimulatedHub
from tests.simulation.soon import Terms, check_soon
from tests.simulation.store import Server
from tests.simulation.workers import DOWN_S, Worker

START_MS = 1_800_000_000_000

LEASE_MS = 3_000

FAULTY_S = 14.0
"""For so long faults happen."""

CALM_S = 120.0
"""For so long at most everything may take to come to its end after the last fault."""

QUIET_S = 6.0
"""After everything has come to its end, nothing happens for so long: it has stayed there."""


CALM = 0.4
"""The part of the worlds in which little goes wrong, so that it shows what does not happen soon."""

HIRES = 0.4
"""The part of the worlds in which workers do the tasks of an agent."""

ANSWER = 0.3
"""The part of the worlds in which some agents answer with a Message, if they can."""

WAVER = 0.15
"""The part of the calm worlds in which a caller soon cancels what it has begun."""

FAILOVER = 0.3
"""The part of the worlds in which a standby takes over that lacks the last commits."""

PAUSE = 0.5
"""The part of the worlds with workers in which these stand still for about as long as their leases last."""

SWEEP = 0.1
"""The part of the worlds in which tasks are deleted soon after their end."""

BUDGET = 0.4
"""The part of the worlds whose tasks fall under a budget, which nothing exceeds."""

PER_AGENT = Budget(id="all", unit="tasks", limit=1 << 40, per="agent", period="forever")

CROWD = 0.3
"""The part of the worlds with workers in which they are given more at once than they can do."""

GOOD, SLOW, BAD = (0.0, 0.0, 0.003), (0.0, 0.2, 0.8), (0.5, 0.2, 0.3)
"""How likely a hint is lost, how likely it comes twice, and how long it takes at most."""


class Outcome(Struct):
    """The result of a simulation: `wrong` says what is wrong with it, and is empty if nothing is."""

    seed: int
    wrong: list[str]
    history: History
    steps: int

    def report(self) -> str:
        """The faults, how to see them again, and the history."""
        wrong = "\n".join(self.wrong)
        return f"seed {self.seed}:\n{wrong}\n\n{trace(self.history)}\n\nseed {self.seed}:\n{wrong}"


class Clock:
    """The time of the database, as replicas know it."""

    def __init__(self, loop: SimulatedLoop, ahead_ms: int = 0) -> None:
        self._loop = loop
        self._start_ms = START_MS + ahead_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._start_ms + int(self._loop.time() * 1000)


class World:
    """Everything there is, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"world {seed}")
        self.loop = SimulatedLoop(seed)
        self.history = History()
        self.history.now_s = self.loop.time
        lag = self.random.choice((0.0, 0.002, 0.05))
        chance = Random(f"lag {seed}").random
        self.database = Database(
            self.loop.time,
            Clock(self.loop).now_ms,
            lag_s=(lambda: chance() * lag) if lag else (lambda: 0.0),
            lease_ms=LEASE_MS,
            witness=self.history,
        )
        self.server = Server(self.loop, self.database)
        self.hub = SimulatedHub(self.loop)
        self.hub.fate = self._fate
        self._hint = Random(f"hints {seed}").random
        self.calm = self.random.random() < CALM
        self._hints = self.random.choice((GOOD, SLOW) if self.calm else (GOOD, SLOW, BAD))
        settings = replace(SETTINGS, suspend_max_s=self.random.choice((0.2, 1.0, 3600.0)))
        self.hires = self.random.random() < HIRES
        self.answers = self.random.random() < ANSWER
        self.crowd = Random(f"crowd {seed}")
        self.failover = Random(f"failover {seed}")
        self.waver = Random(f"waver {seed}")
        self.pause = Random(f"pause {seed}")
        self.limits = not self.answers and Random(f"budget {seed}").random() < BUDGET
        serves = self._share_agents(self.random.choice((2, 3, 3)))
        self.terms = Terms(
            claim_s=settings.claim_s,
            poll_s=settings.healthy_poll_s,
            lease_s=LEASE_MS / 1000,
            suspend_max_s=settings.suspend_max_s,
            cancel_grace_s=settings.cancel_grace_s,
            serves=serves,
        )
        self.places = [
            Place(
                name,
                self.loop,
                self.server,
                self.hub,
                Clock(self.loop, self.random.randrange(-20, 20)),
                self.history,
                seed,
                serves=agents,
                settings=settings,
                recovers_s=self.terms.recovers_s,
                spending=SpendingRules(budgets=(PER_AGENT,)) if self.limits else NO_RULES,
            )
            for name, agents in serves.items()
        ]
        self.workers = [
            Worker(
                f"w{number}",
                self.loop,
                self.places,
                self.history,
                Random(f"worker {seed} {number}"),
                tasks=self.random.choice((1, 1, 3)),
            )
            for number in range(1, self.random.choice((1, 2, 3)) + 1 if self.hires else 1)
        ]
        self.clients = Clients(self.loop, self.places, self.history, seed, self.database)
        self._patched: list[tuple[type, str, object]] = []

    def patch(self, owner: type, name: str, value: object) -> None:
        """Replace an attribute of a class until the end of the simulation. Only mutations do."""
        self._patched.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Undo every `patch`."""
        for owner, name, value in reversed(self._patched):
            setattr(owner, name, value)

    def _share_agents(self, count: int) -> Mapping[str, tuple[str, ...]]:
        """The agents of each replica: in half of the worlds the same, in the others each has some of them."""
        names = [f"r{number}" for number in range(1, count + 1)]
        agents = tuple(
            agent for agent in AGENTS if (agent != HIRED or self.hires) and (agent not in ANSWERS or self.answers)
        )
        if self.random.random() < 0.5:
            return dict.fromkeys(names, agents)
        shares = {name: {agent for agent in agents if self.random.random() < 0.6} for name in names}
        for agent in agents:
            shares[self.random.choice(names)].add(agent)
        return {name: tuple(agent for agent in agents if agent in share) for name, share in shares.items()}

    def run(self) -> None:
        """Let it all happen."""
        for place in self.places:
            place.network.latency_s = 0.001
            place.start()
        for worker in self.workers:
            self._at(0.1, worker.start)
        for number in range(self.random.choice((1, 2, 3))):
            Client(f"c{number + 1}", self.clients, self.random.randrange(1, 4))
        if self.hires and self.crowd.random() < CROWD:
            slots = sum(worker.tasks for worker in self.workers)
            Crowd("crowd", self.clients, slots + self.crowd.randrange(2, 7))
        if self.calm and self.waver.random() < WAVER:
            Waverer("waverer", self.clients, 2)
        self._plan_faults()
        if self.workers and self.pause.random() < PAUSE:
            for worker in self.workers:
                self._at(1.0 + self.pause.random() * 5, self._pause, worker)
        if self.failover.random() < FAILOVER:
            self._at(1.0 + self.failover.random() * 8, self._fall_behind)
        elif self.failover.random() < SWEEP:
            ages = self.failover.choice(((2_500, -1), (5_000, 2_500)))
            self._sweep(*ages)
        self.loop.run(FAULTY_S)
        self._heal()
        finished = self.loop.run(FAULTY_S + CALM_S, done=lambda: not self.clients.unfinished)
        if finished:
            quiet_s = self.loop.time() + QUIET_S
            self.loop.run(quiet_s if self.calm else max(quiet_s, FAULTY_S + CHECK_S + QUIET_S))
            if self.database.held:  # by a sleep, or by work of which no client has heard
                self.loop.run(FAULTY_S + CALM_S, done=lambda: not self.database.held)

    def _fate(self) -> Sequence[float]:
        """The fate of a hint: it is lost, comes twice, late, and so in another order."""
        lost, doubled, delay_s = self._hints
        chance = self._hint()
        if chance < lost:
            return ()
        delays = (self._hint() * delay_s,)
        return delays if chance < 1 - doubled else (*delays, self._hint() * delay_s)

    # -- faults --------------------------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        """Decide what goes wrong and when. Most seeds have a few kinds of faults only."""
        random, places = self.random, self.places
        for worker in self.workers:
            for _ in range(random.choice((0, 0, 1, 2))):
                leave = random.choice((worker.kill, worker.stop))
                self._at(random.random() * FAULTY_S, self._end_worker, worker, leave)
        if self.calm:
            if random.random() < 0.5:
                kind = random.choice((self._kill, self._drain, self._deafen))
                self._at(random.random() * FAULTY_S, kind, random.choice(places))
            return
        if self._hints is BAD:
            self._disturb("hints")
        kinds: list[Callable[[Place], None]] = [
            self._kill,
            self._stop,
            self._drain,
            self._cut,
            self._deafen,
            self._outage,
            self._lose_bus,
        ]
        chosen = [kind for kind in kinds if random.random() < 0.4]
        for place in places:
            if random.random() < 0.5:
                place.network.slow = random.choice((0.02, 0.2))
                place.network.slow_s = random.choice((0.1, 1.5))
            if random.random() < 0.5:
                place.network.lossy = random.choice((0.01, 0.06))
            if random.random() < 0.5:
                place.deaf = random.choice((0.01, 0.1))
            if place.network.slow or place.network.lossy or place.deaf:
                self._disturb(f"network of {place.name}")
        if chosen:
            for _ in range(random.randrange(1, 8)):
                self._at(random.random() * FAULTY_S, random.choice(chosen), random.choice(places))

    def _at(self, delay_s: float, act: Callable[..., None], *args: object) -> None:
        self.loop.post(self.server.process, delay_s, act, *args)

    def _note(self, text: str) -> None:
        self.history.add(Fault(text))

    def _disturb(self, cause: str) -> None:
        """Note that a disturbance begins."""
        self.history.add(Weather(cause, float("inf")))

    def _calm_down(self, cause: str) -> None:
        """Note that a disturbance is over. What it has harmed recovers from now on."""
        self.history.add(Weather(cause, self.loop.time() + self.terms.recovers_s))

    def _end_worker(self, worker: Worker, leave: Callable[[], None]) -> None:
        leave()
        self._at(2 * DOWN_S, self._start_worker, worker)

    def _start_worker(self, worker: Worker) -> None:
        if worker.process.dead:
            worker.start()
        else:
            self._at(DOWN_S, self._start_worker, worker)

    def _pause(self, worker: Worker) -> None:
        """Let a worker stand still as soon as it works, for about as long as its last heartbeat lets its lease run."""
        process = worker.pause()
        if process is not None:
            self._at(WORKER_LEASE_S * (1.0 + self.pause.random() * 0.7), worker.go_on, process)
        if self.loop.time() < FAULTY_S:
            self._at(0.1 + self.pause.random() * (0.2 if process is None else 8), self._pause, worker)

    def _kill(self, place: Place) -> None:
        if place.running:
            self._note(f"{place.process.name} is killed")
            place.kill()
            self._at(self.random.choice((0.1, 1.0, 5.0)), place.restart)

    def _stop(self, place: Place) -> None:
        if place.running and not place.process.stopped:
            self._note(f"{place.process.name} is stopped")
            self._disturb(place.name)
            self.loop.stop_process(place.process)
            self._at(self.random.choice((0.3, 2.0, 5.0, 7.0)), self._wake, place)

    def _wake(self, place: Place) -> None:
        if place.process.stopped:
            self._note(f"{place.process.name} goes on")
            self._calm_down(place.name)
            self.loop.go_on(place.process)

    def _drain(self, place: Place) -> None:
        if place.running:
            self._note(f"{place.process.name} is told to stop")
            place.drain()

    def _cut(self, place: Place) -> None:
        self._note(f"{place.name} is cut off from the database")
        self._disturb(f"{place.name}")
        place.network.cut = True
        self._at(self.random.choice((0.2, 2.0, 5.0)), self._join, place)

    def _join(self, place: Place) -> None:
        if place.network.cut:
            self._note(f"{place.name} reaches the database again")
            self._calm_down(place.name)
            place.network.cut = False

    def _deafen(self, place: Place) -> None:
        self._note(f"{place.name} hears nothing from the bus")
        self._disturb(f"bus of {place.name}")
        place.deaf_to_hints = True
        self._at(self.random.choice((0.5, 5.0, 12.0)), self._hear, place)

    def _hear(self, place: Place) -> None:
        self._calm_down(f"bus of {place.name}")
        place.deaf_to_hints = False

    def _lose_bus(self, place: Place) -> None:
        self._note("the bus is down")
        self._disturb("bus")
        self.hub.down = True
        self._at(self.random.choice((0.5, 5.0)), self._restore_bus)

    def _restore_bus(self) -> None:
        self._calm_down("bus")
        self.hub.down = False

    def _outage(self, place: Place) -> None:
        self._note("the database is down")
        self._disturb("database")
        self.server.down = True
        self._at(self.random.choice((0.2, 2.0, 5.0)), self._restore)

    def _restore(self) -> None:
        if self.server.down:
            self._note("the database is up again")
            self._calm_down("database")
            self.server.down = False

    def _sweep(self, task_age_ms: int, log_age_ms: int) -> None:
        """Delete what ended some time ago, again and again. Whoever hears of an end soon can still read it."""
        if not self.server.down:
            self.database.sweep(self.database.now_ms(), task_age_ms, log_age_ms, -1)
        self._at(0.4, self._sweep, task_age_ms, log_age_ms)

    def _fall_behind(self) -> None:
        """From now on the standby receives nothing, and a moment later it takes over."""
        self._at(self.failover.choice((0.02, 0.2, 0.6)), self._lose_primary, self.database.moment())

    def _lose_primary(self, moment: Moment) -> None:
        self._note("the primary is down")
        self._disturb("failover")
        self.server.down = True
        self._at(self.failover.choice((0.1, 0.5)), self._take_over, moment)

    def _take_over(self, moment: Moment) -> None:
        self.history.add(Weather("failover", self.loop.time()))  # what it has harmed has its own rules
        self.server.down = False
        self.clients.rewound(self.database.rows.keys() - moment.rows.keys())
        self.server.take_over(moment)

    def _heal(self) -> None:
        """All faults cease."""
        self._note("all faults cease")
        self.server.down = self.hub.down = False
        if self._hints is BAD:
            self._hints = GOOD
        if not self.calm:
            for cause in ("database", "bus", "hints"):
                self._calm_down(cause)
        for place in self.places:
            if not self.calm:
                for cause in (f"bus of {place.name}", f"network of {place.name}"):
                    self._calm_down(cause)
            place.deaf_to_hints = False
            network = place.network
            network.cut, network.slow, network.lossy, place.deaf = False, 0.0, 0.0, 0.0
            if place.process.stopped:
                self.loop.go_on(place.process)
            if place.running and not self.calm:
                self._calm_down(place.name)
            place.restart()


def simulate(seed: int, change: Callable[[World], None] | None = None) -> Outcome:
    """Run a simulation and check it. `change` is for mutations: it gets the world before anything happens."""
    with _determined(seed):
        world = World(seed)
        try:
            if change is not None:
                change(world)
            with _listening(world):
                world.run()
        finally:
            world.restore()
        for error in world.loop.faults:
            world.history.add(Complained("loop", repr(error)))
        wrong = check(world.history)
        if world.clients.unfinished:
            wrong.append(f"these are stuck: {world.clients.unfinished}")
        wrong += check_end(world.database, world.history)
        wrong += check_soon(world.history, world.terms)
        with _listening(world):  # what is cut off here may complain, and nobody looks
            world.loop.close()
    return Outcome(seed, wrong, world.history, world.loop.steps)


@contextmanager
def _determined(seed: int) -> Iterator[None]:
    """Ids and chances come from the seed, and garbage is not collected meanwhile, which could happen at any time."""
    numbers, ours = Random(f"ids {seed}"), ids.uuid7
    count = 0

    def uuid7() -> str:
        nonlocal count
        count += 1
        return f"{count:08x}-0000-7000-8000-{numbers.getrandbits(48):012x}"

    the_random.seed(seed)
    collecting = gc.isenabled()
    gc.disable()
    ids.uuid7 = uuid7  # type: ignore[assignment]
    try:
        yield
    finally:
        ids.uuid7 = ours
        if collecting:
            gc.enable()


class _Listener(logging.Handler):
    """Puts logged errors into the history, but for those that a scenario has to cause."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and type(error).__name__ == "Broken":
            return
        if self._world.clients.rewinds and ("has lost committed events" in record.msg or "CallRefused" in repr(error)):
            return  # a worker goes on that has had an answer which is lost
        text = record.getMessage() + (f": {error!r}" if error is not None else "")
        self._world.history.add(Complained(self._world.loop.current.name, text))


@contextmanager
def _listening(world: World) -> Iterator[None]:
    """Hear of errors that the code under test logs, and keep everything else out of the logs."""
    listener, ours = _Listener(world), logging.getLogger("dragoman")
    level, handlers, propagate = ours.level, ours.handlers, ours.propagate
    ours.handlers, ours.propagate = [listener], False
    ours.setLevel(logging.ERROR)
    try:
        yield
    finally:
        ours.handlers, ours.propagate = handlers, propagate
        ours.setLevel(level)
