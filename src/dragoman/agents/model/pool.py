"""ModelPool: the endpoints of one model agent, and the attempts at one answer among them.

    ask the first that is ready ── answered ──► done
        │ trouble that another one need not have, and one was not asked yet ──► ask that one, at once
        │ trouble that may pass, and repeats are left ──► wait, and ask the one that may be asked first
        └ else ──► there is no answer

Invariant: no endpoint is asked a second time before each that is ready was asked once, unless calls may not move. A
pool of one endpoint repeats calls of it and does nothing else. Nothing here does input or output.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from dragoman.agents.breaker import State
from dragoman.agents.member_order import MemberOrder
from dragoman.agents.model.endpoint import ModelEndpoint
from dragoman.agents.model.failures import Trouble
from dragoman.agents.model.provider import chat_request
from dragoman.agents.model.request import ModelRequest
from dragoman.client.token_exchange import TokenExchange
from dragoman.config import Model
from dragoman.config.pools import PROBE_S, Strategy
from dragoman.engine.switches import Switches
from dragoman.net.egress import OPERATORS_RULES, EgressRules
from dragoman.telemetry.counts import UpstreamCalls

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0
"""The wait between two attempts when the endpoint names none: the first, and the longest. Waits double."""

REST_S_MAX = 300.0
"""The longest time for which an endpoint that asked for a pause is asked after all others."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often a model is called again, and how long all waits in between may take together.

    `pause` and `chance` supply time and randomness, which tests replace.
    """

    retries: int = 2
    wait_max_s: float = 5.0
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    now_s: Callable[[], float] = time.time

    def wait_s(self, attempt: int) -> float:
        """Seconds to wait after this many attempts: a random share of the backoff, at least half."""
        whole: float = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempt, 10))
        return min(self.wait_max_s, whole) * (0.5 + 0.5 * self.chance())


class Rank(Struct, frozen=True):
    """The rank of an endpoint for `MemberOrder`, which holds no object of this package."""

    order: int
    weight: int


class PoolEndpoint:
    """One endpoint of an agent, as its own table `model` describes it, with the requests that it is sent.

    It is given the `key`, and connected to under the `rules`. `name` is empty if it is the only one.
    `order` and `weight` are those of `MemberOrder`. `rests_until_s` is until when it has asked for a pause, by the
    clock of the pool. `busy` counts the calls under way, and `calls` those since the start.
    """

    __slots__ = (
        "busy",
        "call",
        "calls",
        "endpoint",
        "model",
        "name",
        "order",
        "requests",
        "rests_until_s",
        "weight",
    )

    def __init__(
        self,
        model: Model,
        key: str,
        rules: EgressRules = OPERATORS_RULES,
        *,
        name: str = "",
        order: int = 0,
        weight: int = 1,
    ) -> None:
        self.name = name
        self.order = order
        self.weight = weight
        self.model = model
        self.endpoint = ModelEndpoint(model, key, rules)
        self.requests = ModelRequest(model)
        self.call = chat_request(model)
        self.rests_until_s = 0.0
        self.busy = 0
        self.calls = UpstreamCalls()

    def begin_call(self) -> None:
        """Note that a call is under way."""
        self.busy += 1

    def end_call(self) -> None:
        """Note that it is over."""
        self.busy -= 1

    def rest_until(self, time_s: float) -> None:
        """Note until when it has asked for a pause."""
        self.rests_until_s = time_s

    @property
    def ready(self) -> bool:
        """Whether a call may be made now."""
        return self.endpoint.breaker.wait_s <= 0

    @property
    def place(self) -> str:
        """Its URL without what may be secret in it."""
        return self.endpoint.place

    @property
    def state(self) -> str:
        """The state of its breaker."""
        return self.endpoint.breaker.state.value


class ModelPool:
    """The endpoints of an agent, asked in the order of a `strategy`.

    With `moves` False a call that may have been carried out is not made at another endpoint. Several endpoints are
    looked at every `probe_s`. `clock` counts seconds.
    """

    def __init__(
        self,
        endpoints: Sequence[PoolEndpoint],
        strategy: Strategy = "failover",
        *,
        moves: bool = True,
        probe_s: float = PROBE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.moves = moves
        self.probe_s = probe_s
        self.clock = clock
        self._order = MemberOrder(strategy, [Rank(each.order, each.weight) for each in self.endpoints])
        self._agent = ""
        self._switches = Switches()

    def heed(self, agent: str, switches: Switches) -> None:
        """Ask no endpoint of the agent's pool that an operator has switched from now on."""
        self._agent, self._switches = agent, switches

    def takes_calls(self, endpoint: PoolEndpoint) -> bool:
        """Whether an endpoint is in service, as operators have it."""
        return not endpoint.name or self._switches.takes_tasks(self._agent, endpoint.name)

    @property
    def out_of_service(self) -> bool:
        """Whether operators have switched all endpoints."""
        return not any(map(self.takes_calls, self.endpoints))

    @property
    def first(self) -> PoolEndpoint:
        """The endpoint that the configuration names first."""
        return self.endpoints[0]

    @property
    def exchanges(self) -> tuple[TokenExchange, ...]:
        """How callers' tokens are exchanged for those of the endpoints."""
        found = (each.endpoint.exchange for each in self.endpoints)
        return tuple(exchange for exchange in found if exchange is not None)

    @property
    def wait_s(self) -> float:
        """Seconds until a call may be made, 0 if now."""
        return min((each.endpoint.breaker.wait_s for each in self.endpoints if self.takes_calls(each)), default=0.0)

    @property
    def held_back(self) -> tuple[PoolEndpoint, ...]:
        """The endpoints that did not answer, to which calls are held back."""
        return tuple(each for each in self.endpoints if each.endpoint.breaker.state is not State.CLOSED)

    def choose_order(self) -> list[PoolEndpoint]:
        """The endpoints that may be called now, in the order in which the next answer asks them."""
        if len(self.endpoints) == 1:
            return list(self.endpoints)
        now_s = self.clock()
        ready = [place for place, each in enumerate(self.endpoints) if each.ready and self.takes_calls(each)]
        places = self._order.choose_order(ready, lambda place: self.endpoints[place].busy)
        return sorted((self.endpoints[place] for place in places), key=lambda each: each.rests_until_s > now_s)


class Attempts:
    """The attempts at one answer for the agent `name`. `present` is the endpoint that is asked; None: none may be.

    Each endpoint's breaker is told the outcome of its last attempt in a row: it counts answers, not attempts. End with
    `succeed` or `give_up`, unless `follow` has said that nothing follows. `made` counts the attempts.
    """

    __slots__ = (
        "_asked",
        "_left",
        "_name",
        "_pending",
        "_pool",
        "_repeats",
        "_retry",
        "_trial",
        "_waited_s",
        "made",
        "present",
    )

    def __init__(self, name: str, pool: ModelPool, retry: RetryPolicy) -> None:
        self._name = name
        self._pool = pool
        self._retry = retry
        self._left = pool.choose_order()
        self._asked: list[tuple[PoolEndpoint, Trouble]] = []
        self._repeats = 0
        self._waited_s = 0.0
        self._trial = self._pending = False
        self.made = 1
        self.present = self._take_unasked()

    def succeed(self) -> None:
        """Record that the present endpoint has answered."""
        if self.present is not None:
            self._pending = False
            self.present.calls.outcomes["succeeded"] += 1
            self.present.endpoint.record_success(self._name)

    def give_up(self) -> None:
        """Record that the outcome of the present call is not known, if there is one."""
        if self.present is not None and self._pending:
            self._pending = False
            self.present.endpoint.breaker.record_unknown()

    @property
    def telling(self) -> Trouble:
        """The trouble that says most about why there is no answer: the newest that may pass, else the newest."""
        troubles = [trouble for _, trouble in self._asked]
        return next((trouble for trouble in reversed(troubles) if trouble.again), troubles[-1])

    def follow(self, trouble: Trouble) -> float | None:
        """Decide what follows trouble with the present endpoint: ask the one that is `present` then, after so many
        seconds. None: nothing does, and the answer has failed."""
        failed = self.present
        assert failed is not None
        self.made += 1
        failed.calls.outcomes["failed" if trouble.silent else "refused"] += 1
        if trouble.after_s is not None:
            failed.rest_until(self._pool.clock() + min(trouble.after_s, REST_S_MAX))
        self._asked = [(each, was) for each, was in self._asked if each is not failed] + [(failed, trouble)]
        moves = trouble.elsewhere and (self._pool.moves or not trouble.taken)
        if moves and (other := self._take_unasked()) is not None:
            self.present = other
            self._record(failed, trouble)
            return 0.0
        wait_s = self._repeat(failed, moves=moves) if trouble.again else None
        if wait_s is None or self.present is not failed:
            self._record(failed, trouble)
        return wait_s

    def _take_unasked(self) -> PoolEndpoint | None:
        """The next endpoint in the order that may be called and was not asked for this answer."""
        while self._left:
            endpoint = self._left.pop(0)
            if self._pool.takes_calls(endpoint) and self._admit(endpoint):
                return endpoint
        return None

    def _admit(self, endpoint: PoolEndpoint) -> bool:
        breaker = endpoint.endpoint.breaker
        trial = breaker.state is not State.CLOSED
        if not breaker.admit():
            return False
        self._trial, self._pending = trial, True
        return True

    def _repeat(self, failed: PoolEndpoint, *, moves: bool) -> float | None:
        """Choose the endpoint that is asked again. Returns the wait until then; None if none is."""
        if self._repeats >= self._retry.retries:
            return None
        backoff_s = self._retry.wait_s(self._repeats)
        best: tuple[float, PoolEndpoint] | None = None
        for endpoint, trouble in self._asked if moves else self._asked[-1:]:
            if endpoint is failed:
                allowed = self._trial or endpoint.endpoint.breaker.state is State.CLOSED  # else others have opened it
            else:
                allowed = trouble.again and endpoint.ready
            allowed = allowed and self._pool.takes_calls(endpoint)
            wait_s = backoff_s if trouble.after_s is None else trouble.after_s
            if allowed and (best is None or wait_s < best[0]):
                best = wait_s, endpoint
        if best is None or self._waited_s + best[0] > self._retry.wait_max_s:
            return None
        wait_s, endpoint = best
        if endpoint is not failed and not self._admit(endpoint):
            return None
        self._repeats += 1
        self._waited_s += wait_s
        self.present = endpoint
        return wait_s

    def _record(self, endpoint: PoolEndpoint, trouble: Trouble) -> None:
        """Tell the breaker of an endpoint that was asked how that went."""
        self._pending = self._pending and endpoint is not self.present
        known = endpoint.endpoint
        (known.record_failure if trouble.down else known.record_success)(self._name)
