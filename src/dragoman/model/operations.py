"""Operations: callers' requests as values, and the values that answer them.

Invariant: an operation does not depend on the bytes it came in. Every dialect decodes into these and only these.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.model.card import AgentCard
from dragoman.model.headers import RequestHeaders, TaskHeaders
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.principal import Principal
from dragoman.model.task import Progress, Record, TaskState


class PushConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook for a task's changes (A2A 1.0 §4.3.1). If `id` is empty, the server assigns one.

    `scheme` and `credentials` come from `authentication`. `secret` signs the calls. `events` restricts the calls to the
    named states and `artifact`, spelled `completed`, `input-required` …; if empty, the dialect decides. `dialect` is
    that of the registration. `credentials` and `secret` are never returned, `token` only to its owner; none of them is
    ever logged.
    """

    url: str
    id: str = ""
    task_id: str = ""
    token: str | None = None
    scheme: str | None = None
    credentials: str | None = None
    secret: str | None = None
    events: tuple[str, ...] = ()
    dialect: str = ""


class SendMessage(Struct, frozen=True, kw_only=True):
    """Send a message and wait until the task ends or waits for its caller (A2A 1.0 §3.1.1).

    `return_immediately` answers as soon as the task is written. `history_length` None sets no limit. `skill` names the
    skill to run, `skills` restricts the run to those. `earlier` is the conversation before the message, from callers
    that send it with every message instead of using the context; with `continues` it follows the context instead.
    `answers` is the id of the question that the message answers: if that one is not open, the message is a repeat of
    the one that answered it, or is refused with QuestionClosed. A task that is begun `unattended` never waits for its
    caller: a question ends it.
    """

    message: Message
    return_immediately: bool = False
    history_length: int | None = None
    accepted_output_modes: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    skill: str | None = None
    skills: tuple[str, ...] = ()
    earlier: tuple[Message, ...] = ()
    answers: str = ""
    unattended: bool = False
    push_config: PushConfig | None = None
    continues: bool = False
    tenant: str = ""


class StreamMessage(SendMessage, frozen=True, kw_only=True):
    """Send a message and follow the task as a stream (A2A 1.0 §3.1.2)."""


class GetTask(Struct, frozen=True, kw_only=True):
    """The task as it stands (A2A 1.0 §3.1.3)."""

    id: str
    history_length: int | None = None
    tenant: str = ""


class ListTasks(Struct, frozen=True, kw_only=True):
    """The caller's tasks, newest status first (A2A 1.0 §3.1.4).

    They are those of the agent that is asked, unless tasks of `every_agent` are wanted. `page_size` is 1 to 100.
    `status_after_ms` is milliseconds since the epoch, inclusive. `offset` serves dialects that page by it and goes
    with no `page_token`. `own`: those of the caller itself alone, whatever its team shares.
    """

    context_id: str | None = None
    state: TaskState | None = None
    page_size: int = 50
    page_token: str = ""
    history_length: int | None = None
    status_after_ms: int | None = None
    include_artifacts: bool = False
    every_agent: bool = False
    own: bool = False
    offset: int = 0
    tenant: str = ""


class CancelTask(Struct, frozen=True, kw_only=True):
    """Stop the task (A2A 1.0 §3.1.5)."""

    id: str
    metadata: dict[str, Any] | None = None
    tenant: str = ""


class DeleteTask(Struct, frozen=True, kw_only=True):
    """Delete a task that has ended, with all that is kept of it (OpenAI Responses)."""

    id: str
    tenant: str = ""


class Subscribe(Struct, frozen=True, kw_only=True):
    """Follow a task that exists (A2A 1.0 §3.1.6). `after` is the id of the last event seen, if the params name it.

    With `past_only` the stream ends where it would wait for the next event.
    """

    id: str
    after: str | None = None
    past_only: bool = False
    tenant: str = ""


class CreatePushConfig(Struct, frozen=True, kw_only=True):
    """Register a webhook for a task (A2A 1.0 §3.1.7)."""

    config: PushConfig
    tenant: str = ""


class GetPushConfig(Struct, frozen=True, kw_only=True):
    """One webhook configuration (A2A 1.0 §3.1.8). An empty `id`, if the dialect allows it, means the oldest."""

    task_id: str
    id: str = ""
    tenant: str = ""


class ListPushConfigs(Struct, frozen=True, kw_only=True):
    """All webhook configurations of a task (A2A 1.0 §3.1.9)."""

    task_id: str
    page_size: int = 0
    page_token: str = ""
    tenant: str = ""


class DeletePushConfig(Struct, frozen=True, kw_only=True):
    """Delete a webhook configuration (A2A 1.0 §3.1.10). An empty `id` means all of the task's, even if it has none."""

    task_id: str
    id: str = ""
    tenant: str = ""


class GetExtendedCard(Struct, frozen=True, kw_only=True):
    """The card for callers who have authenticated (A2A 1.0 §3.1.11).

    `or_public`: the public card will do for an agent that has no extended one.
    """

    tenant: str = ""
    or_public: bool = False


class Confirmed(Struct, frozen=True):
    """The newest things that a worker knows to be committed under its lease. A failover may have lost them.

    `report` is the number of its newest report that was confirmed, 0 if none was. `outcome` is the id of the message
    that answered it last, or of the delegated task whose outcome it was given last; empty if there is none.
    """

    report: int = 0
    outcome: str = ""


NOTHING_CONFIRMED = Confirmed()


class CompleteTask(Struct, frozen=True, kw_only=True):
    """A worker's report that a task is done (BeeOS). `lease` is the one that came with the task; None if not sent.

    `confirmed` is what the worker knows of its lease.
    """

    id: str
    artifacts: tuple[Artifact, ...] = ()
    lease: str | None = None
    tenant: str = ""
    confirmed: Confirmed = NOTHING_CONFIRMED


class UpdateStatus(Struct, frozen=True, kw_only=True):
    """A worker's report on the state of a task (BeeOS). A terminal `state` ends the task; `reason` says why, for
    programs. `number` is that of a question among the worker's reports, 0 if it has none; `confirmed` is as in
    `CompleteTask`."""

    id: str
    state: TaskState
    parts: tuple[Part, ...] = ()
    progress: Progress | None = None
    lease: str | None = None
    tenant: str = ""
    reason: str = ""
    number: int = 0
    confirmed: Confirmed = NOTHING_CONFIRMED


Operation = (
    SendMessage
    | StreamMessage
    | GetTask
    | ListTasks
    | CancelTask
    | DeleteTask
    | Subscribe
    | CreatePushConfig
    | GetPushConfig
    | ListPushConfigs
    | DeletePushConfig
    | GetExtendedCard
    | CompleteTask
    | UpdateStatus
)


def task_id_of(operation: Operation) -> str:
    """The id of the task that the operation names; empty if it names none."""
    match operation:
        case SendMessage():
            return operation.message.task_id or ""
        case GetTask() | CancelTask() | DeleteTask() | Subscribe() | CompleteTask() | UpdateStatus():
            return operation.id
        case CreatePushConfig():
            return operation.config.task_id
        case GetPushConfig() | ListPushConfigs() | DeletePushConfig():
            return operation.task_id
        case ListTasks() | GetExtendedCard():
            return ""


class Manners(Struct, frozen=True, kw_only=True):
    """The rules of a dialect where dialects differ in meaning, not only in spelling. The defaults are those of 1.0.

    `answers_with_message`: a direct agent's Message may answer a send. `subscribed_until_terminal`: a subscription
    goes on after `input-required` (A2A 1.0 §3.1.6). `subscribes_to_ended`: subscribing to an ended task returns the
    task and ends, instead of raising an error; so does subscribing to a task that waits for its caller, unless
    subscriptions go on until a terminal state. `reads_logs`: a subscription is how the dialect reads what a task
    has said, so that tasks of agents that do not stream have it, too. `cancels_ended`: canceling an ended task
    returns the task. `cancels_canceled`: canceling a canceled task returns the task (A2A 1.0 §3.3.1), instead of
    TaskNotCancelable. `late_is_error`: a blocking call that takes too long raises TaskTimeout. `failure_is_error`:
    a send whose task fails raises AgentFailed. `absent_webhook_is_none`: asking for the webhook of a task without
    one returns nothing, instead of TaskNotFound. `webhook` is the path of the webhook in a send, in the spelling of
    the dialect.
    """

    answers_with_message: bool = True
    subscribed_until_terminal: bool = True
    subscribes_to_ended: bool = False
    reads_logs: bool = False
    cancels_ended: bool = False
    cancels_canceled: bool = True
    late_is_error: bool = False
    failure_is_error: bool = False
    absent_webhook_is_none: bool = False
    webhook: str = "configuration.taskPushNotificationConfig"


class Call(Struct, frozen=True, kw_only=True):
    """An operation with its context: the caller, the agent, and how the request arrived.

    `after` is the last seq the caller saw (`Last-Event-ID`, `?since=`, `fromSeq`), as sent: `7` or `7.2`; None if none.
    `extensions` are those the caller declared. `folds` says that the dialect reports the folded task, so that a stream
    needs the task as it stood where it begins. `peer` is the caller's address, without port. `shown` holds those of the
    request's headers that agents of this server are given. `base` is the URL under which the server was reached, where
    that matters. `size` is the size of the request's body in bytes, as far as it is known. `room` is called with the
    size of a large task before it is read, and raises if an answer has no room for it. `operator` is the id of the
    operator who makes the call in place of `principal`, and `reason` why; both go into the task's log.
    """

    operation: Operation
    principal: Principal
    agent: str
    dialect: str
    mount: str
    manners: Manners = Manners()
    folds: bool = False
    extensions: tuple[str, ...] = ()
    idempotency_key: str | None = None
    after: str | None = None
    traceparent: str | None = None
    peer: str = ""
    shown: RequestHeaders | None = None
    base: str = ""
    size: int = 0
    room: Callable[[int], None] | None = None
    operator: str | None = None
    reason: str = ""

    def headers_with(self, message_id: str) -> TaskHeaders | None:
        """The request's headers as those of its message, for the message's task; None if there are none."""
        return None if self.shown is None else TaskHeaders({message_id: self.shown})


class TaskPage(Struct, frozen=True, kw_only=True):
    """One page of ListTasks. `next_page_token` is empty on the last page; `total_size` counts all pages.

    `cut` says that the page has fewer tasks than asked for, because they are large, and that more follow.
    """

    records: tuple[Record, ...]
    next_page_token: str
    page_size: int
    total_size: int
    cut: bool = False


Result = Record | Message | TaskPage | AgentCard | PushConfig | tuple[PushConfig, ...] | None
"""The answer to a unary operation: for SendMessage a Record, or a direct agent's Message."""
