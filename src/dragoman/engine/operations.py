"""Operations: what each operation of a caller means.

Invariant: the task row is written before any agent code runs (invariant 7), and no answer or event leaves here that is
not committed (invariant 2).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

from msgspec.structs import replace

from dragoman.engine import policy
from dragoman.engine.api import Runner
from dragoman.engine.cancellations import Cancellations
from dragoman.engine.deletions import Deletions
from dragoman.engine.files import Files
from dragoman.engine.handler import Answered, OpenStream
from dragoman.engine.intake import Intake
from dragoman.engine.leases import Neighbours
from dragoman.engine.log import Log, await_contact, await_settled, check_kept, read_record
from dragoman.engine.policy import EngineSettings
from dragoman.engine.rights import Right, may_read
from dragoman.engine.rules import Decision, NoteCancel
from dragoman.engine.runs.endings import refusal_of
from dragoman.engine.subscriptions import DirectStream, Tails
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks, list_tasks
from dragoman.engine.timer_wheel import TimerWheel
from dragoman.engine.webhooks import WebhookOperations
from dragoman.model.card import Profile
from dragoman.model.errors import (
    AgentFailed,
    AgentNotFound,
    InvalidParams,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotEnded,
    TaskNotFound,
    TaskTimeout,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.ids import Clock
from dragoman.model.lifecycle import SETTLED
from dragoman.model.message import Message
from dragoman.model.operations import (
    Call,
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
    DeleteTask,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    SendMessage,
    StreamMessage,
    Subscribe,
    UpdateStatus,
)
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead, TaskState
from dragoman.store.api import Store, StoreError, StoreFull, Unknown
from dragoman.store.damage import UNKNOWN_MOUNT

OtherOperation = (
    GetTask
    | ListTasks
    | CancelTask
    | DeleteTask
    | CreatePushConfig
    | GetPushConfig
    | ListPushConfigs
    | DeletePushConfig
    | GetExtendedCard
    | Subscribe
    | CompleteTask
    | UpdateStatus
)
"""Every operation but SendMessage and SendStreamingMessage."""

ELSEWHERE_S = 1
"""When a caller is to try again whose agent other replicas serve, in seconds."""

FIRST_CONTACT_S = 2.0
"""How long a new stream waits for an agent elsewhere to take the task on or refuse it. After a refusal the caller reads
an error with `Retry-After` instead of a stream. A refused connection shows, retries included, within 1.6 s."""


class Operations:
    """The Handler at the bottom of the stack: see `engine.handler.Handler`.

    Without `webhooks` there are none. `identified` says whether an agent requires its callers to authenticate at
    present; only then does it have an extended card. There are `neighbours` if other engines write to the store.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        cancellations: Cancellations,
        intake: Intake,
        tails: Tails,
        webhooks: WebhookOperations | None,
        neighbours: Neighbours | None,
        deletions: Deletions,
        *,
        files: Files,
        clock: Clock,
        settings: EngineSettings,
        identified: Callable[[str], bool] | None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._supervisor = supervisor
        self._leases = supervisor.leases
        self._served = supervisor.leases.served
        self._stopping = supervisor.stopping
        self._cancellations = cancellations
        self._intake = intake
        self._tails = tails
        self._webhooks = webhooks
        self._neighbours = neighbours
        self._deletions = deletions
        self._files = files
        self._clock = clock
        self._settings = settings
        self._timeouts = TimerWheel(settings.blocking_timeout_s)
        self._identified = identified

    async def call(self, call: Call) -> Answered:
        """Answer a unary operation: see `engine.handler.Handler.call`."""
        operation, runner = call.operation, self._served.runners.get(call.agent)
        try:
            if not isinstance(operation, SendMessage):
                return await self._answer(runner or self._leaving_runner(call), call, operation)
            if runner is None and not await self.served_elsewhere(call.agent):
                raise AgentNotFound(call.agent)
            if not self._leases.takes_work:
                raise self._supervisor.refusal()
            serving = self._served.generation
            serving.enter()
            try:
                taken = await self._intake.take(runner, call, operation)
            finally:
                serving.leave()
            if isinstance(taken, Message):
                return taken
            try:
                if operation.return_immediately:
                    return taken.task.record()
                timeout_s = self._settings.blocking_timeout_s
                try:
                    settled = await await_settled(
                        taken.task,
                        self._supervisor.loop,
                        self._timeouts,
                        taken.seq,
                        timeout_s,
                        self._stopping,
                        operation.message.message_id,
                        # A repeated call waits for what comes next, not for what the first one may have missed.
                        taken.task.last_settled_seq if taken.repeated else 0,
                    )
                except Unknown as error:
                    raise _lost() from error
                record = await self._settled_record(taken.task, settled)
                return self._outcome(call, operation, taken.task, record, settled=settled > 0)
            finally:
                taken.task.unpin()
        except StoreError as error:
            raise _unavailable(error) from error

    async def _answer(self, runner: Runner, call: Call, operation: OtherOperation) -> Answered:
        """Answer an operation other than SendMessage. Raises A2AError or StoreError."""
        match operation:
            case GetTask(id=task_id):
                return await self._tasks.read_record(call, task_id)
            case ListTasks():
                return await list_tasks(self._store, call, operation, self._settings.max_page_bytes)
            case CancelTask(id=task_id):
                return await self._cancel(call, task_id)
            case DeleteTask(id=task_id):
                await self._delete(call, task_id)
                return None
            case CreatePushConfig() | GetPushConfig() | ListPushConfigs() | DeletePushConfig():
                if self._webhooks is None or not runner.profile.pushes:
                    raise PushNotificationNotSupported
                return await self._webhooks.answer(call, operation)
            case GetExtendedCard():
                return self._extended(runner.profile, operation.or_public)
            case Subscribe():
                raise UnsupportedOperation("a subscription is a stream")
            case CompleteTask() | UpdateStatus():
                return await self._report(runner, call, operation)
            case _:
                assert_never(operation)

    async def stream(self, call: Call) -> OpenStream:
        """Open a stream: see `engine.handler.Handler.stream`."""
        runner = self._served.runners.get(call.agent) or self._leaving_runner(call)
        if self._stopping.begun:
            raise policy.stopping()
        reads = call.manners.reads_logs and isinstance(call.operation, Subscribe)
        if not (runner.profile.streams or reads):
            raise UnsupportedOperation(f"{call.agent} does not stream (capabilities.streaming): use SendMessage")
        try:
            match call.operation:
                case StreamMessage() as send:
                    if self._leases.fenced:
                        raise self._supervisor.refusal()
                    return await self._stream(runner, call, send)
                case Subscribe(id=task_id, past_only=past_only):
                    return await self._tails.of_task(call, task_id, past_only=past_only)
                case _:
                    raise UnsupportedOperation("this operation is not a stream")
        except StoreError as error:
            raise _unavailable(error) from error

    async def look(self, call: Call) -> Answered:
        """Answer a binding's own GetTask or ListTasks: see `engine.handler.Handler.look`."""
        runner = self._served.runners.get(call.agent)
        assert not isinstance(call.operation, SendMessage)
        if runner is None:
            raise AgentNotFound(call.agent)
        try:
            return await self._answer(runner, call, call.operation)
        except StoreError as error:
            raise _unavailable(error) from error

    async def dialect_of(self, task_id: str, principal: Principal, agent: str, mount: str) -> str | None:
        """The dialect of a task that the principal made: see `engine.handler.Handler.dialect_of`."""
        if (head := await self._find_head(task_id)) is None:
            return None
        here = head.mount in (mount, UNKNOWN_MOUNT)
        return head.dialect if here and head.agent == agent and may_read(principal, head) else None

    async def agent_of(self, task_id: str, principal: Principal, mount: str) -> str | None:
        """The agent that owns a task sent to the root mount: see `engine.handler.Handler.agent_of`."""
        if (head := await self._find_head(task_id)) is None:
            return None
        here = head.mount in (mount, UNKNOWN_MOUNT) and principal.reaches(head.agent)
        return head.agent if here and may_read(principal, head) and head.agent in self._served.runners else None

    async def _find_head(self, task_id: str) -> TaskHead | None:
        """The head of a task, whoever owns it; None if there is none. Raises Unavailable."""
        try:
            found = await self._store.head(task_id)
        except StoreError as error:
            raise _unavailable(error) from error
        return None if found is None else found[0]

    async def served_elsewhere(self, agent: str) -> bool:
        """Whether another replica that is alive serves an agent, as of a second ago. Raises Unavailable."""
        try:
            return self._neighbours is not None and await self._neighbours.serve(agent)
        except StoreError as error:
            raise _unavailable(error) from error

    async def check_elsewhere(self, agent: str) -> None:
        """Raises Unavailable for an agent that is not served here, but by other replicas, or was until lately."""
        if await self.served_elsewhere(agent):
            raise Unavailable(f"agent {agent} is served by other replicas: try again", ELSEWHERE_S)
        try:
            missed = self._neighbours is not None and await self._neighbours.miss(agent)
        except StoreError as error:
            raise _unavailable(error) from error
        if missed:
            raise Unavailable(f"agent {agent} is served by no replica at present: try again")

    def _leaving_runner(self, call: Call) -> Runner:
        """The agent of a worker that reports on a task begun before a reload. Raises AgentNotFound for other calls."""
        runner = (
            self._served.leaving.get(call.agent) if isinstance(call.operation, CompleteTask | UpdateStatus) else None
        )
        if runner is None:
            raise AgentNotFound(call.agent)
        return runner

    def _extended(self, profile: Profile, or_public: bool) -> Profile:
        """Return the profile with its extended skills, for the extended card (A2A 1.0 §3.1.11)."""
        if self._identified is None or not self._identified(profile.id):
            if or_public:
                return replace(profile, extended_skills=())
            raise UnsupportedOperation(f"{profile.id} does not authenticate callers: it has no extended card")
        return replace(profile, skills=(*profile.skills, *profile.extended_skills), extended_skills=())

    # -- SendMessage, SendStreamingMessage (A2A 1.0 §3.1.1, §3.1.2) ----------------------------------------------------

    async def _settled_record(self, task: Log, settled: int) -> Record:
        """The task as it stood with the event `settled`, if it has gone on since. Raises StoreError."""
        if settled == task.settled_seq or not settled:
            return task.record()
        return await read_record(task, settled) or task.record()

    def _outcome(self, call: Call, send: SendMessage, task: Log, record: Record, *, settled: bool) -> Record:
        """Return the task to the sender that waited for it. Raises the error that its dialect has instead."""
        began = not send.message.task_id
        if began and task.row.state is TaskState.FAILED and (refused := refusal_of(record)) is not None:
            raise refused
        if not settled:
            self._refuse_late(call, send, task)
        if call.manners.failure_is_error and record.state in (TaskState.FAILED, TaskState.REJECTED):
            raise AgentFailed(task.head.id, "" if record.status.message is None else record.status.message.text)
        return record

    def _refuse_late(self, call: Call, send: SendMessage, task: Log) -> None:
        """Raise the error of a task that has not settled in time, if its state is none that may be answered.

        While the store is away, the state that is known here may be an old one, and a blocking call promises another
        (A2A 1.0 §3.2.2). A repeat of the call finds the task, if the call has a key. If it has none, and its dialect
        says what becomes of a late task, that is what is said: after Unavailable the task would be done twice.
        """
        late = call.manners.late_is_error and not self._stopping.done
        away = task.writes.failure is not None or self._store.writing.outage is not None or self._leases.fenced
        if away and task.state not in SETTLED and not (late and policy.dedupe(call, send, 0) is None):
            wait_s = 30 if isinstance(task.writes.failure, StoreFull) else 5
            raise Unavailable(
                f"task {task.head.id} goes on when the server's store can be written again: send the message once "
                "more, or ask for the task by its id",
                wait_s,
                task_id=task.head.id,
            )
        if late:
            raise TaskTimeout(task.head.id, self._settings.blocking_timeout_s)

    async def _stream(self, runner: Runner, call: Call, send: StreamMessage) -> OpenStream:
        serving = self._served.generation
        serving.enter()
        try:
            taken = await self._intake.take(runner, call, send)
        finally:
            serving.leave()
        if isinstance(taken, Message):
            return DirectStream(taken)
        try:
            if not send.message.task_id and runner.traits.may_refuse:
                await await_contact(taken.task, self._supervisor.loop, FIRST_CONTACT_S, self._stopping)
                if (refused := refusal_of(taken.task.record())) is not None:
                    raise refused
            await taken.task.compare()
            if taken.task.rewound:
                check_kept(taken.task, send.message.message_id)
            return await self._tails.of_send(call, send, taken)
        except Unknown as error:
            raise _lost() from error
        finally:
            taken.task.unpin()

    # -- CancelTask (A2A 1.0 §3.1.5) -----------------------------------------------------------------------------------

    async def _cancel(self, call: Call, task_id: str) -> Record:
        task, manners = await self._tasks.pin(call, task_id, Right.CHANGE), call.manners
        try:
            canceled_before = task.state is TaskState.CANCELED
            if call.operator is not None:
                await self._note_cancel(call, task)
            while not task.terminal:
                rewound = task.rewound
                await self._cancellations.cancel(task)
                await self._tasks.compare(task)
                if task.rewound == rewound:  # else a failover may have lost the end
                    break
            if not task.terminal and self._stopping.begun:
                raise policy.stopping()  # the end of the drain has cut the cancel off
            if not task.terminal:
                raise TaskNotFound(task_id)  # it has been swept away
            canceled = task.state is TaskState.CANCELED and (manners.cancels_canceled or not canceled_before)
            if not (canceled or manners.cancels_ended):
                raise TaskNotCancelable(task_id, task.state.value)
            return task.record()
        finally:
            task.unpin()

    async def _note_cancel(self, call: Call, task: Log) -> None:
        """Write into the log of an open task that an operator cancels it."""

        def decide_now(log: Log) -> Decision | None:
            return self._leases.decide(NoteCancel(policy.intervention(call, "cancel", self._clock.now_ms())), log)

        with suppress(Unknown):  # it has been swept away, which the cancel itself reports
            await task.writes.append(task, decide_now, patient=False)

    # -- DeleteTask (OpenAI Responses) ---------------------------------------------------------------------------------

    async def _delete(self, call: Call, task_id: str) -> None:
        """Delete the caller's task. Raises TaskNotEnded, or StoreError."""
        task = await self._tasks.find(call, task_id, Right.OWN)
        if not (task.terminal and await self._deletions.delete_ended((task_id,))):
            raise TaskNotEnded("the task has not ended: wait for it, answer its question, or cancel the task")

    # -- CompleteTask, UpdateStatus (BeeOS) ----------------------------------------------------------------------------

    async def _report(self, runner: Runner, call: Call, report: CompleteTask | UpdateStatus) -> Record:
        """Take a worker's report on its task. A repeated report gets the same answer again."""
        workers = runner.workers or self._served.leaving.get(call.agent, runner).workers
        if workers is None:
            await self._tasks.find(call, report.id)  # only the owner of a task learns that it cannot be reported on
            raise UnsupportedOperation(f"{call.agent} is not a worker: only workers' tasks end from outside")
        task = await self._tasks.pin_reported(call, report.id)
        try:
            if task.terminal:
                fits = policy.repeats(await self._files.record(task.record()), report)
            else:
                await workers.report(report)
                end = policy.end_of(report)
                fits = end is None or task.state is end
            record = task.record()
            if not fits:
                raise InvalidParams("id", f"task {report.id} is {record.state.value}: nothing was changed")
            return record
        finally:
            task.unpin()


def _lost() -> Unavailable:
    return Unavailable("the server's store has lost the message: send it once more", 1)


def _unavailable(error: StoreError) -> Unavailable:
    if isinstance(error, StoreFull):
        return Unavailable("the server's disk is full: nothing was written, try again when there is space", 30)
    return Unavailable("the server's store cannot answer now: try again", 5)
