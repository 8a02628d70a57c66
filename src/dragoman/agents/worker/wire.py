"""The messages between workers and the server, as JSON (docs/workers.md).

Invariant: messages, artifacts and tasks are those of A2A 1.0; the keys around them are in snake case. Unknown keys are
ignored, so that either side may be newer.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from dragoman.dialects.json_bounds import MAX_TEXT
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import STATES as KNOWN_STATES
from dragoman.model.task import ModelUsage, Task, TaskState, Usage

WAIT_S_MAX = 30.0
"""Longest that a call may wait for news: proxies close connections that are silent for 60 s."""

_Seconds = Annotated[float, Meta(ge=0, le=WAIT_S_MAX)]
_Count = Annotated[int, Meta(ge=0)]


class WorkerModelTokens(Struct, omit_defaults=True):
    """The part of the tokens that one model used."""

    model: str
    input: _Count = 0
    output: _Count = 0
    total: _Count | None = None

    def usage(self) -> ModelUsage:
        """Convert to the model's ModelUsage; `total` defaults to the sum."""
        total = self.input + self.output if self.total is None else self.total
        return ModelUsage(self.model, self.input, self.output, total)


class WorkerTokens(Struct, omit_defaults=True):
    """Tokens used since the last report. `models` says which model used which part of them."""

    input: _Count = 0
    output: _Count = 0
    total: _Count | None = None
    models: tuple[WorkerModelTokens, ...] = ()

    def usage(self) -> Usage:
        """Convert to the model's Usage; `total` defaults to the sum."""
        models = tuple(each.usage() for each in self.models)
        total = self.input + self.output if self.total is None else self.total
        return Usage(self.input, self.output, total, models)


class WorkerMessage(Struct):
    """A text or message, as parts. On the wire, a plain string stands for one text part."""

    parts: tuple[Part, ...]


Words = str | WorkerMessage | None

STATES = {
    **{state.value: state for state in KNOWN_STATES},
    **{state.removeprefix("TASK_STATE_").lower().replace("_", "-"): state for state in KNOWN_STATES},
}
"""States by the names of A2A 1.0, and by their common names: `input-required`."""


def parts_in(words: Words) -> tuple[Part, ...]:
    """The parts that the words stand for."""
    if words is None:
        return ()
    return (Part(text=words),) if isinstance(words, str) else words.parts


class TakeRequest(Struct, omit_defaults=True):
    """`lease`: give me a task. `history`: how many earlier messages of its context to send along.

    `replays`: I repeat my questions from the first, and expect the recorded answers.
    """

    worker: str = ""
    wait_s: _Seconds = 0.0
    history: Annotated[int, Meta(ge=0, le=1000)] = 0
    replays: bool = False


class LeasedTask(Struct):
    """The answer to `lease`: a task and the request that created it.

    `message` is the one that created the task; `metadata` is that of its request. `note` holds the notes of earlier
    workers. `max_text` is how many characters a text in a report may have.
    """

    lease: str
    expires_s: float
    task: Task
    message: Message
    history: tuple[Message, ...] = ()
    skill: str | None = None
    skills: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    principal: str = ""
    traceparent: str | None = None
    lineage: tuple[str, ...] = ()
    note: dict[str, str] | None = None
    max_text: int = MAX_TEXT


class HeartbeatRequest(Struct, omit_defaults=True):
    """`heartbeat`: I still have the task. `answers`: how many answers I have seen."""

    lease: str
    wait_s: _Seconds = 0.0
    answers: _Count = 0


class HeartbeatReply(Struct):
    """The answer to `heartbeat`. With `cancel`, the worker stops; `answers` are those it has not seen."""

    cancel: bool
    expires_s: float
    answers: tuple[Message, ...] = ()


class Steps(Struct):
    """The progress of the work."""

    current: int
    total: int


class StatusReport(Struct, omit_defaults=True):
    """`update`: a report. `number` counts a lease's updates and artifacts, so that a repeated one counts once."""

    lease: str
    state: str = "working"
    message: Words = None
    progress: Steps | None = None
    metadata: dict[str, Any] | None = None
    usage: WorkerTokens | None = None
    number: _Count = 0


class GivenArtifact(Struct, omit_defaults=True, rename="camel"):
    """An Artifact (A2A 1.0 §4.1.9) whose id may be missing."""

    parts: tuple[Part, ...]
    artifact_id: str = ""
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()

    def artifact(self) -> Artifact:
        """Convert to the model's Artifact."""
        return Artifact(**asdict(self))


def encode_artifact(artifact: Artifact) -> GivenArtifact:
    """Convert an artifact of the model, to be sent."""
    return GivenArtifact(**asdict(artifact))


class ArtifactReport(Struct, omit_defaults=True):
    """`artifact`: an artifact or, with `append`, an addition to its end. `number` as in `update`."""

    lease: str
    artifact: GivenArtifact
    append: bool = False
    last_chunk: bool | None = None
    usage: WorkerTokens | None = None
    number: _Count = 0


class AskRequest(Struct, omit_defaults=True):
    """`ask`: put a question to the caller and wait for the answer. `question` counts a lease's questions from 1.

    `note` is stored for a later worker of the task; a note replaces an earlier one with the same name.
    """

    lease: str
    message: Words = None
    auth: bool = False
    question: _Count = 0
    wait_s: _Seconds = 0.0
    note: dict[str, str] | None = None


class AskReply(Struct, omit_defaults=True):
    """The answer to `ask`, None while the caller has not answered, and the `metadata` of its request."""

    answer: Message | None
    expires_s: float
    metadata: dict[str, Any] | None = None


class DelegateRequest(Struct, omit_defaults=True):
    """`delegate`: give a task to another agent of the server. `delegation` counts a lease's delegations from 1."""

    lease: str
    agent: str
    message: Words = None
    skill: str | None = None
    context_id: str | None = None
    timeout_s: Annotated[float, Meta(gt=0)] | None = None
    progress: bool = False
    asks: Literal["pass", "raise"] = "pass"
    detach: bool = False
    delegation: _Count = 0
    wait_s: _Seconds = 0.0


class DelegationOutcome(Struct, omit_defaults=True):
    """The outcome of a delegation: `state` completed, or how it failed. No `task_id`: no task was created."""

    agent: str
    task_id: str
    state: TaskState
    timestamp: str
    message: Message | None = None
    artifacts: tuple[Artifact, ...] = ()
    usage: WorkerTokens | None = None


class DelegateReply(Struct):
    """The answer to `delegate`; None while there is no outcome."""

    outcome: DelegationOutcome | None
    expires_s: float


class CompletionReport(Struct, omit_defaults=True):
    """`complete`: the task is done."""

    lease: str
    artifacts: tuple[GivenArtifact, ...] = ()
    usage: WorkerTokens | None = None


class FailureReport(Struct, omit_defaults=True):
    """`fail`: the task cannot be done; the message is for the caller."""

    lease: str
    message: Words = None
    usage: WorkerTokens | None = None


class ReleaseRequest(Struct):
    """`release`: I give the task back."""

    lease: str


class PastRequest(Struct, omit_defaults=True):
    """`history`: earlier messages of the context. `references`: the tasks that the message names."""

    lease: str
    limit: Annotated[int, Meta(ge=0, le=1000)] = 100


class HistoryReply(Struct):
    """The answer to `history`."""

    messages: tuple[Message, ...]


class ReferencesReply(Struct):
    """The answer to `references`."""

    tasks: tuple[Task, ...]


class EmptyReply(Struct):
    """An empty answer: the call was accepted."""
