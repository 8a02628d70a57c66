"""Interest: what the other replicas follow, as far as they say so, and the hints of the last seconds.

Invariant: a hint is withheld from a replica that was heard of late only if that one has said that it follows nothing in
the hint's slot. Hints are kept for some seconds, and handed out to a replica as soon as it says that it follows
something there. So a hint that crosses the word of a new follower on its way comes late, but is not lost.
"""

import zlib
from array import array
from collections.abc import Iterable

SLOTS = 1 << 15
"""How many slots the tasks are spread over. A replica that follows 2,000 tasks takes 6 % of them, and receives so many
of the hints about other tasks, too. All slots as bits are 4 KB, which fit into a NOTIFY."""

EVERY_SLOT = bytes([255]) * (SLOTS // 8)

FORGET_S = 10.0
"""A replica that has not been heard for so long is gone. For so long after the beginning, some may not be known yet."""

KEPT_S = 3.0
"""How long a hint is kept at least. A lost word of a follower is repeated within a second."""

KEPT_MAX = 10_000
"""The most tasks whose hints are kept in that time: of more, the oldest go earlier. In all there are twice as many."""

Kept = dict[int, dict[str, int]]
"""The newest seq of tasks, by their slot."""


def slot_of(task_id: str) -> int:
    """The slot of a task."""
    return zlib.crc32(task_id.encode()) % SLOTS


def spell_all(slots: Iterable[int]) -> bytes:
    """All slots in which a replica follows something, as `Interest.hear` reads them."""
    bits = bytearray(SLOTS // 8)
    for slot in slots:
        bits[slot >> 3] |= 1 << (slot & 7)
    return zlib.compress(bits, 1)


def spell_some(slots: Iterable[int]) -> bytes:
    """Slots that are added to those said before, as `Interest.hear_more` reads them."""
    return array("H", slots).tobytes()


class Interest:
    """The slots of the others. Times are those of the loop."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[bytes, float]] = {}
        """The slots that each replica last said it follows, as bits, and when it said so."""
        self._known_s = 0.0
        self._known = False
        self._older: Kept = {}
        self._newer: Kept = {}
        self._count = 0
        self._since_s = 0.0

    def forget_all(self, now_s: float) -> None:
        """Forget everything: until all may have been heard, every hint is for everybody."""
        self._said.clear()
        self._known = False
        self._known_s = now_s + FORGET_S
        self._since_s = now_s
        self._turn()
        self._turn()

    def followers(self, slot: int) -> tuple[str, ...] | None:
        """Those who may follow a task of this slot. None: anybody may, or all of several do."""
        if not self._known:
            return None
        place, bit = slot >> 3, 1 << (slot & 7)
        found = tuple([sender for sender, (bits, _) in self._said.items() if bits[place] & bit])
        return None if 1 < len(found) == len(self._said) else found

    def keep(self, slot: int, task_id: str, seq: int) -> None:
        """Keep a hint for those who may yet come."""
        kept = self._newer.get(slot)
        if kept is not None and task_id in kept:
            kept[task_id] = seq
            return
        if self._count >= KEPT_MAX:
            self._turn()
        self._newer.setdefault(slot, {})[task_id] = seq
        self._count += 1

    def hear(self, sender: str, said: bytes | None, now_s: float) -> list[tuple[str, int]]:
        """Note all that another replica follows; None if it does not say it.

        Returns the hints that are kept and may be news to it, as task and seq.
        """
        before, bits = self._bits_of(sender), _bits(said)
        fresh: list[int] = []
        if bits != before:
            for place, (now, then) in enumerate(zip(bits, before, strict=True)):
                if new := now & ~then:
                    fresh += [place << 3 | bit for bit in range(8) if new >> bit & 1]
        return self._note(sender, bits, fresh, now_s)

    def hear_more(self, sender: str, said: bytes, now_s: float) -> list[tuple[str, int]]:
        """Note what another replica has begun to follow. Returns what `hear` does."""
        bits, more = bytearray(self._bits_of(sender)), array("H")
        more.frombytes(said[: len(said) // 2 * 2])
        fresh = [slot for slot in more if slot < SLOTS and not bits[slot >> 3] >> (slot & 7) & 1]
        for slot in fresh:
            bits[slot >> 3] |= 1 << (slot & 7)
        return self._note(sender, bytes(bits), fresh, now_s)

    def age(self, now_s: float) -> None:
        """Forget replicas that are gone, and hints that were kept long enough."""
        self._said = {name: said for name, said in self._said.items() if now_s - said[1] <= FORGET_S}
        self._known = now_s >= self._known_s
        if now_s - self._since_s >= KEPT_S:
            self._since_s = now_s
            self._turn()

    def _bits_of(self, sender: str) -> bytes:
        known = self._said.get(sender)
        return bytes(SLOTS // 8) if known is None else known[0]

    def _note(self, sender: str, bits: bytes, fresh: Iterable[int], now_s: float) -> list[tuple[str, int]]:
        self._said[sender] = bits, now_s
        self.age(now_s)
        newest: dict[str, int] = {}
        for slot in fresh:
            for kept in (self._older, self._newer):
                newest.update(kept.get(slot, ()))
        return list(newest.items())

    def _turn(self) -> None:
        self._older, self._newer, self._count = self._newer, {}, 0


def _bits(said: bytes | None) -> bytes:
    """The slots as bits; all of them if they are not said, or not in this form."""
    if said is None:
        return EVERY_SLOT
    try:
        bits = zlib.decompressobj().decompress(said, SLOTS // 8)
    except zlib.error:
        return EVERY_SLOT
    return bits if len(bits) == SLOTS // 8 else EVERY_SLOT
