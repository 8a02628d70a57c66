"""The protocol between bindings and the engine: a Handler answers calls and opens Streams.

Invariant: a binding knows nothing of runs, and calls nothing of the engine beyond this module.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from dragoman.model.card import Profile
from dragoman.model.events import Logged
from dragoman.model.message import Message
from dragoman.model.operations import Call, Result
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead


class Snapshot(Struct, frozen=True):
    """A stream's first item: the task as it stands at `record.seq`. `history_length` is the caller's.

    `subscribed` says that the caller follows an existing task rather than one it has just made. `own` says that its
    encoded bytes are for this caller alone and are not shared.
    """

    record: Record
    history_length: int | None = None
    subscribed: bool = False
    own: bool = False


class Direct(Struct, frozen=True):
    """A stream's only item: the message of an agent that answers directly (A2A 1.0 §3.1.2)."""

    message: Message


StreamItem = Snapshot | Direct | Logged


class Stream(Protocol):
    """One caller's view of a task in progress. Every refusal happens before the stream exists."""

    head: TaskHead | None
    """Fixed facts of the task; None for a stream that holds a Direct."""
    base: Record | None
    """The task as it stood where the stream begins, if the call asked for it (`Call.folds`) and no snapshot comes."""

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """The items since the last call, in order; None at the end.

        Empty when nothing came for the keep-alive interval, or for `wait_s` seconds.
        """
        ...

    def close(self) -> None:
        """End the stream because its caller has left. A pending `next` returns None. The task goes on (invariant 6)."""
        ...

    @property
    def retry(self) -> bool:
        """Whether the stream ended before its task because the server is stopping: the caller shall come back."""
        ...


class Waker(Protocol):
    """Waits for a stream without an asyncio task."""

    def wake(self) -> None:
        """The stream has something to give, or is over."""
        ...


class OpenStream(Stream, Protocol):
    """A stream as a Handler opens it."""

    def park(self, waker: Waker) -> bool:
        """Let `waker` be told, once, when `next` has something to give. Returns False if it may have something now."""
        ...

    def unpark(self) -> None:
        """Tell nobody."""
        ...

    @property
    def unheard(self) -> bool:
        """Whether the task may be deleted, or lost by the store, without the waker's being told."""
        ...

    async def deleted(self) -> bool:
        """Whether the task has been deleted. A wait for a whole keep-alive interval asks for that by itself."""
        ...

    def when_closed(self, done: Callable[[], None]) -> None:
        """Call `done` once the stream has ended or its caller has left. Nothing is called for one already closed."""
        ...


Answered = Result | Profile
"""A result; for GetExtendedCard the agent's profile, to which the binding adds the agent's address."""


class Handler(Protocol):
    """Answers operations. The engine is one; quotas, audit and a remote upstream are others; they stack."""

    async def call(self, call: Call) -> Answered:
        """Answer a unary operation. Raises A2AError and nothing else."""
        ...

    async def stream(self, call: Call) -> OpenStream:
        """Open the stream of a StreamMessage or Subscribe. Raises A2AError and nothing else."""
        ...

    async def look(self, call: Call) -> Answered:
        """Answer a GetTask or ListTasks of a binding that has to know where its caller's message belongs.

        The caller is not shown the answer, so it needs no scope and is neither counted nor noted. Raises A2AError.
        """
        ...

    async def dialect_of(self, task_id: str, principal: Principal, agent: str, mount: str) -> str | None:
        """The dialect in which `principal` made this task of `agent` through `mount`; None if it did not make it."""
        ...

    async def agent_of(self, task_id: str, principal: Principal, mount: str) -> str | None:
        """The agent of a task that `principal` made through `mount`; None if it did not, or may not use the agent."""
        ...
