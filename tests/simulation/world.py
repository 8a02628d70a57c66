"""A simulation: replicas, a database, a bus, clients, and faults, all by one seed.

Invariant: `simulate(seed)` gives the same history every time, on every machine.
"""

import gc
import logging
import random as the_random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from msgspec import Struct

from dragoman.model import ids
from tests.simulation.checks import check, check_end
from tests.simulation.client import Client, Clients
from tests.simulation.database import Database
from tests.simulation.history import Complained, Fault, History, trace
from tests.simulation.loop import SimulatedLoop
from tests.simulation.replica import Place, SimulatedHub
from tests.simulation.store import Server

START_MS = 1_800_000_000_000

LEASE_MS = 3_000

FAULTY_S = 14.0
"""For so long faults happen."""

CALM_S = 120.0
"""For so long at most everything may take to come to its end after the last fault."""

QUIET_S = 6.0
"""After everything has come to its end, nothing happens for so long: it has stayed there."""


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
        self._hints = self.random.choice((GOOD, SLOW, BAD))
        self.places = [
            Place(
                f"r{number}",
                self.loop,
                self.server,
                self.hub,
                Clock(self.loop, self.random.randrange(-20, 20)),
                self.history,
                seed,
            )
            for number in range(1, self.random.choice((2, 3, 3)) + 1)
        ]
        self.clients = Clients(self.loop, self.places, self.history, seed)

    def run(self) -> None:
        """Let it all happen."""
        for place in self.places:
            place.network.latency_s = 0.001
            place.start()
        for number in range(self.random.choice((1, 2, 3))):
            Client(f"c{number + 1}", self.clients, self.random.randrange(1, 4))
        self._plan_faults()
        self.loop.run(FAULTY_S)
        self._heal()
        finished = self.loop.run(FAULTY_S + CALM_S, done=lambda: not self.clients.unfinished)
        if finished:
            until_s = self.loop.time() + QUIET_S
            self.loop.run(until_s)

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
        if chosen:
            for _ in range(random.randrange(1, 8)):
                self._at(random.random() * FAULTY_S, random.choice(chosen), random.choice(places))

    def _at(self, delay_s: float, act: Callable[..., None], *args: object) -> None:
        self.loop.post(self.server.process, delay_s, act, *args)

    def _note(self, text: str) -> None:
        self.history.add(Fault(text))

    def _kill(self, place: Place) -> None:
        if place.running:
            self._note(f"{place.process.name} is killed")
            place.kill()
            self._at(self.random.choice((0.1, 1.0, 5.0)), place.restart)

    def _stop(self, place: Place) -> None:
        if place.running and not place.process.stopped:
            self._note(f"{place.process.name} is stopped")
            self.loop.stop_process(place.process)
            self._at(self.random.choice((0.3, 2.0, 4.0, 7.0)), self._wake, place)

    def _wake(self, place: Place) -> None:
        if place.process.stopped:
            self._note(f"{place.process.name} goes on")
            self.loop.go_on(place.process)

    def _drain(self, place: Place) -> None:
        if place.running:
            self._note(f"{place.process.name} is told to stop")
            place.drain()

    def _cut(self, place: Place) -> None:
        self._note(f"{place.name} is cut off from the database")
        place.network.cut = True
        self._at(self.random.choice((0.2, 2.0, 5.0)), self._join, place)

    def _join(self, place: Place) -> None:
        if place.network.cut:
            self._note(f"{place.name} reaches the database again")
            place.network.cut = False

    def _deafen(self, place: Place) -> None:
        self._note(f"{place.name} hears nothing from the bus")
        place.deaf_to_hints = True
        self._at(self.random.choice((0.5, 5.0)), self._hear, place)

    def _hear(self, place: Place) -> None:
        place.deaf_to_hints = False

    def _lose_bus(self, place: Place) -> None:
        self._note("the bus is down")
        self.hub.down = True
        self._at(self.random.choice((0.5, 5.0)), self._restore_bus)

    def _restore_bus(self) -> None:
        self.hub.down = False

    def _outage(self, place: Place) -> None:
        self._note("the database is down")
        self.server.down = True
        self._at(self.random.choice((0.2, 2.0, 5.0)), self._restore)

    def _restore(self) -> None:
        if self.server.down:
            self._note("the database is up again")
            self.server.down = False

    def _heal(self) -> None:
        """All faults cease."""
        self._note("all faults cease")
        self.server.down = self.hub.down = False
        self._hints = GOOD
        for place in self.places:
            place.deaf_to_hints = False
            network = place.network
            network.cut, network.slow, network.lossy, place.deaf = False, 0.0, 0.0, 0.0
            if place.process.stopped:
                self.loop.go_on(place.process)
            place.restart()


def simulate(seed: int, change: Callable[[World], None] | None = None) -> Outcome:
    """Run a simulation and check it. `change` is for mutations: it gets the world before anything happens."""
    with _determined(seed):
        world = World(seed)
        if change is not None:
            change(world)
        with _listening(world):
            world.run()
        for error in world.loop.faults:
            world.history.add(Complained("loop", repr(error)))
        wrong = check(world.history)
        if world.clients.unfinished:
            wrong.append(f"these are stuck: {world.clients.unfinished}")
        wrong += check_end(world.database, world.history)
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
    """Puts logged errors into the history, but for those of agents that fail as their script says."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and type(error).__name__ == "Broken":
            return
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
