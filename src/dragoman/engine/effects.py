"""Effects: what has to follow from a commit or from a run's word, as values.

Invariant: an effect points up, and is never the only copy. The code that finds that something has to follow puts it
here, and knows nothing of the code that carries it out (`engine.effect_loop`), after the commit. An effect that gets
lost is found again, within two `claim_s`, and one that is carried out twice does no harm.

`EffectLoop` looks for lost effects at the start and every `claim_s`, on every store. It asks the store for those that
follow from rows, unless nobody else writes to it and nothing was committed since the last look, and keeps those that
runs want until they are carried out (`Effects.wanted`). A run that died is found by its dead holder: `Recovery`
claims its task, at the start, and among several replicas every `claim_s`.

| Effect | carried out by | found again by | if the process died | twice |
|---|---|---|---|---|
| `CancelChildren` | `DelegatedTasks.cancel_children` | `Store.orphans` | the same | an ended task is not canceled |
| `ClaimSoon` | `Recovery.wake` | `Store.claim` and `Store.leased`, which `Recovery` asks | the same | one more look |
| `StopOverdue` | `Cancellations.stop_overdue` | `wanted` | the claim ends the task, or runs it again | it ends once |
| `DropSuspended` | `Supervisor.drop_suspended` | `wanted` | a dead replica keeps no run | no run is left to drop |
| `Delegate` | `Delegations.carry_out` | `wanted` | the next run delegates again | it is the same child |
| `WeighSpending` | `Overspending.weigh` | the next report of the run | the same | it ends once |

`Store.missing` is the query behind the hint that a delegated task was deleted elsewhere. `Store.overdue` is that of a
timer that belongs to no effect: `DelegatedTasks.asks` ends a delegation that waits for an answer past its deadline. On
SQLite nobody else claims, so that `ClaimSoon` is not put there.

No query reads more of the tasks than an index has of those that it is about: open delegations by parent (`orphans`) or
deadline (`overdue`), and open tasks by holder (`claim`, `leased`). Nothing is written while nothing is found.
"""

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Awaitable, Sequence
from contextvars import Context
from typing import Protocol

from msgspec import Struct

from dragoman.engine.api import Delegation, Hear
from dragoman.engine.log import Log
from dragoman.engine.words import Say
from dragoman.model.events import Delegated
from dragoman.model.message import Message, Part
from dragoman.model.task import TaskHead, Usage


class PassedAnswers(Protocol):
    """The recorded answers to questions that a run passed on."""

    def next_passed(self, child_id: str) -> Message | None:
        """The next recorded answer to a question of the child, if there is one."""
        ...

    def forget_passed(self, child_id: str) -> None:
        """Drop the recorded answers to the child's questions, which nobody asks for any more."""
        ...


class ParentRun(Protocol):
    """The run that delegates, as the one sees it who makes the task for it."""

    head: TaskHead
    log: Log
    traceparent: str | None

    @property
    def present_id(self) -> str | None:
        """The id of the message that the run has read last; None if that is not known here."""
        ...

    @property
    def replay(self) -> PassedAnswers:
        """The recorded answers to its children's questions."""
        ...

    def say(self, word: Say) -> Awaitable[None] | None:
        """Report what the child reports: see `engine.api.Sink.say`."""
        ...

    async def pass_on(self, child: Log, parts: Sequence[Part], *, auth: bool) -> Message | None:
        """Put the child's question to the caller. Returns None if the child no longer waits for an answer."""
        ...


class CancelChildren(Struct, frozen=True):
    """End the undetached delegations of a task that has ended or is about to."""

    parent: Log


class ClaimSoon(Struct, frozen=True):
    """Look for tasks on which nobody works. With `lost` some of those may be leased to this engine."""

    lost: bool = False


class StopOverdue(Struct, frozen=True, eq=False):
    """End a task whose run is past its deadline, if its agent does not stop when it is asked to."""

    task: Log


class DropSuspended(Struct, frozen=True, eq=False):
    """Keep the run of a task that is suspended, or sleeps, no longer, unless it goes on already."""

    task: Log


class Delegate(Struct, frozen=True, eq=False):
    """Make the task of a delegation, unless it exists, and set its outcome on `outcome`, for which the run waits.

    The work is given up when `outcome` is cancelled. It is done in `context`, that of the run.
    """

    run: ParentRun
    number: int
    order: Delegation
    hear: Hear | None
    outcome: "Future[Delegated]"
    context: Context


class SpendingRun(Protocol):
    """A run that reports what it uses."""

    head: TaskHead
    used: Usage | None

    async def stop_spending(self, budget: str) -> None:
        """End the task, because a budget has less left than it has used. Raises StoreError."""
        ...


class WeighSpending(Struct, frozen=True, eq=False):
    """End the task of a run if it has used more than its budgets have left."""

    run: SpendingRun


RunEffect = StopOverdue | DropSuspended | Delegate
"""The effects that runs want, and that no row tells of while their process lives."""

Effect = CancelChildren | ClaimSoon | WeighSpending | RunEffect


class Effects:
    """The effects that wait to be carried out, in the order in which they were put."""

    def __init__(self) -> None:
        self._put: deque[Effect] = deque()
        self._wanted: dict[RunEffect, None] = {}
        self._waiting: Future[None] | None = None
        self._until_none: list[Future[None]] = []

    def put(self, effect: Effect) -> None:
        """Have an effect carried out soon."""
        self._put.append(effect)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def want(self, effect: RunEffect) -> None:
        """As `put`, and keep the effect until it is `done`."""
        self._wanted[effect] = None
        self.put(effect)

    @property
    def wanted(self) -> tuple[RunEffect, ...]:
        """The effects of runs that have not been carried out."""
        return tuple(self._wanted)

    def done(self, effect: Effect) -> None:
        """Note that an effect has been carried out."""
        if isinstance(effect, RunEffect):
            self._wanted.pop(effect, None)

    async def next(self) -> Effect:
        """Wait for the oldest effect and take it. For one caller, who has carried out the one before."""
        while not self._put:
            while self._until_none:
                if not (until_none := self._until_none.pop()).done():
                    until_none.set_result(None)
            self._waiting = get_running_loop().create_future()
            await self._waiting
        return self._put.popleft()

    async def carried_out(self) -> None:
        """Wait until no effect is left to be carried out."""
        if self._put:
            until_none: Future[None] = get_running_loop().create_future()
            self._until_none.append(until_none)
            await until_none
