"""Task and its states (A2A 1.0 §4.1.1 to §4.1.3), and the Record: a task with what the server knows beyond 1.0.

Invariant: `Task` encodes to pure A2A 1.0 JSON. Everything that 1.0 lacks is in `TaskHead` and `Record` only.
"""

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct

from dragoman.model.message import Artifact, Message


class TaskState(StrEnum):
    """The life of a task (A2A 1.0 §4.1.3). Only a task of another agent can be `UNSPECIFIED`."""

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    REJECTED = "TASK_STATE_REJECTED"
    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"


STATES: tuple[TaskState, ...] = tuple(state for state in TaskState if state is not TaskState.UNSPECIFIED)
"""The states that a task of this server can be in. Stores hold the index of a state, so the order must never change."""

TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
"""States that nothing follows (A2A 1.0 §4.1.3)."""

INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
"""States in which the task waits for its caller (A2A 1.0 §3.2.2)."""


class Phase(StrEnum):
    """Where a task stands for operators: commands, metrics, the console and the log all count by phase.

    A `queued` task waits to be taken on, by a worker, by a server, or because there is no room. An agent works on a
    `running` one. A `sleeping` one waits for a time at which its agent goes on. A `waiting` one waits for its caller.
    """

    QUEUED = "queued"
    RUNNING = "running"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    ENDED = "ended"


def phase_of(state: TaskState, *, idle: bool, asleep: bool = False) -> Phase:
    """The phase of a task. `idle`: nobody has its lease, or the run that has it waits to be taken on. `asleep`: nobody
    has it until it wakes.

    A task that was at work, such as one whose worker is gone, is queued again but stays `working` for its caller,
    because A2A knows no way back from there.
    """
    if state in TERMINAL:
        return Phase.ENDED
    if state in INTERRUPTED:
        return Phase.WAITING
    if asleep:
        return Phase.SLEEPING
    return Phase.QUEUED if idle or state is TaskState.SUBMITTED else Phase.RUNNING


class TaskStatus(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, gc=False):
    """Where a task stands. `timestamp` is UTC with milliseconds: `2026-11-20T07:00:00.000Z` (A2A 1.0 §5.6.1).

    A client reads those of other servers with as many digits as they have.
    """

    state: TaskState
    message: Message | None = None
    timestamp: str


class Task(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, gc=False):
    """The core unit of action (A2A 1.0 §4.1.1)."""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None


TOKENS_MAX = (1 << 53) - 1
"""The highest number of tokens that is counted: every reader of JSON keeps it exact (RFC 8259 §6)."""


CancelOutcome = Literal["accepted", "refused", "unanswered"]
"""The other server's answer to a cancel that followed ours."""


class Progress(Struct, frozen=True, array_like=True, gc=False):
    """The progress of a run: `current` of `total` steps. `message` describes the present step and may be empty."""

    current: int
    total: int
    message: str = ""


class ModelUsage(Struct, frozen=True, array_like=True, gc=False):
    """The part of the tokens that one model used, at one `upstream` if the agent is a pool of several.

    `cached_tokens` are those of the `input_tokens` that a cache had. `uncertain` counts calls and reports whose tokens
    nobody knows.
    """

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    upstream: str = ""
    uncertain: int = 0

    @property
    def tells(self) -> bool:
        """Whether it tells of any tokens."""
        return bool(self.total_tokens or self.input_tokens or self.output_tokens)


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """Tokens used, as the agent reported them. The agent decides what counts as a token.

    `models` has one entry for each model that the agent named, at each upstream, in the order in which they were first
    used. Tokens that were reported without a model are in the sums alone. `cached_tokens` are those of the
    `input_tokens` that a cache had.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    models: tuple[ModelUsage, ...] = ()
    cached_tokens: int = 0

    @classmethod
    def of(
        cls,
        input_tokens: int,
        output_tokens: int,
        total_tokens: int | None = None,
        model: str = "",
        *,
        cached_tokens: int = 0,
        upstream: str = "",
    ) -> "Usage":
        """The tokens of one report. `total_tokens` defaults to the sum; `model` and `upstream` may be empty."""
        total = input_tokens + output_tokens if total_tokens is None else total_tokens
        part = ModelUsage(model, input_tokens, output_tokens, total, cached_tokens, upstream)
        return cls(input_tokens, output_tokens, total, (part,) if model or upstream else (), cached_tokens)

    @classmethod
    def unknown(cls, model: str = "", upstream: str = "") -> "Usage":
        """A call, or a report, whose tokens nobody knows."""
        return cls(models=(ModelUsage(model, upstream=upstream, uncertain=1),))

    def __add__(self, more: "Usage") -> "Usage":
        """The sum of both, in which each number is at least 0 and at most TOKENS_MAX. Half a surrogate pair in the name
        of a model of `more` is replaced: no store could write it."""
        models = _sum_models(self.models, more.models) if more.models else self.models
        if not (more.input_tokens or more.output_tokens or more.total_tokens or more.cached_tokens):
            return Usage(self.input_tokens, self.output_tokens, self.total_tokens, models, self.cached_tokens)
        return Usage(
            _bounded(self.input_tokens + more.input_tokens),
            _bounded(self.output_tokens + more.output_tokens),
            _bounded(self.total_tokens + more.total_tokens),
            models,
            _bounded(self.cached_tokens + more.cached_tokens),
        )


def _bounded(tokens: int) -> int:
    return min(tokens, TOKENS_MAX) if tokens > 0 else 0


def _sum_models(known: tuple[ModelUsage, ...], more: tuple[ModelUsage, ...]) -> tuple[ModelUsage, ...]:
    if not known and len(more) == 1 and more[0] == ModelUsage("", upstream=more[0].upstream):
        return more  # a member of a pool that reports no tokens: nothing is out of bounds
    sums = {(each.model, each.upstream): each for each in known}
    for each in more:
        name = each.model if each.model.isascii() else each.model.encode("utf-8", "replace").decode()
        before = sums.get((name, each.upstream), ModelUsage(name))
        sums[name, each.upstream] = ModelUsage(
            name,
            _bounded(before.input_tokens + each.input_tokens),
            _bounded(before.output_tokens + each.output_tokens),
            _bounded(before.total_tokens + each.total_tokens),
            _bounded(before.cached_tokens + each.cached_tokens),
            each.upstream,
            _bounded(before.uncertain + each.uncertain),
        )
    return tuple(sums.values())


class Reservation(Struct, frozen=True, array_like=True, gc=False):
    """The part of a budget that a task holds until it ends.

    `account` is the name of the budget's account in the store. `unit` is "tasks", "tokens" or the code of a currency.
    `amount` is a whole number, of money in units of 10^-30 of the currency; it is text, since it may have more than 64
    bits. `learnt`: it is what earlier tasks of the agent have cost, and later ones learn from this one. `first`: it
    holds the place of the only task that may run as long as nobody knows what one costs. With `stops` the run ends once
    it has reported to have spent more than the budget has left.
    """

    account: str
    unit: str
    amount: str
    learnt: bool = False
    first: bool = False
    stops: bool = False


class TaskHead(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The facts of a task that are fixed when it is made.

    `owner` is the id of the principal that made it; `dialect` and `mount` say how and where it was made; `created_at`
    is spelled like `TaskStatus.timestamp`. `metadata` is that of the request; `skills` restricts the run to those.
    `earlier` is the conversation before the task, as its caller sent it; if it `continues`, it follows the messages of
    the context, else it stands in their place. `parent` is the id of the task whose agent
    delegated this one. `lineage` lists the agents through which the task came, the first one first, those of other
    servers under their names there. A `detached` task goes on when its parent ends. `deadline_ms` is when the parent
    stops waiting. `key` is the id of the key that the task, or the first of its parents, was made with; empty for other
    credentials, and for tasks from before keys were noted. `steps_version` is that of the agent's code with which the
    task began; empty if the agent names none, or whoever made the task did not run it. A task that is `unattended` is
    completed by the first question of its agent, because nobody will answer. `team` is that of the principal that
    made it, or the first of its parents; empty for none. `reservations` are its parts of budgets.
    """

    id: str
    context_id: str
    agent: str
    owner: str
    dialect: str
    mount: str
    created_at: str
    skill: str | None = None
    skills: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    accepted_output_modes: tuple[str, ...] = ()
    traceparent: str | None = None
    earlier: tuple[Message, ...] = ()
    parent: str | None = None
    lineage: tuple[str, ...] = ()
    detached: bool = False
    deadline_ms: int | None = None
    key: str = ""
    steps_version: str = ""
    unattended: bool = False
    continues: bool = False
    team: str = ""
    reservations: tuple[Reservation, ...] = ()


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A task as folded from its log up to and including `seq`.

    `open_artifacts` are the ids of those still being written, `chunked_artifacts` of those that came in chunks. `note`
    is the runner's note to itself, which callers never see. `unreadable`: the store holds bytes of the task that cannot
    be decoded; then id, context, state and time are all that is known of it. `wakes_on_message`: the newest status is a
    sleep that ends with a further message. `steps` counts the steps and sleeps that the agent has recorded. `revised`:
    the log says what the record does not, because an artifact was replaced, or the task went on after a question.
    `waited_ms` is how long the task waited for its caller, in all its questions that were answered.
    """

    head: TaskHead
    seq: int
    status: TaskStatus
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    open_artifacts: tuple[str, ...] = ()
    chunked_artifacts: tuple[str, ...] = ()
    note: dict[str, str] | None = None
    unreadable: bool = False
    wakes_on_message: bool = False
    steps: int = 0
    revised: bool = False
    waited_ms: int = 0

    @property
    def state(self) -> TaskState:
        """The current state."""
        return self.status.state

    @property
    def terminal(self) -> bool:
        """Whether nothing can follow."""
        return self.status.state in TERMINAL
