"""The engine: what each operation means.

Invariant: the task row is written before any agent code runs (invariant 7), and no answer or event leaves here that is
not committed (invariant 2).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import assert_never

from msgspec.structs import replace

from dragoman.bus.api import Bus
from dragoman.engine import policy
from dragoman.engine.announcements import Announcer
from dragoman.engine.api import Generation, Runner
from dragoman.engine.bounds import Bounds
from dragoman.engine.delegation import Delegations
from dragoman.engine.effect_loop import EffectLoop
from dragoman.engine.effects import Effects
from dragoman.engine.files import Files
from dragoman.engine.folding import fold_aside
from dragoman.engine.handler import Answered, OpenStream
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.hints import Hints
from dragoman.engine.intake import Intake
from dragoman.engine.leases import Neighbours, TaskLeases
from dragoman.engine.lineage import server_name
from dragoman.engine.observer import Observer
from dragoman.engine.policy import EngineSettings
from dragoman.engine.recovery import Recovery
from dragoman.engine.rules import Decision, NoteCancel
from dragoman.engine.runs.endings import refusal_of
from dragoman.engine.runs.history import History
from dragoman.engine.runs.places import place_tasks
from dragoman.engine.runs.registry import Runs
from dragoman.engine.served_agents import Served
from dragoman.engine.subscriptions import DirectStream, Tails
from dragoman.engine.supervisor import LEAVE_S, Supervisor
from dragoman.engine.task_log import TaskLog, await_contact, await_settled, read_whole
from dragoman.engine.tasks import Tasks, list_tasks
from dragoman.engine.webhooks import WebhookOperations
from dragoman.engine.worker_tasks import WorkerTasks
from dragoman.engine.worker_watch import WorkerWatch
from dragoman.model.card import Profile
from dragoman.model.errors import (
    AgentFailed,
    AgentNotFound,
    InvalidParams,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    TaskTimeout,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.events import Submitted
from dragoman.model.ids import Clock
from dragoman.model.lifecycle import SETTLED, fold
from dragoman.model.message import Message
from dragoman.model.operations import (
    Call,
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
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
from dragoman.store.figures import StoreFigures, count_idle
from dragoman.store.replicas import ReplicaBuried, ReplicaFenced, StoreRewound
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger(__name__)

OtherOperation = (
    GetTask
    | ListTasks
    | CancelTask
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


class Engine:
    """The Handler at the bottom of the stack: see `engine.handler.Handler`.

    Without an `announcer` there are no webhooks. `identified` says whether an agent requires its callers to
    authenticate at present; only then does it have an extended card. `trail` records what agents delegate. The `bus`
    must not be open yet, and is not used if no other engine writes to the store.

    `tasks` are the task logs that are in memory: only those that somebody here runs, waits for, follows or writes to.
    """

    def __init__(
        self,
        store: Store,
        runners: Mapping[str, Runner],
        *,
        clock: Clock,
        settings: EngineSettings,
        holder: str,
        observer: Observer | None = None,
        announcer: Announcer | None = None,
        identified: Callable[[str], bool] | None = None,
        trail: Trail | None = None,
        name: str = "",
        files: Files | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._store = store
        self._served = served = Served(runners)
        self._leaving: dict[str, Runner] = {}
        self._clock = clock
        self._settings = settings
        self._identified = identified
        effects = Effects()
        hints: Hints | None = None
        if settings.poll_s > 0:
            hints = Hints(store, bus, poll_s=settings.poll_s, healthy_poll_s=settings.healthy_poll_s)
            hints.serve(holder, runners)
        self._hints = hints
        self.tasks = tasks = Tasks(store, served, effects, observer, announcer, hints)
        self._files = files = Files() if files is None else files
        server, past = server_name(name or holder), History(store, files)
        self._runs = runs = Runs()
        self._leases = leases = TaskLeases(
            holder,
            served,
            store,
            clock,
            retry_s=settings.retry_s,
            runs=runs,
            hints=hints,
        )
        self._webhooks = WebhookOperations(store, tasks, leases, announcer) if announcer is not None else None
        self._supervisor = supervisor = Supervisor(
            leases,
            runs,
            tasks,
            store,
            clock,
            settings,
            server=server,
            files=files,
            past=past,
            effects=effects,
            observer=observer,
            hints=hints,
        )
        self._intake = Intake(
            store, tasks, supervisor, clock, settings, self._webhooks, files=files, past=past, server=server
        )
        self._neighbours = None if hints is None else Neighbours(store, leases, settings.agent_absent_s)
        self._delegations = Delegations(
            served,
            tasks,
            supervisor,
            self._intake.take,
            store=store,
            clock=clock,
            files=files,
            trail=trail,
            neighbours=self._neighbours,
            retry_s=settings.retry_s,
        )
        self._recovery = Recovery(store, tasks, supervisor, settings, observer)
        self._effect_loop = EffectLoop(effects, supervisor, self._delegations, self._recovery, claim_s=settings.claim_s)
        worker_tasks = WorkerTasks(
            store,
            tasks,
            supervisor,
            clock,
            effects,
            files=files,
            past=past,
            bounds=Bounds(settings.max_text),
            server=server,
            retry_s=settings.retry_s,
            observer=observer,
        )
        self._workers = WorkerWatch(worker_tasks, supervisor, served)
        self._tails = Tails(store, tasks, supervisor, settings.keepalive_s)
        self._stopping = supervisor.stopping
        self._first = holder
        self._joined = 0
        """How often this process has tried to join under another id."""
        self._naming = asyncio.Lock()
        """Held by whoever tells other replicas which agents are served here."""
        self._address = ""
        self._watching: asyncio.Task[None] | None = None

    @property
    def replica_id(self) -> str:
        """The id under which this engine leases tasks at present."""
        return self._leases.holder

    @property
    def taken_over(self) -> int:
        """How many tasks that nobody alive worked on this engine has claimed while it runs."""
        return self._recovery.taken_over

    @property
    def fenced(self) -> bool:
        """Whether this engine cannot prove at present that it is alive, and takes no work."""
        return self._leases.fenced

    async def start(self, group: JobGroup, address: str = "") -> None:
        """Recover what a previous process left behind. The store must be open. Errands run in `group` from now on.

        `address` is where operators reach this replica.
        """
        place_tasks(asyncio.get_running_loop())
        self._supervisor.start_errands(group)
        self._effect_loop.start(group)
        self._address = address
        self._watching = group.keep("replicas", self._watch_replicas)
        await self._store.replicas.join(self._leases.holder, address=address, agents=self._served.runners)
        try:
            await self._recovery.settle_all()
        except StoreError:
            if await self._store.replicas.alive(self._leases.holder):
                raise
            log.warning("the store has not heard of this server for too long while it started")  # an event says so next
        await self._delegations.left(await self._store.asking())
        self._recovery.start(group)
        self._effect_loop.watch()
        self._workers.serve(self._served.runners.values())
        self._workers.start(group)

    async def drain(self, grace_s: float) -> None:
        """Refuse new work, end all streams with the hint to come back, and give running tasks `grace_s` to end."""
        self._workers.drain()
        await asyncio.gather(self._serve_nobody(), self._supervisor.drain(grace_s))
        self._recovery.stop()
        self._workers.stop()
        self._effect_loop.stop()
        if self._watching is not None:
            self._watching.cancel()
        with suppress(StoreError, TimeoutError):  # without an answer the lease runs out
            async with asyncio.timeout(LEAVE_S):
                await self._store.replicas.leave(self._leases.holder)
        if self._hints is not None:
            for agent in self._served.runners:
                self._hints.queued(agent)  # what this engine leaves behind is taken over at once

    async def _serve_nobody(self) -> None:
        """Let other replicas know that this one takes no work any more."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LEAVE_S), self._naming:
                await self._store.replicas.serve(self._leases.holder, ())

    async def _watch_replicas(self) -> None:
        """Follow for ever what becomes of this replica."""
        while True:
            match await self._store.replicas.next_event():
                case ReplicaFenced(replica_id):
                    if replica_id == self._leases.holder:  # others may take its tasks soon
                        self._supervisor.fence()
                case ReplicaBuried(replica_id):
                    if replica_id == self._leases.holder and not self._stopping.begun:
                        self._supervisor.errands.background(self._rejoin())
                case StoreRewound():  # the store may have lost what is in memory here
                    self._supervisor.errands.background(self._reread())

    async def _reread(self) -> None:
        await self.tasks.reread(self._settings.retry_s)
        self._workers.rewound()
        self._recovery.wake(lost=True)  # a run that lost its task left it leased to this engine

    async def _rejoin(self) -> None:
        """Go on under another id, and claim what the old one has lost, unless others have."""
        refused = ""
        while not self._stopping.begun:
            self._joined += 1
            holder, runners = f"{self._first}+{self._joined}", self._served.runners
            try:
                await self._store.replicas.join(holder, address=self._address, agents=runners)
            except StoreError as error:
                if str(error) != refused:
                    refused = str(error)
                    log.warning("this server takes no work until it has joined the others again: %s", refused)
                await asyncio.sleep(self._settings.retry_s)
                continue
            self._leases.rejoin(holder)
            if self._hints is not None:
                self._hints.serve(holder, self._served.runners)
            if self._served.runners is not runners:  # they were replaced meanwhile
                self._supervisor.errands.background(self._serve_again())
            self._recovery.wake()
            return

    # -- other agents ------------------------------------------------------------------------------------------------

    def serve(self, runners: Mapping[str, Runner]) -> Generation:
        """Replace the agents, all at once. Returns the previous generation, with which existing runs go on.

        Workers of an agent that is no longer served may go on reporting until `finished` has returned.
        """
        old = self._served.replace(runners)
        self._workers.serve(runners.values())
        if self._hints is not None:
            self._hints.serve(self._leases.holder, runners)
            self._supervisor.errands.background(self._serve_again())
        self._leaving |= {agent: runner for agent, runner in old.runners.items() if runners.get(agent) is not runner}
        return old

    async def _serve_again(self) -> None:
        """Let other replicas know which agents are served here now. The last to be replaced are written last."""
        async with self._naming:
            while self._leases.takes_work:
                try:
                    await self._store.replicas.serve(self._leases.holder, self._served.runners)
                except StoreError:
                    await asyncio.sleep(self._settings.retry_s)
                else:
                    return

    async def finished(self, old: Generation, left: Collection[Runner]) -> None:
        """Wait until no call and no run uses the agents that `left` with the generation `old`.

        A task that waits for its caller counts as long as its run is kept (`suspend_max_s`).
        """
        await old.idle()
        ids, loop = {runner.profile.id for runner in left}, self._supervisor.loop
        for task in self.tasks.all():
            while task.head.agent in ids and task.writes.busy and self._runs.of(task) is None:
                # The sender did not wait, so that the generation does not count this call.
                await task.followers.wait(task, loop, loop.time() + self._settings.retry_s)
        await self._supervisor.wait_for(left)
        for runner in left:
            if runner.workers is not None and self._leaving.get(runner.profile.id) is runner:
                await runner.workers.left()
        for agent in ids:
            if self._leaving.get(agent) in left:
                del self._leaving[agent]

    # -- Handler -----------------------------------------------------------------------------------------------------

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
                        taken.seq,
                        timeout_s,
                        self._stopping,
                        operation.message.message_id,
                        # A repeated call waits for what comes next, not for what the first one may have missed.
                        taken.task.last_settled_seq if taken.repeated else 0,
                    )
                except Unknown as error:
                    raise Unavailable("the server's store has lost the message: send it once more", 1) from error
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
                return await self.tasks.read_record(call, task_id)
            case ListTasks():
                return await list_tasks(self._store, call, operation, self._settings.max_page_bytes)
            case CancelTask(id=task_id):
                return await self._cancel(call, task_id)
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
        if not runner.profile.streams:
            raise UnsupportedOperation(f"{call.agent} does not stream (capabilities.streaming): use SendMessage")
        try:
            match call.operation:
                case StreamMessage() as send:
                    if self._leases.fenced:
                        raise self._supervisor.refusal()
                    return await self._stream(runner, call, send)
                case Subscribe(id=task_id):
                    return await self._tails.of_task(call, task_id)
                case _:
                    raise UnsupportedOperation("this operation is not a stream")
        except StoreError as error:
            raise _unavailable(error) from error

    async def dialect_of(self, task_id: str, principal: Principal, agent: str, mount: str) -> str | None:
        """The dialect of a task that the principal made: see `engine.handler.Handler.dialect_of`."""
        try:
            found = await self._store.head(task_id)
        except StoreError as error:
            raise _unavailable(error) from error
        if found is None:
            return None
        head = found[0]
        here = head.mount in (mount, UNKNOWN_MOUNT)
        return head.dialect if here and (head.owner, head.agent) == (principal.id, agent) else None

    async def agent_of(self, task_id: str, principal: Principal, mount: str) -> str | None:
        """The agent that owns a task sent to the root mount: see `engine.handler.Handler.agent_of`."""
        try:
            found = await self._store.head(task_id)
        except StoreError as error:
            raise _unavailable(error) from error
        if found is None:
            return None
        head = found[0]
        own = head.owner == principal.id and head.mount in (mount, UNKNOWN_MOUNT) and principal.reaches(head.agent)
        return head.agent if own and head.agent in self._served.runners else None

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
        runner = self._leaving.get(call.agent) if isinstance(call.operation, CompleteTask | UpdateStatus) else None
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

    async def _settled_record(self, task: TaskLog, settled: int) -> Record:
        """The task as it stood with the event `settled`, if it has gone on since. Raises StoreError."""
        if settled == task.settled_seq or not settled:
            return task.record()
        log = [logged for logged in await read_whole(task) if logged.seq <= settled]
        if not log or log[0].seq != 1:  # it has been pruned
            return task.record()
        return await fold_aside(len(log), lambda: fold(task.head, None, log))

    def _outcome(self, call: Call, send: SendMessage, task: TaskLog, record: Record, *, settled: bool) -> Record:
        """Return the task to the sender that waited for it. Raises the error that its dialect has instead."""
        began = not send.message.task_id
        if began and task.state is TaskState.FAILED and (refused := refusal_of(record)) is not None:
            raise refused
        if not settled:
            self._refuse_late(call, send, task)
        if call.manners.failure_is_error and record.state in (TaskState.FAILED, TaskState.REJECTED):
            raise AgentFailed(task.head.id, "" if record.status.message is None else record.status.message.text)
        return record

    def _refuse_late(self, call: Call, send: SendMessage, task: TaskLog) -> None:
        """Raise the error of a task that has not settled in time, if its state is none that may be answered.

        While the store is away, the state that is known here may be an old one, and a blocking call promises another
        (A2A 1.0 §3.2.2). A repeat of the call finds the task, if the call has a key. If it has none, and its dialect
        says what becomes of a late task, that is what is said: after Unavailable the task would be done twice.
        """
        late = call.manners.late_is_error and not self._stopping.done
        away = task.writes.failure is not None or self._store.outage is not None or self._leases.fenced
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
            return await self._tails.of_send(call, send, taken)
        finally:
            taken.task.unpin()

    # -- CancelTask (A2A 1.0 §3.1.5) -----------------------------------------------------------------------------------

    async def _cancel(self, call: Call, task_id: str) -> Record:
        task, manners = await self.tasks.pin(call, task_id), call.manners
        try:
            canceled_before = task.state is TaskState.CANCELED
            if call.operator is not None:
                await self._note_cancel(call, task)
            if not task.terminal:
                await self._supervisor.cancel(task)
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

    async def _note_cancel(self, call: Call, task: TaskLog) -> None:
        """Write into the log of an open task that an operator cancels it."""

        def decide_now(log: TaskLog) -> Decision | None:
            return self._leases.decide(NoteCancel(policy.intervention(call, "cancel", self._clock.now_ms())), log)

        with suppress(Unknown):  # it has been swept away, which the cancel itself reports
            await task.writes.append(task, decide_now, patient=False)

    # -- operators ---------------------------------------------------------------------------------------------------

    async def follow(self, task_id: str, after: str) -> OpenStream:
        """Follow the log of any task: see `engine.admin.access.OperatedEngine`."""
        if self._stopping.begun:
            raise policy.stopping()
        return await self._tails.of_log(task_id, after)

    async def request(self, task_id: str) -> tuple[TaskHead, Message]:
        """Read the message that made any task: see `engine.admin.access.OperatedEngine`."""
        stored = await self._store.load_snapshot(task_id)
        if stored is None:
            raise TaskNotFound(task_id)
        if stored.unreadable:
            raise policy.unreadable(task_id)
        if stored.snapshot is not None:
            return stored.head, await self._files.message(stored.snapshot.history[0])
        for logged in await self._store.read(task_id, 0, 1):
            if isinstance(logged.event, Submitted):
                return stored.head, await self._files.message(logged.event.message)
        if await self._store.head(task_id) is not None:
            raise policy.unreadable(task_id)  # its first event is damaged
        raise TaskNotFound(task_id)  # it has been deleted since

    def known_record(self, task_id: str) -> Record | None:
        """Return any task that is in memory: see `engine.admin.access.OperatedEngine`."""
        task = self.tasks.known(task_id)
        return None if task is None or not task.seq else task.record()

    async def figures(self) -> StoreFigures:
        """The store's figures, by phase as far as this process knows more: see `OperatedEngine`."""
        figures = await self._store.figures()
        return count_idle(figures, ((run.head.agent, run.log.row.status_ms) for run in self._runs.idle()))

    def idle(self, task_id: str) -> bool:
        """Whether a working task still waits to be taken on here: see `engine.admin.access.OperatedEngine`."""
        run = self._runs.of_id(task_id)
        return run is not None and run.idle

    async def delete(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """Delete tasks that have ended: see `engine.admin.access.OperatedEngine`."""
        deleted = await self._store.delete(task_ids)
        for task_id in deleted:
            self.tasks.forget(task_id)
            await self._files.forget(task_id)
        return deleted

    # -- CompleteTask, UpdateStatus (BeeOS) ----------------------------------------------------------------------------

    async def _report(self, runner: Runner, call: Call, report: CompleteTask | UpdateStatus) -> Record:
        """Take a worker's report on its task. A repeated report gets the same answer again."""
        workers = runner.workers or self._leaving.get(call.agent, runner).workers
        if workers is None:
            await self.tasks.find(call, report.id)  # only the owner of a task learns that it cannot be reported on
            raise UnsupportedOperation(f"{call.agent} is not a worker: only workers' tasks end from outside")
        task = await self.tasks.pin_reported(call, report.id)
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


def _unavailable(error: StoreError) -> Unavailable:
    if isinstance(error, StoreFull):
        return Unavailable("the server's disk is full: nothing was written, try again when there is space", 30)
    return Unavailable("the server's store cannot answer now: try again", 5)
