"""The log of one task as operators read it: its events, the task at a moment, its streams, and what it delegated.

Invariant: pure values. `next_after` is where the next page begins; null on the last one.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.admin.question import Question
from dragoman.admin.tasks import ActingLine, StateWord
from dragoman.dialects.json_bounds import EXACT_MAX
from dragoman.model.events import Event
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import CancelOutcome, Progress, TaskHead, Usage

EventKind = Literal[
    "submitted", "message", "status", "artifact", "delegated", "noted", "titled", "step-begun", "step", "operator"
]
"""The kinds of events."""


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """An event of a task. `at` is null for events that carry no time: they came after the one before them.

    An event of the kind `operator` tells who made the next change, which is the `action`; `text` is why. One of the
    kind `step` is the outcome of a `step`, with its `key` if it has one, that was executed `attempts` times since
    `began`; if it `failed`, `text` is why. One of the kind `step-begun` precedes the execution of a step that must not
    be executed twice. With a status that `wakes`, the task sleeps until then, or until a message if it
    `wakes_on_message`.
    """

    seq: int
    at: str | None
    kind: EventKind
    state: StateWord | None = None
    text: str = ""
    artifact: str | None = None
    agent: str | None = None
    task: str | None = None
    progress: Progress | None = None
    operator: str | None = None
    action: str | None = None
    step: str | None = None
    attempts: int | None = None
    began: str | None = None
    failed: bool = False
    wakes: str | None = None
    wakes_on_message: bool = False
    key: str | None = None


class Timeline(Struct, frozen=True, kw_only=True):
    """Events of a task in their order. More follow if `next_after` is not null: ask again with it as `after`.

    `seq` is the number of the last event of the task. `ended`: no event will follow that one. `pruned`: events after
    the place that was asked for have been deleted, or cannot be read.
    """

    events: tuple[TimelineEntry, ...]
    seq: int
    ended: bool
    pruned: bool = False
    next_after: int | None = None


class ToolPhase(Struct, frozen=True):
    """A call of a tool, by the `id` that its beginning and its end share, as an agent reports it with a status."""

    id: str
    name: str
    phase: Literal["started", "completed", "failed"]


class LogEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event with all that it holds. `at` is null for events that carry no time: they came after the one before them.

    `message` and `artifact` are those of A2A 1.0, without `dropped` characters of very long texts: a message has their
    beginning, an artifact their end, and how the first of them begins in `beginning`. With
    `append` the parts continue the artifact of that id. `agent` and `task` are those that the work was delegated to.
    `operator`, `action` and `reason` are those of an intervention. `step`, `key`, `attempts` and `began` are those of a
    step; its result is in `parts`, or its `failure` is the name of the exception and its text. With a status
    that `wakes`, the task sleeps until then, or until a message if it `wakes_on_message`. A status may be about the
    call of a `tool`.
    """

    seq: int
    at: str | None
    kind: EventKind
    state: StateWord | None = None
    message: Message | None = None
    artifact: Artifact | None = None
    dropped: int = 0
    append: bool = False
    last_chunk: bool = False
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    agent: str | None = None
    task: str | None = None
    operator: str | None = None
    action: Literal["answer", "cancel"] | None = None
    reason: str = ""
    step: str | None = None
    key: str = ""
    attempts: int | None = None
    began: str | None = None
    parts: tuple[Part, ...] = ()
    failure: str | None = None
    wakes: str | None = None
    wakes_on_message: bool = False
    tool: ToolPhase | None = None
    beginning: str = ""


class Recording(Struct, frozen=True, kw_only=True):
    """Events of a task in their order, with their content. More follow if `next_after` is not null.

    `seq` is the number of the last event of the task. `ended`: no event will follow that one. `pruned`: events after
    the place that was asked for have been deleted, or cannot be read.
    """

    events: tuple[LogEvent, ...]
    seq: int
    ended: bool
    pruned: bool = False
    next_after: int | None = None


class RecordedTask(Struct, frozen=True, kw_only=True):
    """A task as the store keeps it: its `head`, and `events` in their order, the first of all pages being number 1.

    Events are arrays that begin with the letter of their kind (`dragoman.model.events`). A file is a part with `file`,
    which is the task's id and the digest of the bytes, as for bytes that are kept outside of the store. The answer to
    a question for credentials has digests in the place of its texts and values, with a secret that nobody keeps.

    `seq` is the number of the last event of the task; more follow if `next_after` is not null. `format` grows when a
    reader would have to change, and `dragoman` is the version that wrote it.
    """

    format: int = 1
    dragoman: str
    head: TaskHead
    events: tuple[Event, ...]
    seq: int
    next_after: int | None = None


class MomentArtifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An artifact of A2A 1.0 as it stood, without its first `dropped` characters and `dropped_parts`.

    It is `open` while it grows. `beginning` is how the first text begins of which characters are left out.
    """

    artifact: Artifact
    open: bool = False
    dropped: int = 0
    dropped_parts: int = 0
    beginning: str = ""


class Moment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task after its event `seq`; the task has `last_seq` events by now. Messages are those of A2A 1.0.

    `at` is when the status was reached. `dropped_artifacts` and `dropped_messages` came before those that are here.
    `state` is null where the first events of the log have been deleted, so that nobody knows how the task stood.
    """

    seq: int
    last_seq: int
    state: StateWord | None
    at: str | None = None
    status_message: Message | None = None
    history: tuple[Message, ...] = ()
    artifacts: tuple[MomentArtifact, ...] = ()
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    dropped_artifacts: int = 0
    dropped_messages: int = 0


Concept = Literal[
    "task", "context", "state", "time", "progress", "message", "question", "text", "file", "data", "tokens", "end"
]
"""What an event of a task may tell its caller, whatever a dialect calls it. `message` is what the agent says of its
work, `question` what it asks, and `text` that of an artifact."""

Learned = Literal["same", "other", "nothing"]
"""Whether a client learns what the event says, something else in its place, or nothing of it."""


class WireFact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client of one dialect learns of one event about a concept.

    The `value` as it is spelled, or its beginning, stands at `path` in a frame, without the envelope of JSON-RPC. Of a
    text that comes with all before it (`so_far`) it is the end.
    """

    concept: Concept
    learned: Learned = "nothing"
    path: str = ""
    value: str = ""
    so_far: bool = False


class WireFrames(Struct, frozen=True, kw_only=True):
    """The frames of one event in one dialect, each as the JSON that a stream carries. Some events have none there.

    The end of a very long frame is left out, and its length is named instead. `ids` are the `id:` of each frame in a
    stream. `facts` are what the client learns, in the order of the concepts, and for each one that the event has.
    The events after it up to `last` are told alike.
    """

    seq: int
    frames: tuple[str, ...]
    last: int = 0
    ids: tuple[str, ...] = ()
    facts: tuple[WireFact, ...] = ()


class Wire(Struct, frozen=True, kw_only=True):
    """The same events as the streams of several dialects carry them, by the dialect's name.

    A dialect without streams has the answer to a client that asks for the task after each change of its status.
    """

    dialects: dict[str, tuple[WireFrames, ...]]
    seq: int
    ended: bool
    next_after: int | None = None


class WireView(Struct, frozen=True, kw_only=True):
    """What the clients of one dialect can learn of a task, and what they can't.

    `sentence` says it in words, from `facts`: each way in which a concept has been told, or has not. Places in lists
    are left out of their paths. `request` is one by which a client of the dialect begins such a task, empty if it
    cannot, and `answer` the head of the answer, both as HTTP/1.1 spells them. It is a stream if the dialect `streams`.
    """

    sentence: str
    streams: bool
    facts: tuple[WireFact, ...]
    request: str
    answer: str


class WireSummary(Struct, frozen=True, kw_only=True):
    """What clients of several dialects can learn of a task up to its event `seq`, by the dialect's name."""

    dialects: dict[str, WireView]
    seq: int


class UpstreamWord(Struct, frozen=True, kw_only=True):
    """The last word of an agent of another server on its task.

    `known` is false if the state was not noted: then the state of the tree's task is that of the task that was sent on.
    The times of the first and the last status are those of the other server's clock, null if it sends none. All other
    times are this server's. `lost_at` is when the connection broke, null if something has come since. Nothing was heard
    after `followed_until`, when the connection broke or the task that was sent on ended; null as long as that task is
    open, and if the end was heard. `cancel` is the answer to a cancel that followed ours, null if the run sent none.
    `differs`: the state does not fit that of the task that was sent on. `dragoman`: the card of the other server is a
    Dragoman's, so that the tasks that it delegated are in its own tree; null if its card is not known here.
    """

    known: bool
    first_status_at: str | None = None
    last_status_at: str | None = None
    lost_at: str | None = None
    followed_until: str | None = None
    cancel: CancelOutcome | None = None
    differs: bool = False
    dragoman: bool | None = None


class AttemptLine(Struct, frozen=True, kw_only=True):
    """A member of an agent's pool that has not carried out a task: when it was tried, the `reason` for programs (as in
    docs/upstreams.md), and `why` in words."""

    member: str
    at: str
    reason: str
    why: str = ""


class TreeTask(Struct, frozen=True, kw_only=True):
    """A task of a tree of delegations. `ended_at` is null while it is open.

    A task that was sent to an agent of another server has that server's `url`, if the agent is served here, and the id
    that it has there. If it is not in this store, too, it is `elsewhere`, and `upstream` has what the other server said
    of it: `state` is its own, and `ended_at` is when this server heard of its end. `acting` says for whom the task
    called other servers, where tokens were exchanged.

    If the agent has a pool, `member` is the one that has the task, and `history_at` the one at which the conversation
    was before, if that is another. `attempts`, of the task that was sent, are the members that have not carried it out.
    """

    id: str
    parent: str | None
    agent: str
    state: StateWord
    created_at: str
    ended_at: str | None = None
    url: str | None = None
    elsewhere: bool = False
    upstream: UpstreamWord | None = None
    acting: tuple[ActingLine, ...] = ()
    member: str = ""
    history_at: str = ""
    attempts: tuple[AttemptLine, ...] = ()


class Tree(Struct, frozen=True, kw_only=True):
    """A task, those that it delegated, and so on, each after its parent. `more`: there are others beyond the limit."""

    tasks: tuple[TreeTask, ...]
    more: bool = False


class LogPruned(Struct, frozen=True):
    """Events of a task up to `seq` have been deleted. `state` is that of the task."""

    seq: int
    state: StateWord


class LogEnded(Struct, frozen=True):
    """No event follows. `state` is null if the task has been deleted before its end was read."""

    state: StateWord | None


class LogQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events after seq `after`, at most `limit`."""

    after: Annotated[int, Meta(ge=0, le=EXACT_MAX)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class MomentQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The task after its event `seq`; as it stands if that is left out."""

    seq: Annotated[int, Meta(ge=1, le=EXACT_MAX)] | None = None


WIRE_DIALECTS = "1.0,0.3,beeos,kaos,evoai,protoagent"
"""The dialects with clients of their own."""


class WireQuery(LogQuery, frozen=True, kw_only=True):
    """The same events in `dialects`, which are names with commas between them.

    Unless `each` is wanted, chunks of a text that follow each other and are told alike are one, and so are events that
    no caller sees.
    """

    dialects: str = WIRE_DIALECTS
    each: bool = True


class WireSummaryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same task in `dialects`, which are names with commas between them."""

    dialects: str = WIRE_DIALECTS


AFTER = ("after", "next_after")

READ_LOG = Question(
    name="readLog",
    of_teams=True,
    path="/tasks/{id}/log",
    summary="Read the events of a task in their order.",
    given=LogQuery,
    answer=Timeline,
    events={"event": TimelineEntry, "pruned": LogPruned, "end": LogEnded},
    action="tasks.log",
    stored=True,
    cursor=AFTER,
)
RECORD_TASK = Question(
    name="recordTask",
    of_teams=True,
    path="/tasks/{id}/record",
    summary="Read the events of a task as the store keeps them, for a replay. Files and secrets are there by digest.",
    given=LogQuery,
    answer=RecordedTask,
    action="tasks.record",
    stored=True,
    cursor=AFTER,
)
READ_CONTENT = Question(
    name="readContent",
    of_teams=True,
    path="/tasks/{id}/content",
    summary="Read the events of a task with all that they hold.",
    given=LogQuery,
    answer=Recording,
    action="tasks.content",
    cursor=AFTER,
)
READ_MOMENT = Question(
    name="readMoment",
    of_teams=True,
    path="/tasks/{id}/moment",
    summary="Read one task as it stands, or as it stood after one of its events.",
    given=MomentQuery,
    answer=Moment,
    action="tasks.content",
    shared=True,
)
READ_TREE: Question[None, Tree] = Question(
    name="readTree",
    of_teams=True,
    path="/tasks/{id}/tree",
    summary="Read the task with those that were delegated from it.",
    answer=Tree,
    action="tasks.tree",
    shared=True,
)
READ_WIRE = Question(
    name="readWire",
    of_teams=True,
    path="/tasks/{id}/wire",
    summary="Read the events of a task as the streams of several dialects carry them.",
    given=WireQuery,
    answer=Wire,
    action="tasks.wire",
    shared=True,
    cursor=AFTER,
)
SUMMARIZE_WIRE = Question(
    name="summarizeWire",
    of_teams=True,
    path="/tasks/{id}/wire/summary",
    summary="Say what clients of several dialects can learn of a task, and what they can't.",
    given=WireSummaryQuery,
    answer=WireSummary,
    action="tasks.wire",
    shared=True,
)
