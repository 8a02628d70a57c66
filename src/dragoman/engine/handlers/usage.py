"""Usage: how often principals call, how many streams they have open, and the exchange of both among replicas.

Invariant: a request that is let through was counted before. A replica lets through at most its part of the tolerance
before it tells the others, so that all of them together exceed a limit by the tolerance at most.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from dragoman.model.ids import Clock
from dragoman.store.api import Store, StoreError
from dragoman.store.shared import Spending
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

KEPT = 10_000
"""Principals remembered. A bucket is full again after a second without a call, so that forgetting it loses nothing.
Only if more principals than this call within one second may some of them call too often."""

SECOND_NS = 1_000_000_000

DEBT_NS = 10 * SECOND_NS
"""A bucket that is full later than this comes from a clock that was set back. Replicas owe less: see `Rates.room`."""

EXCHANGE_S = 0.5
"""Time between two exchanges while there is something to tell. An exchange is one statement for the rates of all
principals and one for all streams, whatever the number of requests, and none while nobody calls."""

REPLICAS_S = 5.0
"""How long the number of replicas is believed."""

COUNTED_S = 60.0
"""How long the streams of a replica count that says nothing more. Open ones are told anew at a third of it."""


class Rates:
    """Limits how often principals may call. A bucket holds the tokens of one second, stored as when it will be full.

    `per_s` is the rate of principals that have none of their own; 0 sets no limit. With `shared` it notes what is
    taken, for the exchange with other replicas. A bucket may be in debt then.
    """

    def __init__(self, per_s: int, kept: int = KEPT, *, shared: bool = False) -> None:
        self.per_s = per_s
        self._kept = kept
        self._own: dict[str, int] = {}
        """The latest rates of principals with one of their own, of which tokens were taken since the last exchange."""
        self._full_at_ns: OrderedDict[str, int] = OrderedDict()
        self._taken: dict[str, int] | None = {} if shared else None
        self._clamp_ns = DEBT_NS if shared else SECOND_NS

    def take(self, principal: str, now_ms: int, own: int | None = None) -> int:
        """Take a token and return 0, or return after how many seconds, rounded up, there is one again.

        `own` is the principal's own rate, if it has one.
        """
        per_s = own or self.per_s
        if not per_s:
            return 0
        now_ns = now_ms * 1_000_000
        empty_ns = now_ns + SECOND_NS
        full_at_ns = self._full_at_ns.get(principal, now_ns)
        if full_at_ns < now_ns:
            full_at_ns = now_ns
        elif full_at_ns > now_ns + self._clamp_ns:
            full_at_ns = self._full_at_ns[principal] = empty_ns  # the clock was set back
        full_at_ns += SECOND_NS // per_s
        if full_at_ns > empty_ns:
            return -((empty_ns - full_at_ns) // SECOND_NS)
        self._set(principal, full_at_ns)
        if self._taken is not None:
            self._taken[principal] = self._taken.get(principal, 0) + 1
            if own:
                self._own[principal] = own
        return 0

    def _set(self, principal: str, full_at_ns: int) -> None:
        self._full_at_ns[principal] = full_at_ns
        self._full_at_ns.move_to_end(principal)
        if len(self._full_at_ns) > self._kept:
            self._full_at_ns.popitem(last=False)

    # -- for the exchange ----------------------------------------------------------------------------------------------

    def room(self, principal: str, replicas: int, own: int | None = None) -> bool:
        """Whether another call may be let through before the exchange.

        Over 10 s all replicas may exceed the rate by 20 %, which are the tokens of two seconds, or by one call each.
        """
        taken = self._taken
        return taken is None or taken.get(principal, 0) < max(1, 2 * (own or self.per_s) // replicas)

    def spend(self) -> Mapping[str, int]:
        """The tokens taken since this was last called, by principal."""
        taken = self._taken
        if not taken:
            return {}
        self._taken = {}
        return taken

    def keep(self, taken: Mapping[str, int]) -> None:
        """Keep tokens for the next exchange, because this one failed."""
        if self._taken is not None:
            for principal, count in taken.items():
                self._taken[principal] = self._taken.get(principal, 0) + count

    def cost_us(self, principal: str, tokens: int) -> int:
        """How many microseconds it takes until so many tokens of the principal have come back."""
        return tokens * self._interval_ns(principal) // 1000

    def _interval_ns(self, principal: str) -> int:
        return SECOND_NS // (self._own.get(principal) or self.per_s or SECOND_NS)

    def learn(self, principal: str, full_in_us: int, now_ms: int) -> None:
        """Take over the state of a bucket from the store, plus what was taken meanwhile."""
        since = 0 if self._taken is None else self._taken.get(principal, 0)
        self._set(principal, now_ms * 1_000_000 + full_in_us * 1000 + since * self._interval_ns(principal))
        if not since:
            self._own.pop(principal, None)


class OpenStreams:
    """Counts the open streams of principals, of which each may have `most`. `kind` tells several counters apart.

    With `shared` it notes changes, for the exchange with other replicas.
    """

    def __init__(self, most: int, *, kind: str = "streams", shared: bool = False) -> None:
        self.most = most
        self.kind = kind
        self._here: dict[str, int] = {}
        self._elsewhere: dict[str, tuple[int, float]] = {}
        """The streams on other replicas, and the loop's time at which that was learnt."""
        self._changed: dict[str, int] | None = {} if shared else None
        """How many streams were opened since the last exchange, for everybody who opened or closed one."""

    def take(self, owner: str) -> bool:
        """Count a stream that is about to open. Returns False, and counts nothing, if the principal has enough."""
        here = self._here.get(owner, 0)
        if here + self._elsewhere.get(owner, (0, 0.0))[0] >= self.most:
            return False
        self._here[owner] = here + 1
        if self._changed is not None:
            self._changed[owner] = self._changed.get(owner, 0) + 1
        return True

    def release(self, owner: str) -> None:
        """Count a stream as closed."""
        left = self._here[owner] - 1
        if left:
            self._here[owner] = left
        else:
            del self._here[owner]
        if self._changed is not None:
            self._changed.setdefault(owner, 0)

    # -- for the exchange ----------------------------------------------------------------------------------------------

    def room(self, owner: str, replicas: int, now_s: float) -> bool:
        """Whether another stream may be opened, or refused, before the exchange.

        All replicas together may exceed the limit by 20 %, or by one stream each. A refusal needs fresh knowledge.
        """
        if self._changed is None:
            return True
        elsewhere, learnt_s = self._elsewhere.get(owner, (0, 0.0))
        if elsewhere and self._here.get(owner, 0) + elsewhere >= self.most and now_s - learnt_s > EXCHANGE_S:
            self._changed.setdefault(owner, 0)
            return False
        return self._changed.get(owner, 0) < max(1, self.most // (5 * replicas))

    def changes(self, *, everything: bool) -> Mapping[str, int]:
        """The opened streams of everybody who opened or closed any since this was last called, or has any at all."""
        changed = self._changed
        if changed is None or not (changed or everything):
            return {}
        self._changed = {}
        return dict.fromkeys(self._here, 0) | changed if everything else changed

    def counts(self, owners: Mapping[str, int]) -> dict[str, int]:
        """How many streams these principals have open here."""
        return {owner: self._here.get(owner, 0) for owner in owners}

    def keep(self, changed: Mapping[str, int]) -> None:
        """Keep changes for the next exchange, because this one failed."""
        if self._changed is not None:
            for owner, opened in changed.items():
                self._changed[owner] = self._changed.get(owner, 0) + opened

    def learn(self, owner: str, elsewhere: int, now_s: float) -> None:
        """Take over how many streams a principal has open on other replicas."""
        if owner in self._here or elsewhere >= self.most:
            self._elsewhere[owner] = elsewhere, now_s
        else:
            self._elsewhere.pop(owner, None)

    def forget(self, now_s: float) -> None:
        """Forget principals without a stream here, of whom nothing was learnt for a while."""
        for owner in [one for one, (_, at_s) in self._elsewhere.items() if now_s - at_s > COUNTED_S]:
            if owner not in self._here:
                del self._elsewhere[owner]


class UsageExchange:
    """Tells the store what was let through here, and learns what was let through on all replicas together.

    A request waits for an exchange only if this replica's part of the tolerance is used up. While the store does not
    answer, each replica goes by what it knows.
    """

    def __init__(
        self, store: Store, counter: str, clock: Clock, rates: Rates | None, streams: Sequence[OpenStreams]
    ) -> None:
        """`counter` is a name for this replica that no other has."""
        self._store = store
        self._counter = counter
        self._clock = clock
        self._rates = rates
        self._streams = tuple(streams)
        self._replicas = 1
        self._counted_s = self._told_s = float("-inf")
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Exchange for ever, while there is something to tell."""
        while True:
            await self.exchange()
            await asyncio.sleep(EXCHANGE_S)

    async def let_call(self, principal: str, own: int | None = None) -> None:
        """Wait until one more call of the principal may be let through, or refused, by what this replica knows.

        `own` is the principal's own rate, if it has one.
        """
        rates = self._rates
        if rates is not None and (own or rates.per_s):
            while not rates.room(principal, self._replicas, own):
                if not await self.exchange():
                    return

    async def let_open(self, streams: OpenStreams, owner: str) -> None:
        """As `let_call`, for a stream."""
        loop = asyncio.get_running_loop()
        while not streams.room(owner, self._replicas, loop.time()):
            if not await self.exchange():
                return

    async def exchange(self) -> bool:
        """Tell and learn, if there is anything to tell. Returns False if the store does not answer."""
        async with self._turn:
            try:
                await self._count_replicas()
                if self._rates is not None:
                    await self._exchange_rates(self._rates)
                await self._exchange_streams()
            except StoreError as error:
                log.warning(
                    "limits hold on this replica alone, because the store does not answer: %s",
                    error,
                    extra=about("store"),
                )
                return False
            return True

    async def _count_replicas(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._counted_s > REPLICAS_S:
            self._replicas = max(1, len(await self._store.replicas.all()))
            self._counted_s = now_s

    async def _exchange_rates(self, rates: Rates) -> None:
        taken = rates.spend()
        if not taken:
            return
        try:
            spendings = [Spending(f"rate/{who}", rates.cost_us(who, tokens)) for who, tokens in taken.items()]
            full_in_us = await self._store.shared.spend(spendings)
        except BaseException:
            rates.keep(taken)
            raise
        now_ms = self._clock.now_ms()
        for principal, left_us in zip(taken, full_in_us, strict=True):
            rates.learn(principal, left_us, now_ms)

    async def _exchange_streams(self) -> None:
        now_s = asyncio.get_running_loop().time()
        everything = now_s - self._told_s > COUNTED_S / 3
        told = [(streams, streams.changes(everything=everything)) for streams in self._streams]
        if everything:
            self._told_s = now_s
            for streams in self._streams:
                streams.forget(now_s)
        counts = {
            f"{streams.kind}/{owner}": count
            for streams, changed in told
            for owner, count in streams.counts(changed).items()
        }
        if not counts:
            return
        try:
            others = await self._store.shared.tally(self._counter, counts, int(COUNTED_S * 1000))
        except BaseException:
            for streams, changed in told:
                streams.keep(changed)
            raise
        for streams, changed in told:
            for owner in changed:
                streams.learn(owner, others[f"{streams.kind}/{owner}"], now_s)
