"""What stands behind a card: Runner; and what it may do with the task that it is given: Run.

Invariant: an agent knows nothing of streams, and of the engine only what is here.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from dragoman.model.card import Profile
from dragoman.model.errors import A2AError
from dragoman.model.events import ArtifactChunk, Delegated
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import CompleteTask, Shown, UpdateStatus
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead, TaskState, Usage


class Reject(Exception):
    """Raised by an agent that will not do the task; the text goes to the caller."""


class Ended(Exception):
    """Raised by a runner that knows how the task ends: in `state`, a terminal one, with `parts` for the caller.

    `reason` is for programs. `retry_after_s`: nothing was done, as who would have done it takes nothing at present; so
    many seconds later it may. The call that made the task is refused with that, and forgotten: a repeat makes another.
    """

    def __init__(
        self, state: TaskState, parts: Sequence[Part] = (), reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(state.value)
        self.state = state
        self.parts = tuple(parts)
        self.reason = reason
        self.retry_after_s = retry_after_s


class RunAgain(Exception):
    """Raised by a restartable runner whose run came to nothing: the task is leased anew and run as after a crash."""


class Delegation(Struct, frozen=True, kw_only=True):
    """What an agent gives to another agent of this server.

    `context_id` None: in the conversation of its own task. After `timeout_s`, or at its own task's deadline if that is
    earlier, the other's is canceled. `progress`: what it reports is reported by this one, too. `asks` says what becomes
    of its questions: they are passed on to the caller, and the answers to it; or the delegation ends with one. With
    `detach` nobody waits, and it outlives this task. `number` counts the delegations of a run from 1, which is how they
    are known again when it is run again; 0: the next.
    """

    agent: str
    parts: tuple[Part, ...]
    skill: str | None = None
    context_id: str | None = None
    timeout_s: float | None = None
    progress: bool = False
    asks: Literal["pass", "raise"] = "pass"
    detach: bool = False
    number: int = 0


class Unreadable(Exception):
    """The bytes of a file part are not to be had; the message says why."""


class DelegationFailed(Exception):
    """The other agent did not do it: it failed, rejected the task or was canceled, asks, or was not to be had.

    `task_id` is empty if no task was made. What it said is `text`, and with all else in `delegated`.
    """

    def __init__(self, delegated: Delegated) -> None:
        self.delegated = delegated
        self.agent = delegated.agent
        self.state = delegated.state
        self.task_id = delegated.task_id
        self.text = delegated.message.text if delegated.message is not None else ""
        word = delegated.state.value.removeprefix("TASK_STATE_").lower().replace("_", "-")
        task = f" (task {self.task_id})" if self.task_id else ""
        super().__init__(f"agent {self.agent}: {word}{task}" + (f": {self.text}" if self.text else ""))


def came_to(delegated: Delegated, order: Delegation) -> Delegated:
    """The outcome of a delegation as the agent gets it. Raises DelegationFailed unless the other agent did the task."""
    if delegated.state is TaskState.COMPLETED or (order.detach and delegated.task_id):
        return delegated
    raise DelegationFailed(delegated)


Hear = Callable[[ArtifactChunk], Awaitable[None]]
"""Is given what a delegated task gives out, as it comes."""


class Run(Protocol):
    """One execution of an agent on a task, as the agent sees it.

    While recorded answers are being replayed after a restart, what is emitted is dropped and `ask` returns the recorded
    answer; the agent cannot tell. Every method raises CancelledError once the run has been fenced.
    """

    head: TaskHead
    message: Message
    """The message that made the task; also when the run was taken up again."""
    principal: Principal
    skill: str | None
    skills: tuple[str, ...]
    extensions: tuple[str, ...]
    traceparent: str | None
    """The trace that calls of the agent's own shall continue (W3C Trace Context); None if nobody traces."""
    epoch: int
    """The task's epoch as the run began: 1 if nobody has worked on it before."""

    @property
    def canceled(self) -> bool:
        """Whether the task is to stop; a run that is canceled without that goes on elsewhere, or later."""
        ...

    @property
    def shown(self) -> Shown | None:
        """What the caller said who it is with, if the agent passes that on; only until the process ends."""
        ...

    @property
    def lineage(self) -> tuple[str, ...]:
        """Through which agents what this one asks of other servers comes, itself last: LINEAGE in message metadata."""
        ...

    @property
    def record(self) -> Record:
        """The task as written and emitted so far."""
        ...

    async def status(
        self, parts: Sequence[Part], *, progress: tuple[int, int] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report from within `working`. Returns when it is in the run's buffer."""
        ...

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Give out an artifact or a chunk of one. Returns when it is in the run's buffer (256 events or 1 MB)."""
        ...

    def working(self) -> None:
        """Somebody has taken the task on: `working` is said, if it was not yet (see `announcing`), and streams open."""
        ...

    def waiting(self, parts: Sequence[Part]) -> None:
        """Say why nothing goes on at present; a task that nobody works on yet stays as it is."""
        ...

    def usage(self, usage: Usage) -> None:
        """Add to the tokens used; written with the next status."""
        ...

    async def written(self) -> None:
        """Wait until all that was emitted so far is committed."""
        ...

    def landing(self, done: "Future[None]") -> None:
        """`done` is done when the write that is under way now has been committed; at once if there is none.

        What is said before then waits for it: who can wait with it says it in fewer and larger pieces.
        """
        ...

    def note(self, **note: str) -> None:
        """Write something down for a later run of the task: `record.note` has it. No caller is told of it."""
        ...

    async def noted(self) -> dict[str, str]:
        """What was noted last in an earlier task of the same context; empty if nothing was."""
        ...

    def caught_up(self) -> None:
        """The agent knows the caller's earlier answers from the task: nothing of what it says is a replay."""
        ...

    def goes_on(self) -> None:
        """What an earlier run gave out, also one that died, stands: the agent goes on from `record`."""
        ...

    async def ask(self, parts: Sequence[Part], *, auth: bool = False) -> Message:
        """Put the task into `input-required` (or `auth-required`) and wait for the caller's next message."""
        ...

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Give a task to another agent of this server, as the caller's own, and wait for what it comes to.

        When the run is run again, what was delegated before is not delegated twice: its outcome is recorded, and what
        has none yet is waited for. Raises DelegationFailed unless the task was completed.
        """
        ...

    async def references(self) -> tuple[Record, ...]:
        """The tasks that the message names in `referenceTaskIds`, those of them that are the caller's."""
        ...

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context, oldest first, agents' answers included, this run's own not."""
        ...

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part; what a stranger's `url` leads to is fetched with care. Raises Unreadable."""
        ...


class Runner(Protocol):
    """What stands behind a card.

    `direct` answers with one Message instead of a task; `restartable` may be run again from the start after a crash;
    `one_message` takes no further message while it works. While it is `offline`, sends are refused with AgentOffline.
    """

    profile: Profile
    direct: bool
    restartable: bool
    one_message: bool

    @property
    def offline(self) -> bool: ...

    async def run(self, run: Run) -> None:
        """Do the task. Returning completes it; Reject rejects it; CancelledError cancels it; anything else fails it."""
        ...


@runtime_checkable
class Refusing(Protocol):
    """A runner that says why it is offline."""

    def refusal(self) -> A2AError:
        """The error for a send while it is offline."""
        ...


@runtime_checkable
class Outreaching(Protocol):
    """A runner whose tasks live on elsewhere, while none of its runs does here."""

    def stopped(self, record: Record) -> None:
        """A task that nobody ran was canceled: what belongs to it elsewhere shall be, too. It never raises."""
        ...


@runtime_checkable
class Reported(Protocol):
    """A runner whose work is done elsewhere, and reported from there (BeeOS: UpdateStatus, CompleteTask)."""

    async def report(self, report: CompleteTask | UpdateStatus) -> None:
        """Take a worker's word on a task of this agent. What does not end the task is committed on return.

        Raises A2AError: InvalidParams for a report that does not fit, LeaseLost, Unavailable.
        """
        ...
