"""The messages between workers and the server, as JSON (docs/workers.md).

Invariant: messages, artifacts and tasks are those of A2A 1.0; the keys around them are in snake case. Unknown keys are
ignored, so that either side may be newer.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from dragoman.dialects.json_bounds import MAX_TEXT
from dragoman.dialects.json_fields import INT32_MAX
from dragoman.engine.words import SLEEP_MS_MAX
from dragoman.model.events import Event
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import STATES as KNOWN_STATES
from dragoman.model.task import ModelUsage, Task, TaskState, Usage
from dragoman.store.state import StateKind

WAIT_S_MAX = 30.0
"""Longest that a call may wait for news: proxies close connections that are silent for 60 s."""

_Seconds = Annotated[float, Meta(ge=0, le=WAIT_S_MAX)]
_Count = Annotated[int, Meta(ge=0)]

_Ordinal = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""The number of a report or an event. PostgreSQL has 32 bits for it."""

_Number = Annotated[int, Meta(ge=0, le=1_000_000)]

TOOK_MS_MAX = 1 << 48
"""The longest time of a step: thousands of years."""


class StepFault(Struct):
    """The failure of a step: the name of its kind, and a text."""

    type: str
    text: str = ""


class WorkerModelTokens(Struct, omit_defaults=True):
    """The part of the tokens that one model used. `cached` are those of `input` that a cache had; `upstream` is the
    member of the agent's pool, and `uncertain` counts calls whose tokens nobody knows."""

    model: str
    input: _Count = 0
    output: _Count = 0
    total: _Count | None = None
    cached: _Count = 0
    upstream: str = ""
    uncertain: _Count = 0

    def usage(self) -> ModelUsage:
        """Convert to the model's ModelUsage; `total` defaults to the sum."""
        total = self.input + self.output if self.total is None else self.total
        return ModelUsage(self.model, self.input, self.output, total, self.cached, self.upstream, self.uncertain)


class WorkerTokens(Struct, omit_defaults=True):
    """Tokens used since the last report. `models` says which model used which part of them, and `cached` are those of
    `input` that a cache had."""

    input: _Count = 0
    output: _Count = 0
    total: _Count | None = None
    models: tuple[WorkerModelTokens, ...] = ()
    cached: _Count = 0

    def usage(self) -> Usage:
        """Convert to the model's Usage; `total` defaults to the sum."""
        models = tuple(each.usage() for each in self.models)
        total = self.input + self.output if self.total is None else self.total
        return Usage(self.input, self.output, total, models, self.cached)


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


class RecordedEvent(Struct, array_like=True):
    """An event of a task's log, with its seq."""

    seq: int
    event: Event


class TakeRequest(Struct, omit_defaults=True):
    """`lease`: takes a task, or waits for one for `wait_s`. A worker that waits counts as a sign of life.

    `history` is how many earlier messages of the conversation come along. With `replays` the worker repeats its
    questions, steps and delegations from the first one, in the same order, and gets the recorded answers; its reports
    are dropped up to the last recorded one. With `log` it compares them by itself, with the log of the task: a server
    that does not know this compares them for it. `steps_version` names the version of its code: the first worker of a
    task decides with which one the task begins, and no worker that names another one gets it later.
    """

    worker: str = ""
    wait_s: _Seconds = 0.0
    history: Annotated[int, Meta(ge=0, le=1000)] = 0
    replays: bool = False
    log: bool = False
    steps_version: str = ""


class LeasedTask(Struct):
    """The answer to `lease`: a task and the request that created it.

    `message` is the one that created the task; `metadata` is that of its request. `note` holds the notes of earlier
    workers. `max_text` is how many characters a text in a report may have. `recorded` is the seq of the log up to which
    a worker replays by itself; it is missing if nobody has worked on the task before. Such a worker hears that the
    server `keeps_state`. `headers` are those of the caller's requests that the agent is given, by the ids of their
    messages, as far as this server has them; they are missing if the agent lists none.
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
    recorded: int | UnsetType = UNSET
    keeps_state: bool | UnsetType = UNSET
    headers: dict[str, dict[str, str]] | UnsetType = UNSET


class HeartbeatRequest(Struct, omit_defaults=True):
    """`heartbeat`: renews the lease for `expires_s`. The answer comes when there is news, or after `wait_s`, half of
    `expires_s` at most.

    `answers` is how many of the caller's answers under this lease the worker has seen.
    """

    lease: str
    wait_s: _Seconds = 0.0
    answers: _Count = 0


class HeartbeatReply(Struct):
    """The answer to `heartbeat`. With `cancel`, the worker stops; `answers` are those it has not seen.

    `headers` are as in `LeasedTask`.
    """

    cancel: bool
    expires_s: float
    answers: tuple[Message, ...] = ()
    headers: dict[str, dict[str, str]] | UnsetType = UNSET


class Steps(Struct):
    """The progress of the work."""

    current: int
    total: int


class StatusReport(Struct, omit_defaults=True):
    """`update`: reports from within the work, or ends the task with a terminal `state`; `reason` says why, for
    programs.

    `message` is a text or `{"parts": […]}`, `progress` is `{"current": 1, "total": 3}`, and `title` names the task in
    one line for operators; the last one counts. `number` counts a lease's updates and artifacts together, from 1: a
    number that has arrived counts once, so a request whose answer was lost can be repeated, at any server of the store.
    One that is lower than the newest counts as arrived, so numbered requests are sent one after the other. `confirmed`
    is the newest number that was answered, also in other actions, and `heard` the `messageId` of the last answer, or
    the `task_id` of the last outcome of `delegate`, that the worker was given: if a failover has lost one of them, the
    lease is over, and the task does not continue without it. With the state `input-required` the caller is asked, and
    the answer comes with a heartbeat. `usage` has the tokens used since the last report: `input`, `output`, `cached`
    for input tokens from a cache, and in `models` the part of each `model`. Terminal states are `completed`, `failed`,
    `rejected` and `canceled`.
    """

    lease: str
    state: str = "working"
    message: Words = None
    progress: Steps | None = None
    metadata: dict[str, Any] | None = None
    usage: WorkerTokens | None = None
    number: _Ordinal = 0
    reason: str = ""
    title: str | None = None
    confirmed: _Ordinal = 0
    heard: str = ""


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
    """`artifact`: emits an artifact or, with `append`, adds parts to the end of the artifact of that `artifactId`.

    Chunks of an earlier lease stay until this lease reports that artifact; then they are replaced, even with `append`,
    except for what the caller had before its last answer. `number`, `confirmed`, `heard` and `usage` are as in
    `update`.
    """

    lease: str
    artifact: GivenArtifact
    append: bool = False
    last_chunk: bool | None = None
    usage: WorkerTokens | None = None
    number: _Ordinal = 0
    confirmed: _Ordinal = 0
    heard: str = ""


class AskRequest(Struct, omit_defaults=True):
    """`ask`: puts a question to the caller (`input-required`, with `auth` `auth-required`), and waits for the answer
    for `wait_s`. The worker repeats the request until there is one, and its heartbeats continue meanwhile.

    `question` counts a lease's questions from 1; the same number is the same question. `note` is kept and comes back
    with the next `lease` of the task; a note replaces an earlier one with the same name. `place` is that of the
    question, of a worker that replays by itself.
    """

    lease: str
    message: Words = None
    auth: bool = False
    question: _Count = 0
    wait_s: _Seconds = 0.0
    note: dict[str, str] | None = None
    place: str | None = None
    confirmed: _Ordinal = 0
    heard: str = ""


class AskReply(Struct, omit_defaults=True):
    """The answer to `ask`, None while the caller has not answered, and the `metadata` of its request.

    `headers` are as in `LeasedTask`.
    """

    answer: Message | None
    expires_s: float
    metadata: dict[str, Any] | None = None
    headers: dict[str, dict[str, str]] | UnsetType = UNSET


class DelegateRequest(Struct, omit_defaults=True):
    """`delegate`: gives a task to another agent of the server, and waits for its outcome for `wait_s`.

    `delegation` counts a lease's delegations from 1; the same number is the same delegation, and a later worker gets
    the earlier outcomes under the same numbers. Questions of the other agent go to the caller of the task, unless
    `asks` is `raise`. Until the caller has answered, the task accepts no other report: a request that makes one waits,
    and is refused with 503 after 15 s. The output of the other agent comes when it is whole.
    """

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
    confirmed: _Ordinal = 0
    heard: str = ""


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


class StepRequest(Struct, omit_defaults=True):
    """`step`: asks whether a step has to be done, or what is recorded of it.

    `number` counts a lease's steps, sleeps and requests of `memory` together, from 1; a later worker must come to the
    same ones. A worker that replays by itself names the `place` instead. `name` and `key` are compared with what is
    recorded. With `at_most_once` the beginning of the step is recorded, too. If a worker has begun it, and nobody knows
    whether it did the work, the task fails with the reason `step_uncertain`; with `uncertain` the answer says how often
    it was begun, and the worker reports a result, or repeats the request with that number to do the work again.
    """

    lease: str
    name: str
    number: _Number = 0
    place: str = ""
    key: str = ""
    at_most_once: bool = False
    uncertain: _Count | None = None
    confirmed: _Ordinal = 0
    heard: str = ""


class StepResult(Struct, omit_defaults=True):
    """`step-result`: records the outcome of a step that was executed `attempts` times, for `took_ms` in all. The answer
    comes once it is on disk. If a result is recorded already, that one counts, and is the answer.

    The outcome is a `result`, which is any JSON, or `parts` in a `form` that the agent's own reader knows, or a
    `failure`. `usage` counts once. A value that costs nothing to make, such as the present time, needs no `step`
    before.
    """

    lease: str
    name: str
    number: _Number = 0
    place: str = ""
    key: str = ""
    result: Any = UNSET
    parts: tuple[Part, ...] | None = None
    form: str = "parts"
    failure: StepFault | None = None
    attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 1
    took_ms: Annotated[int, Meta(ge=0, le=TOOK_MS_MAX)] = 0
    usage: WorkerTokens | None = None
    confirmed: _Ordinal = 0
    heard: str = ""


class StepReply(Struct, omit_defaults=True):
    """The answer to `step` and `step-result`: the recorded outcome; or `run` it, or decide: it was begun `uncertain`
    times. `key` is for the other side, to tell a repetition."""

    key: str
    run: bool = False
    result: Any = UNSET
    parts: tuple[Part, ...] | None = None
    form: str = ""
    failure: StepFault | None = None
    attempts: int = 1
    uncertain: int = 0


class SleepRequest(Struct, omit_defaults=True):
    """`sleep`: lets nobody work on the task for some `seconds`, or `until` a time, at most ten years.

    The lease ends with it; the worker that gets the task later comes to the same `sleep`, which is over then. `number`
    is as in `step`. With `wake_on_message` a message of the caller ends the sleep, too, and the next question gets it.
    With `keep` the worker keeps its lease, sends heartbeats and waits by itself: for short sleeps, and for those beside
    other work. If the answer was lost, the repeated request is refused with 409: the task sleeps.
    """

    lease: str
    number: _Number = 0
    place: str = ""
    seconds: Annotated[float, Meta(gt=0, le=SLEEP_MS_MAX / 1000)] | None = None
    until: datetime | None = None
    wake_on_message: bool = False
    keep: bool = False
    confirmed: _Ordinal = 0
    heard: str = ""


class SleepReply(Struct):
    """The answer to `sleep`: it is `over`; or the task sleeps for `left_s` more, and the lease has ended, unless the
    worker keeps the task."""

    until: str
    over: bool
    left_s: float


StateReach = Literal["conversation", "caller", "all"]
"""The owner of a state: the task's conversation, its caller in all conversations, or all callers of the agent."""


class MemoryRequest(Struct, omit_defaults=True):
    """`memory`: reads or writes what the agent remembers `of` the `conversation`, of the `caller` in all conversations,
    or of `all` callers.

    `get` and `delete` need a `key`, `set` also a `value`, which is any JSON; `list` has `prefix`, `limit` and `cursor`.
    `number` is as in `step`: a later worker gets the recorded answers, and nothing is written again. `ttl_s` forgets
    the value after so many seconds; `if_version` writes only over that version, 0 if there is none.
    """

    lease: str
    verb: Literal["get", "set", "delete", "list"]
    number: _Number = 0
    place: str = ""
    of: StateReach = "conversation"
    key: str = ""
    value: Any = UNSET
    if_version: int | None = None
    ttl_s: float | None = None
    prefix: str = ""
    limit: int = 100
    cursor: str | None = None
    confirmed: _Ordinal = 0
    heard: str = ""


class RememberedItem(Struct):
    """A value that is remembered, with its key and its version."""

    key: str
    value: Any
    version: int


class MemoryReply(Struct, omit_defaults=True):
    """The answer to `memory`: the `value` of `get`, with version 0 if there is none; the `version` of `set`; the
    `items` of `list`, with a `cursor` if there may be more. `failure` is MemoryFull or MemoryChanged."""

    value: Any = UNSET
    version: int | UnsetType = UNSET
    items: tuple[RememberedItem, ...] | UnsetType = UNSET
    cursor: str | None = None
    failure: StepFault | None = None


class StateListing(Struct, omit_defaults=True):
    """The next `limit` entries whose keys begin with `prefix`, after the key `after`."""

    prefix: str = ""
    limit: Annotated[int, Meta(ge=0, le=10_000)] = 100
    after: str | None = None
    descending: bool = False


class StateValue(Struct, omit_defaults=True):
    """An entry of the stored state, which is kept for `left_ms`; None: until it is deleted."""

    key: str
    value: bytes
    left_ms: Annotated[int, Meta(ge=1)] | None = None
    version: int = 0


class StateChanges(Struct, omit_defaults=True):
    """Changes that are made together: see `store.state.StateWrite`."""

    puts: tuple[StateValue, ...] = ()
    deletes: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    if_versions: dict[str, int] = {}
    act: str | None = None
    max_bytes: int | None = None


class StateRequest(Struct, omit_defaults=True):
    """`state`: read or write the agent's stored state, for workers of the package's own version or a newer one.

    `get` entries by their keys, or `list` them, or `write`.
    """

    lease: str
    kind: StateKind
    of: StateReach = "conversation"
    get: tuple[str, ...] = ()
    list: StateListing | None = None
    write: StateChanges | None = None


class ChangedState(Struct):
    """The entry that has another version than a write expects: `version`, 0 if there is none."""

    key: str
    version: int


class FullState(Struct):
    """A write would need so many bytes of the `max_bytes` that a scope may have."""

    max_bytes: int
    needed: int


class StateReply(Struct, omit_defaults=True):
    """The answer to `state`: the `entries` that one answer holds.

    `left` are the keys of `get` that were not looked at, and there is `more` to `list`. `version` is that of what was
    written, unless the write was refused because an entry has `changed`, or the scope is `full`.
    """

    entries: tuple[StateValue, ...] = ()
    left: tuple[str, ...] = ()
    more: bool = False
    version: int = 0
    changed: ChangedState | None = None
    full: FullState | None = None


class CompletionReport(Struct, omit_defaults=True):
    """`complete`: ends the task as done, with these `artifacts`. It is answered with the task once that is on disk,
    also when it is repeated.
    """

    lease: str
    artifacts: tuple[GivenArtifact, ...] = ()
    usage: WorkerTokens | None = None
    confirmed: _Ordinal = 0
    heard: str = ""


class FailureReport(Struct, omit_defaults=True):
    """`fail`: ends the task as failed; the `message` is for the caller, and the `reason` for programs. It is answered
    as `complete` is.
    """

    lease: str
    message: Words = None
    usage: WorkerTokens | None = None
    reason: str = ""
    confirmed: _Ordinal = 0
    heard: str = ""


Confirming = (
    StatusReport
    | ArtifactReport
    | AskRequest
    | DelegateRequest
    | StepRequest
    | StepResult
    | SleepRequest
    | MemoryRequest
    | CompletionReport
    | FailureReport
)
"""The requests that say what a worker knows to be committed."""


class ReleaseRequest(Struct):
    """`release`: gives the task back, for another worker."""

    lease: str


class PastRequest(Struct, omit_defaults=True):
    """`history`: reads the newest `limit` messages of the conversation before this task.

    `references` reads the tasks that the message refers to.
    """

    lease: str
    limit: Annotated[int, Meta(ge=0, le=1000)] = 100


class LogRequest(Struct, omit_defaults=True):
    """`log`: what is recorded of the task after a seq, with its artifacts or without."""

    lease: str
    after: _Ordinal = 0
    artifacts: bool = False


class LogReply(Struct):
    """The answer to `log`: the events up to `seq`, for workers of the package's own version or a newer one."""

    events: tuple[RecordedEvent, ...]
    seq: int


class HistoryReply(Struct):
    """The answer to `history`."""

    messages: tuple[Message, ...]


class ReferencesReply(Struct):
    """The answer to `references`."""

    tasks: tuple[Task, ...]


class EmptyReply(Struct):
    """An empty answer: the call was accepted."""


class ArtifactReply(Struct):
    """The answer to `artifact`: the id of the artifact, which the server chose if the report has none."""

    artifact_id: str


class ActionRow(Struct, frozen=True):
    """An action of the worker API: the struct of its body, and those that its answer may be.

    `empty` says when the answer has no body. `summary` speaks to those who write workers; an action without one is for
    workers of this package alone.
    """

    request: type[Struct]
    answer: type[Struct] | tuple[type[Struct], ...] | None = None
    summary: str = ""
    empty: str = ""


ACTIONS: Mapping[str, ActionRow] = MappingProxyType(
    {
        "lease": ActionRow(TakeRequest, LeasedTask, "Take a task", "There was none within `wait_s`: ask again."),
        "heartbeat": ActionRow(HeartbeatRequest, HeartbeatReply, "Keep the task, and hear what is new about it"),
        "update": ActionRow(StatusReport, (Task, EmptyReply), "Report from within the work, or end the task"),
        "artifact": ActionRow(ArtifactReport, ArtifactReply, "Give out an artifact, or add to one"),
        "ask": ActionRow(AskRequest, AskReply, "Ask the caller, and wait for the answer"),
        "delegate": ActionRow(DelegateRequest, DelegateReply, "Give a task to another agent, and wait for its outcome"),
        "step": ActionRow(StepRequest, StepReply, "Ask whether a step has to be done, or what is recorded of it"),
        "step-result": ActionRow(StepResult, StepReply, "Record what came of a step"),
        "sleep": ActionRow(SleepRequest, SleepReply, "Let the task rest"),
        "memory": ActionRow(MemoryRequest, MemoryReply, "Read or write what the agent remembers"),
        "state": ActionRow(StateRequest, StateReply),
        "complete": ActionRow(CompletionReport, Task, "End the task: it is done"),
        "fail": ActionRow(FailureReport, Task, "End the task: it has failed"),
        "release": ActionRow(ReleaseRequest, None, "Give the task to another worker", "It was given back."),
        "history": ActionRow(PastRequest, HistoryReply, "Read the conversation before the task"),
        "references": ActionRow(PastRequest, ReferencesReply, "Read the tasks that the message refers to"),
        "log": ActionRow(LogRequest, LogReply),
    }
)
"""All actions."""
