"""ClusterBus: the bus of a replica over any carrier.

    DOWN ── connected ──► UNHEARD ── an echo comes back ──► HEALTHY      `_connection`; `_echoed_s`
      ▲                    ▲   │                             │   │
      │                    └───┼── none for `HEALTHY_S` ─────┘   │
      └─ back-off: connect ◄───┴── lost, or none for `SILENT_S` ─┘

    Beside it: ALONE, while no other replica was heard for `ALONE_S`: only echoes are sent      `_others_s`

The tasks that others follow are not covered (`interest`), nor how a carrier connects (`nats`, `postgres`).

Invariant: nothing waits for the carrier. A message that cannot be sent now is dropped, and every new connection begins
with the news that hints were lost. The bus is healthy only while this replica hears itself.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from hashlib import blake2b
from typing import assert_never

from dragoman.bus.api import PAGE_BYTES_MAX, SIGNAL_BYTES_MAX, BusFigures, HintInbox
from dragoman.bus.carrier import BusConnection, Carrier, CarrierDown
from dragoman.bus.envelope import Envelope, MessageKind, Seal
from dragoman.bus.interest import Interest, slot_of, spell_all, spell_some
from dragoman.model.ids import new_id

log = logging.getLogger("dragoman.bus")

CONNECT_S = 3.0
"""How long it may take to connect, and how long `open` waits for the first connection."""

BACK_OFF_S = 0.1
BACK_OFF_MAX_S = 5.0
"""The shortest and the longest pause before another attempt to connect. Each failure doubles the pause."""

ECHO_S = 1.0
"""The time between two messages of a replica to itself. The others hear them, too, and know that it is there."""

HERE = "e2"
"""The last word of the subject of these. A release whose hints another one does not hear has another word: then neither
hears that the other is there, and both ask the store every second, as for every replica that is not heard."""

UNASKED = 0
"""The number of a message that only says what a replica has begun to follow: its return is not waited for."""

HEALTHY_S = 3.0
"""How long a bus counts as healthy after the last of these has come back: one may be late, or two be lost."""

SILENT_S = 10.0
"""A connection through which none has come back for this long is given up."""

ALONE_S = 10.0
"""A replica that has heard no other for this long publishes nothing. A new replica is heard before it reads the tasks
that it follows."""

LINGER_S = 10.0
"""How long a replica still receives the hints of a slot after its last follower has left. Others tend to come."""

HINTS = (MessageKind.MOVED, MessageKind.FOLLOWED_MOVED)

GATHER_S = 0.01
"""The shortest time between two words of what a replica has begun to follow."""

ECHO_BYTES = 128
"""The most bytes of an echo beside what it says: sender, number, seal and the marks between them."""

WAITING_MAX = 10_000
"""How many messages wait to be sent at most, about a second of a busy server. More are dropped."""

CLOSE_S = 1.0
"""How long the last messages, and the end of a connection, may take."""


class ClusterBus:
    """See `dragoman.bus.api.Bus`. The replicas of one store have the same `secret`."""

    def __init__(self, carrier: Carrier, secret: bytes) -> None:
        self._carrier = carrier
        self._seal = Seal(secret)
        self._prefix = f"dragoman.{self._seal.cluster}"
        self._me = new_id()
        self._echo = f"{self._prefix}.{HERE}"
        self._for_all = f"{self._prefix}.t"
        """The subject of hints for everybody. Once the others have said what they follow, each has its own."""
        self._interest = Interest()
        self._inbox = HintInbox()
        self._heard: dict[str, asyncio.Queue[bytes]] = {}
        self._standing: set[str] = set()
        """The subjects of this replica and its agents."""
        self._followed: Counter[str] = Counter()
        self._tasks: dict[int, set[str]] = {}
        """The followed tasks by their slot."""
        self._slots: dict[int, float | None] = {}
        """The slots that the others were told of, and the loop time since when nobody needs them, if so."""
        self._fresh: set[int] = set()
        """The slots that the others have to be told of."""
        self._active: set[str] = set()
        """The subjects that are received for certain."""
        self._changed = asyncio.Event()
        self._waiting: list[tuple[str, bytes]] = []
        self._sendable, self._sent = asyncio.Event(), asyncio.Event()
        self._connection: BusConnection | None = None
        self._tried = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._echoes = 0
        self._echo_sent_s = 0.0
        self._echoed_s: float | None = None
        """When the last echo came back through the present connection, a loop time."""
        self._seen: dict[str, float] = {}
        """When each other replica was last heard, a loop time."""
        self._others_s = 0.0
        """Until when others are taken to be there, a loop time."""
        self._down_s: float | None = None
        """Since when the bus is known to be down, a loop time."""
        self._published = self._received = self._refused = self._dropped = 0
        self._lag_s: float | None = None

    # -- the protocol --------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """As the protocol says. Waits for the first connection, or for its failure, for `CONNECT_S` at most."""
        self._running = asyncio.get_running_loop().create_task(self._run(), name="bus")
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                await self._tried.wait()

    async def close(self) -> None:
        """As the protocol says."""
        if self._running is None:
            return
        if self._connection is not None and self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._sent.wait()
        self._running.cancel()
        await asyncio.wait([self._running])
        self._running = None

    def listen(self, inbox: HintInbox) -> None:
        """As the protocol says."""
        self._inbox = inbox

    def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """As the protocol says."""
        self._standing = {self._of_replica(replica_id), *map(self._of_agent, agents)}
        self._changed.set()

    def publish(self, task_id: str, seq: int, page: bytes | None = None, *, to: str | None = None) -> None:
        """As the protocol says."""
        if page is not None and len(page) > PAGE_BYTES_MAX:
            page = None
        slot = slot_of(task_id)
        followers = self._followers(slot)
        if followers is not None:
            self._interest.keep(slot, task_id, seq)
        subjects = (self._for_all,) if followers is None else tuple(map(self._of_follower, followers))
        if subjects:
            self._send(subjects, Envelope(self._me, MessageKind.FOLLOWED_MOVED, task_id, seq, page))
        if to is not None:
            self._send((self._of_replica(to),), Envelope(self._me, MessageKind.MOVED, task_id, seq, page))

    def wants(self, task_id: str) -> bool:
        """As the protocol says."""
        return self._connection is not None and self._followers(slot_of(task_id)) != ()

    def follow(self, task_id: str) -> None:
        """As the protocol says."""
        self._followed[task_id] += 1
        if self._followed[task_id] > 1:
            return
        slot = slot_of(task_id)
        self._tasks.setdefault(slot, set()).add(task_id)
        if slot not in self._slots:
            self._fresh.add(slot)
            self._changed.set()

    def unfollow(self, task_id: str) -> None:
        """As the protocol says."""
        self._followed[task_id] -= 1
        if self._followed[task_id]:
            return
        del self._followed[task_id]
        slot = slot_of(task_id)
        tasks = self._tasks[slot]
        tasks.discard(task_id)
        if not tasks:
            del self._tasks[slot]

    def tell(self, replica_id: str) -> None:
        """As the protocol says."""
        self._send((self._of_replica(replica_id),), Envelope(self._me, MessageKind.WORK))

    def queued(self, agent: str) -> None:
        """As the protocol says."""
        self._send((self._of_agent(agent),), Envelope(self._me, MessageKind.WORK))

    def signal(self, name: str, payload: bytes = b"") -> None:
        """As the protocol says."""
        if len(payload) > SIGNAL_BYTES_MAX:
            raise ValueError(f"a signal has at most {SIGNAL_BYTES_MAX} bytes, not {len(payload)}")
        self._send((self._of_signal(name),), Envelope(self._me, MessageKind.SIGNAL, name, 0, payload))

    def on_signal(self, name: str, heard: asyncio.Queue[bytes]) -> None:
        """As the protocol says."""
        self._heard[name] = heard

    @property
    def healthy(self) -> bool:
        """As the protocol says."""
        return self._echoed_s is not None and asyncio.get_running_loop().time() - self._echoed_s <= HEALTHY_S

    @property
    def others(self) -> int:
        """As the protocol says."""
        now_s = asyncio.get_running_loop().time()
        self._seen = {other: seen_s for other, seen_s in self._seen.items() if now_s - seen_s <= HEALTHY_S}
        return len(self._seen)

    @property
    def figures(self) -> BusFigures:
        """As the protocol says."""
        return BusFigures(self._published, self._received, self._refused, self._dropped, self._lag_s)

    # -- subjects ------------------------------------------------------------------------------------------------------

    def _of_follower(self, sender: str) -> str:
        return f"{self._prefix}.f.{_digest(sender)}"

    def _of_replica(self, replica_id: str) -> str:
        return f"{self._prefix}.r.{_digest(replica_id)}"

    def _of_agent(self, agent: str) -> str:
        return f"{self._prefix}.q.{_digest(agent)}"

    def _of_signal(self, name: str) -> str:
        return f"{self._prefix}.s.{_digest(name)}"

    # -- sending -------------------------------------------------------------------------------------------------------

    def _followers(self, slot: int) -> tuple[str, ...] | None:
        """Those who may follow a task of a slot. None: anybody may. A replica that does not hear itself cannot know."""
        return self._interest.followers(slot) if self.healthy else None

    def _say_here(self) -> None:
        """Tell everybody that this replica is there, and what it follows, unless that is too long for the carrier."""
        said: bytes | None = spell_all(self._slots)
        if said is not None and len(said) + ECHO_BYTES > self._carrier.bytes_max:
            said = None
        self._send((self._echo,), Envelope(self._me, MessageKind.ECHO, number=self._echoes, payload=said))

    def _say_more(self, slots: Collection[int]) -> None:
        """Tell everybody what this replica has begun to follow."""
        most = (self._carrier.bytes_max - ECHO_BYTES) // 2
        if len(slots) <= most:
            self._send((self._echo,), Envelope(self._me, MessageKind.ECHO, number=UNASKED, payload=spell_some(slots)))
        else:
            self._say_here()

    def _send(self, subjects: Iterable[str], envelope: Envelope) -> None:
        if self._connection is None:
            return  # a new connection begins with the news that hints were lost
        if envelope.kind is not MessageKind.ECHO and asyncio.get_running_loop().time() > self._others_s:
            return
        sealed = self._seal.seal(envelope)
        if len(sealed) > self._carrier.bytes_max and envelope.kind in HINTS:
            sealed = self._seal.seal(Envelope(self._me, envelope.kind, envelope.name, envelope.number))
        for subject in subjects:
            if len(self._waiting) >= WAITING_MAX or len(sealed) > self._carrier.bytes_max:
                self._dropped += 1
                continue
            self._published += 1
            self._waiting.append((subject, sealed))
        self._sendable.set()
        self._sent.clear()

    async def _send_waiting(self, connection: BusConnection) -> None:
        while True:
            await self._sendable.wait()
            if self._carrier.gather_s:
                await asyncio.sleep(self._carrier.gather_s)
            self._sendable.clear()
            batch, self._waiting = self._waiting, []
            try:
                await connection.send(batch)
            except CarrierDown:
                self._dropped += len(batch)
                raise
            if not self._waiting:
                self._sent.set()

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _arrived(self, sealed: bytes) -> None:
        envelope = self._seal.open(sealed)
        if envelope is None:
            self._refused += 1
            return
        if envelope.sender == self._me:
            if envelope.kind is MessageKind.ECHO and envelope.number == self._echoes:
                self._note_echo()
            return
        self._received += 1
        try:
            self._deliver(envelope)
        except Exception:  # one message must not end the connection; a poll finds what it would have told
            log.exception("bus %s: a message cannot be handled", self._carrier.name)

    def _deliver(self, envelope: Envelope) -> None:
        match envelope.kind:
            case MessageKind.MOVED:
                self._inbox.put((envelope.name, envelope.number, envelope.payload))
            case MessageKind.FOLLOWED_MOVED:
                if envelope.name in self._followed:
                    self._inbox.put((envelope.name, envelope.number, envelope.payload))
            case MessageKind.WORK:
                self._inbox.put_work()
            case MessageKind.SIGNAL:
                heard = self._heard.get(envelope.name)
                if heard is not None and not heard.full():
                    heard.put_nowait(envelope.payload or b"")
            case MessageKind.ECHO:
                now_s = asyncio.get_running_loop().time()
                self._seen[envelope.sender] = now_s
                self._others_s = now_s + ALONE_S
                if envelope.number == UNASKED:
                    kept = self._interest.hear_more(envelope.sender, envelope.payload or b"", now_s)
                else:
                    kept = self._interest.hear(envelope.sender, envelope.payload, now_s)
                for task_id, seq in kept:
                    hint = Envelope(self._me, MessageKind.FOLLOWED_MOVED, task_id, seq)
                    self._send((self._of_follower(envelope.sender),), hint)
            case _:
                assert_never(envelope.kind)

    def _note_drop(self) -> None:
        self._dropped += 1

    def _note_echo(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._lag_s = round(now_s - self._echo_sent_s, 6)  # the clock of the loop has no more places
        if self._echoed_s is None:
            if self._down_s is not None:
                log.warning("bus %s works again, after %.0f s", self._carrier.name, now_s - self._down_s)
            else:
                log.info("bus %s works", self._carrier.name)
            self._down_s = None
            self._look_at(self._followed)
        self._echoed_s = now_s

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = BACK_OFF_S
        while True:
            try:
                await self._connect_and_use()
            except CarrierDown as down:
                self._note_down(str(down))
            except Exception as error:  # a bus that ends would end the server; the next connection may work
                log.exception("bus %s: an error of this program", self._carrier.name)
                self._note_down(str(error))
            if self._echoed_s is not None:
                pause_s = BACK_OFF_S
            self._echoed_s = None
            self._tried.set()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, BACK_OFF_MAX_S)

    def _note_down(self, why: str) -> None:
        """Say it once, until the bus has worked again."""
        if self._down_s is None:
            self._down_s = asyncio.get_running_loop().time()
            log.warning(
                "bus %s is down, so this replica asks the store every second. Check that it runs, and that the "
                "setting `bus` names it: %s",
                self._carrier.name,
                why,
            )

    async def _connect_and_use(self) -> None:
        """Raises CarrierDown when there is no connection any more."""
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await self._carrier.connect(self._arrived, self._note_drop)
        except TimeoutError as error:
            raise CarrierDown(f"no connection within {CONNECT_S:g} s") from error
        self._connection = connection
        now_s = asyncio.get_running_loop().time()
        self._others_s = now_s + ALONE_S
        self._interest.forget_all(now_s)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_waiting(connection))
                group.create_task(self._keep_subscribed(connection))
                why = await connection.lost
                raise CarrierDown(why)
        except* CarrierDown as downs:
            raise CarrierDown(str(downs.exceptions[0])) from None
        finally:
            self._connection = None
            self._active.clear()
            self._slots.clear()
            self._fresh = set(self._tasks)
            self._waiting.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await connection.close()

    async def _keep_subscribed(self, connection: BusConnection) -> None:
        """Receive what is needed and send echoes, as long as they come back. Raises CarrierDown."""
        loop = asyncio.get_running_loop()
        connected_s = loop.time()
        echo_s = connected_s
        while True:
            self._changed.clear()
            await self._subscribe(connection)
            more = self._note_slots()
            now_s = loop.time()
            if now_s - (self._echoed_s or connected_s) > SILENT_S:
                raise CarrierDown(f"nothing comes back through it: {self._carrier.advice}")
            if now_s >= echo_s:
                echo_s = now_s + ECHO_S
                self._echoes += 1
                self._echo_sent_s = now_s
                self._interest.age(now_s)
                self._drop_slots(now_s)
                self._say_here()
                self._tried.set()
            elif more:
                self._say_more(more)
                await asyncio.sleep(GATHER_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(echo_s - now_s):
                    await self._changed.wait()

    def _look_at(self, task_ids: Iterable[str]) -> None:
        """Hints about these tasks may have been lost until now."""
        for task_id in tuple(task_ids):
            self._inbox.put((task_id, None, None))

    async def _subscribe(self, connection: BusConnection) -> None:
        """Receive the subjects of this replica, and no others. Raises CarrierDown."""
        fixed = {self._echo, self._for_all, self._of_follower(self._me), *map(self._of_signal, self._heard)}
        wanted = fixed | self._standing
        if new := wanted - self._active:
            await connection.subscribe(new)
            self._active |= new
        if old := self._active - wanted:
            self._active -= old
            await connection.unsubscribe(old)

    def _note_slots(self) -> list[int]:
        """Note in which slots tasks are followed by now. Returns those that the others have to be told of.

        Hints that cross this word on their way come when it arrives; see `Interest`.
        """
        new, self._fresh = [slot for slot in self._fresh if slot in self._tasks], set()
        for slot in new:
            self._slots[slot] = None
            if self._echoed_s is not None:
                self._look_at(self._tasks[slot])
        return new

    def _drop_slots(self, now_s: float) -> None:
        """Forget the slots that have not been needed for a while."""
        for slot, since_s in tuple(self._slots.items()):
            if slot in self._tasks:
                self._slots[slot] = None
            elif since_s is None:
                self._slots[slot] = now_s
            elif now_s - since_s > LINGER_S:
                del self._slots[slot]


def _digest(name: str) -> str:
    """A name as one word of a subject."""
    return blake2b(name.encode(), digest_size=8).hexdigest()
