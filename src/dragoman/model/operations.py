"""Operations: what a caller asks for, as values, and what is answered.

Invariant: an operation says nothing about the bytes it came in; every dialect decodes into these and only these.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from dragoman.model.card import AgentCard
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.principal import Principal
from dragoman.model.task import Progress, Record, TaskState


class PushConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where to tell of a task's changes (A2A 1.0 §4.3.1). Empty `id`: the server gives one.

    `scheme` and `credentials` are those of `authentication`. `secret` signs what is sent. `events` are the states and
    `artifact` of which alone it wants to be told, spelled `completed`, `input-required` …; none: of what its dialect
    tells. `dialect` is the name of that in which it was registered. `credentials` and `secret` are never given
    back, `token` only to its owner; none of them is ever logged.
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
    skill to run, `skills` restricts the run to those. `earlier` is the conversation before the message, of a caller who
    tells it with every message instead of leaving that to the context.
    """

    message: Message
    return_immediately: bool = False
    history_length: int | None = None
    accepted_output_modes: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    skill: str | None = None
    skills: tuple[str, ...] = ()
    earlier: tuple[Message, ...] = ()
    push_config: PushConfig | None = None
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

    `page_size` is 1 to 100. `status_after_ms` is milliseconds since the epoch, inclusive. `offset` serves dialects
    that page by it and goes with no `page_token`.
    """

    context_id: str | None = None
    state: TaskState | None = None
    page_size: int = 50
    page_token: str = ""
    history_length: int | None = None
    status_after_ms: int | None = None
    include_artifacts: bool = False
    offset: int = 0
    tenant: str = ""


class CancelTask(Struct, frozen=True, kw_only=True):
    """Stop the task (A2A 1.0 §3.1.5)."""

    id: str
    metadata: dict[str, Any] | None = None
    tenant: str = ""


class Subscribe(Struct, frozen=True, kw_only=True):
    """Follow a task that exists (A2A 1.0 §3.1.6). `after` is the id of the last event seen, if the params name it."""

    id: str
    after: str | None = None
    tenant: str = ""


class CreatePushConfig(Struct, frozen=True, kw_only=True):
    """Register a webhook for a task (A2A 1.0 §3.1.7)."""

    config: PushConfig
    tenant: str = ""


class GetPushConfig(Struct, frozen=True, kw_only=True):
    """One webhook configuration (A2A 1.0 §3.1.8). Empty `id`: the oldest, where a dialect lets it be left out."""

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
    """Forget a webhook configuration (A2A 1.0 §3.1.10). Empty `id`: all of the task's, also if there are none."""

    task_id: str
    id: str = ""
    tenant: str = ""


class GetExtendedCard(Struct, frozen=True, kw_only=True):
    """The card for callers who have authenticated (A2A 1.0 §3.1.11)."""

    tenant: str = ""


class CompleteTask(Struct, frozen=True, kw_only=True):
    """An agent's worker says that a task is done (BeeOS). `lease` is what came with the task; None: it sent none."""

    id: str
    artifacts: tuple[Artifact, ...] = ()
    lease: str | None = None
    tenant: str = ""


class UpdateStatus(Struct, frozen=True, kw_only=True):
    """An agent's worker says where a task stands (BeeOS); a terminal `state` ends it."""

    id: str
    state: TaskState
    parts: tuple[Part, ...] = ()
    progress: Progress | None = None
    lease: str | None = None
    tenant: str = ""


Operation = (
    SendMessage
    | StreamMessage
    | GetTask
    | ListTasks
    | CancelTask
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
    """The task that it is about, as far as the operation says; empty: none."""
    match operation:
        case SendMessage():
            return operation.message.task_id or ""
        case GetTask() | CancelTask() | Subscribe() | CompleteTask() | UpdateStatus():
            return operation.id
        case CreatePushConfig():
            return operation.config.task_id
        case GetPushConfig() | ListPushConfigs() | DeletePushConfig():
            return operation.task_id
        case ListTasks() | GetExtendedCard():
            return ""


class Manners(Struct, frozen=True, kw_only=True):
    """What a dialect expects where dialects differ in meaning, not only in spelling. The defaults are those of 1.0.

    `answers_with_message`: a direct agent's Message may answer a send. `subscribed_until_terminal`: a subscription
    outlasts `input-required` (A2A 1.0 §3.1.6). `subscribes_to_ended`: subscribing to a task that has ended gives the
    task and ends, instead of an error, and so, unless a subscription outlasts it, does one to a task that waits for its
    caller. `cancels_ended`: so does canceling it. `cancels_canceled`: canceling a task that is canceled already gives
    the task (A2A 1.0 §3.3.1), instead of TaskNotCancelable. `late_is_error`: a blocking call that outlasts its time is
    answered with TaskTimeout. `failure_is_error`: a send whose task fails is answered with
    AgentFailed. `absent_webhook_is_none`: asking for the webhook of a task that has none is answered with nothing,
    instead of TaskNotFound. `webhook` is where a send has its webhook, in the caller's words.
    """

    answers_with_message: bool = True
    subscribed_until_terminal: bool = True
    subscribes_to_ended: bool = False
    cancels_ended: bool = False
    cancels_canceled: bool = True
    late_is_error: bool = False
    failure_is_error: bool = False
    absent_webhook_is_none: bool = False
    webhook: str = "configuration.taskPushNotificationConfig"


class Shown:
    """What a caller said who it is with, as headers, to be passed on. It is kept in memory, and no repr shows it."""

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers


class Call(Struct, frozen=True, kw_only=True):
    """An operation with what came around it: who asks, which agent, and how the request arrived.

    `after` is the last seq the caller saw (`Last-Event-ID`, `?since=`, `fromSeq`), as sent: `7` or `7.2`; None if none.
    `extensions` are those the caller declared. `folds`: the caller is told what the task amounts to, so that a stream
    must know what that was where it begins. `peer` is the address it came from, without port. `shown` is there if the
    agent passes on what its callers say who they are with. `base` is the URL under which the server was reached, where
    that matters. `size` is that of the request's body in bytes, as far as it is known. `room` is called
    with the size of a large task before it is read, and raises if there is no room for it in an answer.
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
    shown: Shown | None = None
    base: str = ""
    size: int = 0
    room: Callable[[int], None] | None = None


class TaskPage(Struct, frozen=True, kw_only=True):
    """One page of ListTasks. `next_page_token` is empty on the last page; `total_size` counts all pages.

    `cut`: it has fewer tasks than were asked for, because they are large, and more follow.
    """

    records: tuple[Record, ...]
    next_page_token: str
    page_size: int
    total_size: int
    cut: bool = False


Result = Record | Message | TaskPage | AgentCard | PushConfig | tuple[PushConfig, ...] | None
"""What a unary operation is answered with: SendMessage with a Record, or with a direct agent's Message."""
