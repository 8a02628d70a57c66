"""Buses in one process, for tests of several replicas: each hint has the fate that the test decides.

Invariant: everything goes through the loop, in an order that depends on nothing but the loop and the fates.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from dragoman.bus.api import PAGE_BYTES_MAX, SIGNAL_BYTES_MAX, BusFigures, HintInbox

Fate = Callable[[], Sequence[float]]
"""Decides what becomes of one message to one replica: after how many seconds each of its copies arrives.

Nothing is a loss, two numbers are a repeat, and different delays change the order.
"""


def once() -> Sequence[float]:
    """The fate of a message on a bus without faults."""
    return (0.0,)


class Hub:
    """Connects the buses of several replicas. `fate` may be replaced at any time; `down` loses everything."""

    def __init__(self, fate: Fate = once) -> None:
        self.fate = fate
        self.down = False
        self.buses: list[HubBus] = []

    def bus(self) -> "HubBus":
        """Make the bus of one more replica."""
        return HubBus(self)

    def send(self, sender: "HubBus", deliver: Callable[["HubBus"], None]) -> None:
        """Give every other open bus the message, as fate has it. `deliver` runs when it arrives."""
        for bus in self.buses:
            if bus is sender or self.down:
                continue
            for delay_s in self.fate():
                asyncio.get_running_loop().call_later(delay_s, self._arrive, bus, deliver)

    def _arrive(self, bus: "HubBus", deliver: Callable[["HubBus"], None]) -> None:
        if bus in self.buses:
            deliver(bus)


class HubBus:
    """The bus of one replica: see `dragoman.bus.api.Bus`."""

    def __init__(self, hub: Hub) -> None:
        self.followed: Counter[str] = Counter()
        self.figures = BusFigures()
        self._hub = hub
        self._replica_id = ""
        self._agents: frozenset[str] = frozenset()
        self._inbox = HintInbox()
        self._heard: dict[str, asyncio.Queue[bytes]] = {}

    async def open(self) -> None:
        """As the protocol says."""
        self._hub.buses.append(self)

    async def close(self) -> None:
        """As the protocol says. Messages under way to it are lost."""
        if self in self._hub.buses:
            self._hub.buses.remove(self)

    def listen(self, inbox: HintInbox) -> None:
        """As the protocol says."""
        self._inbox = inbox

    def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """As the protocol says."""
        self._replica_id, self._agents = replica_id, frozenset(agents)

    def publish(self, task_id: str, seq: int, page: bytes | None = None, *, to: str | None = None) -> None:
        """As the protocol says."""
        carried = page if page is not None and len(page) <= PAGE_BYTES_MAX else None

        def deliver(bus: HubBus) -> None:
            if bus.followed[task_id] or bus._replica_id == to:
                bus._receive(lambda: bus._inbox.put((task_id, seq, carried)))

        self._send(deliver)

    def wants(self, task_id: str) -> bool:
        """A page is carried for every task, whether anybody follows it or not."""
        return True

    def follow(self, task_id: str) -> None:
        """As the protocol says. It is certain in the next turn of the loop."""
        self.followed[task_id] += 1
        if self.followed[task_id] == 1 and self in self._hub.buses and not self._hub.down:
            asyncio.get_running_loop().call_soon(self._inbox.put, (task_id, None, None))

    def unfollow(self, task_id: str) -> None:
        """As the protocol says."""
        self.followed[task_id] -= 1
        if not self.followed[task_id]:
            del self.followed[task_id]

    def tell(self, replica_id: str) -> None:
        """As the protocol says."""
        self._send(lambda bus: bus._receive(bus._inbox.put_work) if bus._replica_id == replica_id else None)

    def queued(self, agent: str) -> None:
        """As the protocol says."""
        self._send(lambda bus: bus._receive(bus._inbox.put_work) if agent in bus._agents else None)

    def signal(self, name: str, payload: bytes = b"") -> None:
        """As the protocol says."""
        if len(payload) > SIGNAL_BYTES_MAX:
            raise ValueError(f"a signal has at most {SIGNAL_BYTES_MAX} bytes, not {len(payload)}")

        def deliver(bus: HubBus) -> None:
            heard = bus._heard.get(name)
            if heard is not None and not heard.full():
                bus._receive(lambda: heard.put_nowait(payload))

        self._send(deliver)

    def on_signal(self, name: str, heard: asyncio.Queue[bytes]) -> None:
        """As the protocol says."""
        self._heard[name] = heard

    @property
    def healthy(self) -> bool:
        """Whether it is open, and the hub is not down."""
        return self in self._hub.buses and not self._hub.down

    @property
    def others(self) -> int:
        """How many others are open, unless the hub is down."""
        return len(self._hub.buses) - 1 if self.healthy else 0

    def _send(self, deliver: Callable[["HubBus"], None]) -> None:
        self.figures = replace(self.figures, published=self.figures.published + 1)
        self._hub.send(self, deliver)

    def _receive(self, call: Callable[[], None]) -> None:
        self.figures = replace(self.figures, received=self.figures.received + 1)
        call()
