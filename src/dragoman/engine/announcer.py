"""Announcer: who turns what happens to a task into webhook deliveries, and what it is told of that.

Invariant: the engine knows what is told, and when; in which words, and on which way it is sent, only the announcer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, field

from dragoman.model.events import Event
from dragoman.model.operations import PushConfig
from dragoman.model.task import Record, TaskHead, TaskState
from dragoman.store.outbox import Delivery, Registration


class Step(Struct, frozen=True, kw_only=True):
    """One event of a task as webhooks are told of it: the state it left, and the artifacts that it made whole.

    `event` None: nothing happened, a webhook was registered and is told how the task stands. `stands` is the task up to
    it; it is folded when first asked for, which must be before the task goes on. `changes`: the task was not in that
    state before, or webhooks are to be told how it stands. `again`: the artifact that it made whole had been so before.
    """

    seq: int
    event: Event | None
    state: TaskState
    stands: Callable[[], Record]
    whole: tuple[str, ...] = ()
    changes: bool = True
    again: bool = False


class PutOff(Struct):
    """What of a task is not told each time, since telling it would cost as much as the task is large.

    `dialects`: those in which the whole task is told, and is too large to be told but for a change of its state.
    `artifacts` went on after they were whole, and wait for the task to settle; `doubtful` ones may have.
    """

    dialects: set[str] = field(default_factory=set)
    artifacts: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)


class Announcer(Protocol):
    """Turns what happens to a task into deliveries, and sees to it that they are sent. Without one there is no push."""

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """The configuration as it may be kept. `field` names where its URL was, in the caller's words.

        Raises InvalidParams, naming the URL and what speaks against it, if it may not be called from here.
        """
        ...

    def deliveries(
        self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[Step], put_off: PutOff
    ) -> tuple[Delivery, ...]:
        """What `configs` are told of `steps`, in order, rendered. `put_off` is that of the task, and is kept so."""
        ...

    def wake(self) -> None:
        """Deliveries were committed."""
        ...
