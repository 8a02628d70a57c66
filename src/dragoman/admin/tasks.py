"""Tasks as operators list, show and change them, whoever owns them.

Invariant: pure values. A filter that is sent has only fields that are known here.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from dragoman.admin.question import Column, Question
from dragoman.model.acting_chain import Chain
from dragoman.model.errors import InvalidParams
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message
from dragoman.model.parts import TEXT_CHARACTERS
from dragoman.model.task import TERMINAL, Phase, Progress, TaskState, Usage

StateWord = Literal[
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"
]


STATES_BY_WORD = {word: state for state, word in SPELLED.items()}


def state_word(state: TaskState) -> StateWord:
    """The word of operators for a state."""
    return SPELLED[state]  # type: ignore[return-value]  # the words of StateWord


SearchText = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS)]


Seconds = Annotated[float, Meta(ge=0, le=1e10)]


TaskOrder = Literal["newest-changed", "oldest-changed", "newest-created", "oldest-created", "longest-running"]
"""The order of a list of tasks. `longest-running` lists those that are submitted or working, the first made first."""


TeamName = Annotated[str, Meta(min_length=1, max_length=64)]
"""The id of a team."""


MetadataWords = Annotated[str, Meta(min_length=1, max_length=1000)]


class TaskFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks that fit every field that is set. Ages are those of the status, in seconds.

    `team` is that of the `principal`. `key` is the id of the key that the task was made with, which tasks from before
    keys were noted do not have. `text` is contained in the first 200 characters of the first message, or in the title
    that was given; the case of the letters a to z does not count. `sleeping` tasks wait for a time at which their
    agents go on. `metadata` is a name in the metadata of the request that made the task, or `name=value`; a value that
    is no text is spelled as JSON. `longer_than_s` and `shorter_than_s` bound the time from its making until its end, or
    until now.
    """

    state: StateWord | None = None
    agent: str | None = None
    team: TeamName | None = None
    principal: str | None = None
    key: str | None = None
    context: str | None = None
    dialect: str | None = None
    text: SearchText | None = None
    sleeping: bool | None = None
    metadata: MetadataWords | None = None
    longer_than_s: Seconds | None = None
    shorter_than_s: Seconds | None = None
    older_than_s: Seconds | None = None
    newer_than_s: Seconds | None = None

    @property
    def empty(self) -> bool:
        """Whether every task fits."""
        return all(getattr(self, name) is None for name in TaskFilter.__struct_fields__)


class TaskLine(Struct, frozen=True, kw_only=True):
    """A task in a list. `status_at` is when its status last changed, `age_s` how many seconds ago that was.

    `state` is what its caller sees; for `phase` see `model.task.Phase`. `holder` is the process that runs it, if one
    does. `title` is the one that its agent, or else its caller, gave it, or else how its message begins: one line of at
    most 120 characters. `text` begins the first message. `unreadable`: the store holds bytes of the task that cannot be
    decoded. A list shows that only if its head is among them. `key` is the id of the key that the task was made with;
    null for other credentials, and for tasks from before keys were noted.
    """

    id: str
    state: StateWord
    phase: Phase
    agent: str
    principal: str
    context: str
    dialect: str
    title: str
    text: str
    created_at: str
    status_at: str
    age_s: float
    holder: str | None = None
    cancel_requested: bool = False
    parent: str | None = None
    unreadable: bool = False
    key: str | None = None


class TaskLines(Struct, frozen=True, kw_only=True):
    """A page of tasks, newest status first unless another order was asked for. `next_cursor` is empty on the last page.

    With `key`, `dialect`, `text`, `sleeping`, `metadata` or a duration, which no index answers, the newest made are
    first. In the order of
    creation a page may have fewer tasks than asked for, or none, although more follow. `total` counts the tasks on all
    pages; it is null in that order and with `older_than_s`.
    """

    tasks: tuple[TaskLine, ...]
    next_cursor: str = ""
    total: int | None = None


class ArtifactLine(Struct, frozen=True, kw_only=True):
    """An artifact of a task, without its content."""

    id: str
    name: str | None
    parts: int
    open: bool


class ActingLine(Struct, frozen=True, kw_only=True):
    """A token was exchanged, with which a server acts for a caller: see `model.acting_chain.ActingLink`.

    `told`: it came with the message, as another server or the task that delegated this one tells it. The others are
    exchanges of this task.
    """

    subject: str
    actors: tuple[str, ...]
    client: str
    issuer: str
    audience: str
    scope: str
    at: str
    told: bool


def acting_lines(chain: Chain, *, told: bool) -> tuple[ActingLine, ...]:
    """The links of a chain, for operators."""
    return tuple(ActingLine(**asdict(link), told=told) for link in chain)


class TaskReport(Struct, frozen=True, kw_only=True):
    """All that an operator sees of one task. `text` begins the first message, `status_text` that of the status.

    `trace` is the id of the trace that the task belongs to, as it came with the call or was made by the server.
    `wakes_at` is when a task wakes that sleeps. `acting` says who acts for whom, where tokens are exchanged.
    """

    task: TaskLine
    mount: str
    seq: int
    epoch: int
    skill: str | None
    text: str
    status_text: str
    messages: int
    artifacts: tuple[ArtifactLine, ...]
    webhooks: int
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    trace: str | None = None
    wakes_at: str | None = None
    acting: tuple[ActingLine, ...] = ()


OPEN: tuple[StateWord, ...] = ("submitted", "working", "input-required", "auth-required")


ENDS: tuple[StateWord, ...] = ("completed", "failed", "canceled", "rejected")


class ConversationQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conversations of a `principal`, or of a `team`, with an `agent`, as far as they are set: at most `limit`
    after `cursor`."""

    agent: str | None = None
    team: TeamName | None = None
    principal: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str = ""


class ConversationLine(Struct, frozen=True, kw_only=True):
    """A context of one principal with one agent. `state` is that of the task that changed last, at `status_at`.

    `tasks` counts at most 1,000. `text` begins the first message.
    """

    context: str
    agent: str
    principal: str
    state: StateWord
    status_at: str
    tasks: int
    text: str


class ConversationLines(Struct, frozen=True, kw_only=True):
    """A page of conversations, the newest status first. `next_cursor` is empty on the last page.

    A page may have fewer conversations than asked for, although more follow: those of many tasks take long to pass.
    """

    conversations: tuple[ConversationLine, ...]
    next_cursor: str = ""


Reason = Annotated[str, Meta(max_length=1000)]


class AnswerPart(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of an answer, as in A2A 1.0 §4.1.6: exactly one of `text`, `raw` (base64), `url` and `data`."""

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: dict[str, Any] | None = None


class TaskAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a task that waits for its caller: `parts`, or `approve`, true or false, if it asks for approval.

    `reason` goes into the task's log, and after a refusal to the agent. `question` is the id of the message that asks:
    the answer counts only while that question is open. An answer that is
    too late is refused, and its sender is told who has answered.
    """

    parts: tuple[AnswerPart, ...] = ()
    approve: bool | None = None
    reason: Reason = ""
    question: Annotated[str, Meta(max_length=1000)] = ""


class InboxQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks that wait for a person, at most `limit` after `cursor`. With `limit` 0 they are only counted."""

    limit: Annotated[int, Meta(ge=0, le=100)] = 25
    cursor: str = ""


class InboxLine(Struct, frozen=True, kw_only=True):
    """A task that waits for a person, since `task.status_at`. `asks` for a word, for approval, or that its caller signs
    in; `question` is the message that asks, null if it cannot be read."""

    task: TaskLine
    asks: Literal["question", "approval", "sign-in"]
    question: Message | None = None


class Inbox(Struct, frozen=True, kw_only=True):
    """A page of the tasks that wait for a person, the one that has waited longest first. `total` counts those on all
    pages. `next_cursor` is empty on the last page.

    A delegated task whose question another task passes on is left out: the answer to that one reaches it.
    """

    waiting: tuple[InboxLine, ...]
    total: int
    next_cursor: str = ""


class SentAgain(Struct, frozen=True, kw_only=True):
    """The new task that a message became when it was sent again. It is the operator's, in a context of its own."""

    id: str
    state: StateWord


class CancelReason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a task is canceled, for its log."""

    reason: Reason = ""


class CancelRequest(TaskFilter, frozen=True, kw_only=True):
    """Cancel the open tasks that fit, at most `limit`. With `dry_run` they are only listed."""

    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    reason: Reason = ""


class ChangedTask(Struct, frozen=True, kw_only=True):
    """A task after a change: its state, which it may have reached before."""

    id: str
    state: StateWord


class ChangeFailure(Struct, frozen=True, kw_only=True):
    """A task that could not be changed, and why."""

    id: str
    reason: str


class CancelReport(Struct, frozen=True, kw_only=True):
    """The outcome of canceling many tasks. `more`: tasks beyond the limit fit as well."""

    dry_run: bool
    matched: tuple[TaskLine, ...]
    canceled: tuple[str, ...] = ()
    failed: tuple[ChangeFailure, ...] = ()
    more: bool = False


class DeleteRequest(TaskFilter, frozen=True, kw_only=True):
    """Delete the tasks that fit and have ended, at most `limit`. With `dry_run` they are only listed.

    With `force` the open ones are canceled first, and deleted as well.
    """

    dry_run: bool = False
    force: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class DeleteReport(Struct, frozen=True, kw_only=True):
    """The outcome of deleting many tasks. `more`: tasks beyond the limit fit as well."""

    dry_run: bool
    matched: tuple[TaskLine, ...]
    deleted: tuple[str, ...] = ()
    failed: tuple[ChangeFailure, ...] = ()
    more: bool = False


class DeletedTask(Struct, frozen=True, kw_only=True):
    """A task of which nothing is left."""

    id: str
    deleted: Literal[True] = True


class UpstreamAnswer(Struct, frozen=True, kw_only=True):
    """The answer of another server's agent, at `asked_at`, to the question how its task `id` stands.

    `failure` says why there is no answer; then `state` is null. `status_at` is by the other server's clock, null if it
    sends no times. `text` begins the message of the status. `differs`: the state does not fit that of our task.
    """

    id: str
    agent: str
    asked_at: str
    state: StateWord | None = None
    status_at: str | None = None
    text: str = ""
    differs: bool = False
    failure: str = ""


class TaskQuery(TaskFilter, frozen=True, kw_only=True):
    """The tasks that fit every field that is set, in an `order`, a page of at most `limit` after `cursor`."""

    order: TaskOrder | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str = ""


class DeleteQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `force` a task that has not ended is canceled first."""

    force: bool = False


def check_cancel(wanted: CancelRequest) -> None:
    """Check which tasks are to be canceled. Raises InvalidParams."""
    if wanted.empty:
        raise InvalidParams("filter", "is empty: name the tasks; older_than_s = 0 selects every open task")
    if wanted.state is not None and STATES_BY_WORD[wanted.state] in TERMINAL:
        raise InvalidParams("state", f"{wanted.state} is an end: choose one of {', '.join(OPEN)}")


def check_delete(wanted: DeleteRequest) -> None:
    """Check which tasks are to be deleted. Raises InvalidParams."""
    if wanted.empty:
        raise InvalidParams("filter", "is empty: name the tasks; older_than_s = 0 selects every task that has ended")
    if not wanted.force and wanted.state in OPEN:
        raise InvalidParams("state", f"{wanted.state} is no end: set force to cancel such tasks first")


LIST_TASKS = Question(
    name="listTasks",
    of_teams=True,
    path="/tasks",
    summary="List tasks of everybody, newest status first, or in another order.",
    given=TaskQuery,
    answer=TaskLines,
    action="tasks.list",
    stored=True,
    shared=True,
    lines="tasks",
    columns=(
        *(Column("ID", "id"), Column("STATE", "state"), Column("AGE", "age_s", "age"), Column("AGENT", "agent")),
        *(Column("PRINCIPAL", "principal"), Column("CONTEXT", "context"), Column("DIALECT", "dialect")),
        Column("TITLE", "title"),
    ),
    none="No tasks fit.",
)
LIST_CONVERSATIONS = Question(
    name="listConversations",
    of_teams=True,
    path="/conversations",
    summary="List the contexts of everybody, each with one principal and one agent, newest status first.",
    given=ConversationQuery,
    answer=ConversationLines,
    action="conversations.list",
    shared=True,
)
CANCEL_TASKS = Question(
    name="cancelTasks",
    of_teams=True,
    method="POST",
    path="/tasks:cancel",
    summary="Cancel all open tasks that fit a filter, or list them with dry_run.",
    given=CancelRequest,
    answer=CancelReport,
    check=check_cancel,
    action="tasks.cancel-many",
)
CANCEL_TASK = Question(
    name="cancelTask",
    of_teams=True,
    method="POST",
    path="/tasks/{id}:cancel",
    summary="Cancel one task, and wait until it has ended.",
    given=CancelReason,
    optional=True,
    answer=ChangedTask,
    action="tasks.cancel",
)
LIST_INBOX = Question(
    name="listInbox",
    of_teams=True,
    path="/inbox",
    summary="List the tasks that wait for a person, with what they ask, the longest waiting first.",
    given=InboxQuery,
    answer=Inbox,
    action="inbox.list",
    shared=True,
    lines="waiting",
    none="Nothing waits for a person.",
)
ANSWER_TASK = Question(
    name="answerTask",
    of_teams=True,
    method="POST",
    path="/tasks/{id}:answer",
    summary="Answer a task that waits for its caller, or approve or refuse what it asks for.",
    given=TaskAnswer,
    answer=ChangedTask,
    action="tasks.answer",
)
SEND_AGAIN: Question[None, SentAgain] = Question(
    name="sendAgain",
    of_teams=True,
    method="POST",
    path="/tasks/{id}:send-again",
    summary="Send the first message of a task to its agent again, as a new task of the operator.",
    answer=SentAgain,
    action="tasks.send-again",
    made=lambda _, sent: sent.id,
)
DELETE_TASKS = Question(
    name="deleteTasks",
    of_teams=True,
    method="POST",
    path="/tasks:delete",
    summary="Delete all tasks that fit a filter and have ended, or list them with dry_run.",
    given=DeleteRequest,
    answer=DeleteReport,
    check=check_delete,
    action="tasks.delete-many",
)
DELETE_TASK = Question(
    name="deleteTask",
    of_teams=True,
    method="DELETE",
    path="/tasks/{id}",
    summary="Delete one task that has ended, with all that belongs to it.",
    given=DeleteQuery,
    answer=DeletedTask,
    action="tasks.delete",
)
SHOW_TASK: Question[None, TaskReport] = Question(
    name="showTask",
    of_teams=True,
    path="/tasks/{id}",
    summary="Show one task.",
    answer=TaskReport,
    action="tasks.show",
    stored=True,
    shared=True,
)
ASK_UPSTREAM: Question[None, UpstreamAnswer] = Question(
    name="askUpstream",
    of_teams=True,
    method="POST",
    path="/tasks/{id}:ask-upstream",
    summary="Ask the agent of another server how the task stands that it made of this one.",
    answer=UpstreamAnswer,
    action="tasks.ask-upstream",
    made=lambda _, answer: answer.agent,
)
