"""The engine: what each operation means.

Invariant: the task row is written before any agent code runs (invariant 7), and no answer or event leaves here that is
not committed (invariant 2).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import assert_never

from msgspec.structs import replace

from dragoman.engine import policy
from dragoman.engine.announcer import Announcer
from dragoman.engine.announcing import may_refuse
from dragoman.engine.api import Reported, Runner
from dragoman.engine.delegations import Delegations
from dragoman.engine.dispatch import Dispatch
from dragoman.engine.endings import refusal_of
from dragoman.engine.files import Files
from dragoman.engine.generation import Generation
from dragoman.engine.handler import Answered, Stream
from dragoman.engine.intake import Intake
from dragoman.engine.lineage import server_name
from dragoman.engine.listing import page
from dragoman.engine.live import STALLED_S, wait_until
from dragoman.engine.observer import Observer
from dragoman.engine.registry import Registry
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tail import DirectStream
from dragoman.engine.tails import Tails
from dragoman.engine.trail import Trail
from dragoman.engine.webhooks import Webhooks
from dragoman.engine.writer import RETRY_S
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
from dragoman.model.ids import Clock
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
from dragoman.model.task import INTERRUPTED, Record, TaskState
from dragoman.store.api import Store, StoreError, StoreFull

FIRST_CONTACT_S = 2.0
"""How long a stream waits to open until an agent elsewhere has taken the task on, or refuses it: then the caller reads
an error with `Retry-After` in place of a stream. An agent is refused a connection, retries included, within 1.6 s."""


class Engine:
    """The Handler at the bottom of the stack: see `engine.handler.Handler`.

    Without an `announcer` there are no webhooks. `identified` says whether callers of an agent must say who they are,
    now: then it has an extended card. `trail` is told what agents delegate.
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
    ) -> None:
        self._store = store
        self._serving = Generation(runners)
        self._runners = runners
        self._leaving: dict[str, Runner] = {}
        self._clock = clock
        self._settings = settings
        self._identified = identified
        self._registry = Registry(store, observer, announcer, self._pushes)
        self._webhooks = Webhooks(store, self._registry, announcer) if announcer is not None else None
        server = server_name(name or holder)
        self._delegations = delegations = Delegations(self._serving, self._registry, store, clock, trail)
        self._dispatch = Dispatch(
            runners, self._registry, store, clock, settings, holder, delegations, observer, server=server, files=files
        )
        self._intake = Intake(store, self._registry, self._dispatch, clock, settings, self._webhooks, server)
        self._tails = Tails(store, self._registry, self._dispatch, settings.keepalive_s, lambda: self._stopping)
        delegations.begin(self._intake, self._dispatch)
        self._stopping = False
        self._stopped = False

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Take up what a previous process left behind. The store is open; runs belong to `group` from now on."""
        self._dispatch.begin(group)
        await self._dispatch.recover(await self._store.unfinished())
        self._delegations.children.left(await self._store.asking())

    async def drain(self, grace_s: float) -> None:
        """Take no new work, end all streams with the hint to come back, give running tasks `grace_s` to end."""
        self._stopping = True
        for live in self._registry.all():
            live.wake()
        await self._dispatch.drain(grace_s)
        self._stopped = True
        for live in self._registry.all():
            live.wake()

    def _pushes(self, agent: str) -> bool:
        """Whether webhooks are told of that agent's tasks."""
        runner = self._runners.get(agent)
        return runner is None or runner.profile.pushes

    @property
    def stopping(self) -> bool:
        """Whether the engine takes no new work any more."""
        return self._stopping

    # -- other agents ------------------------------------------------------------------------------------------------

    def serve(self, runners: Mapping[str, Runner]) -> Generation:
        """Have these agents from now on, all at once. Returns those of before: what runs goes on with them.

        Of an agent that is not among them, workers may go on reporting until `finished` has returned.
        """
        old, self._serving = self._serving, Generation(runners)
        self._runners = self._dispatch.runners = runners
        self._delegations.serving = self._serving
        self._leaving |= {agent: runner for agent, runner in old.runners.items() if runners.get(agent) is not runner}
        return old

    async def finished(self, old: Generation, left: Collection[Runner]) -> None:
        """Wait until nothing is done any more with those agents that `left` with `old`.

        A task that waits for its caller counts as long as its run is kept (`suspend_max_s`).
        """
        await old.idle()
        ids, loop = {runner.profile.id for runner in left}, self._dispatch.loop
        for live in self._registry.all():
            while live.head.agent in ids and live.in_flight and live.run is None:  # whoever sent it did not wait
                await wait_until(live, loop, loop.time() + RETRY_S)
        runs = [live.run for live in self._registry.all() if live.run is not None and live.run.runner in left]
        if tasks := [run.task for run in runs if run.task is not None]:
            await asyncio.wait(tasks)
        for agent in ids:
            if self._leaving.get(agent) in left:
                del self._leaving[agent]

    # -- Handler -----------------------------------------------------------------------------------------------------

    async def call(self, call: Call) -> Answered:
        """Answer a unary operation: see `engine.handler.Handler.call`."""
        runner = self._runner(call)
        operation = call.operation
        if self._stopping and isinstance(operation, SendMessage):
            raise _stopping()
        try:
            match operation:
                case SendMessage():
                    return await self._send(runner, call, operation)
                case GetTask(id=task_id):
                    return await self._registry.read_record(call, task_id)
                case ListTasks():
                    return await page(self._store, call, operation, self._settings.max_page_bytes)
                case CancelTask(id=task_id):
                    return await self._cancel(call, task_id)
                case CreatePushConfig() | GetPushConfig() | ListPushConfigs() | DeletePushConfig():
                    if self._webhooks is None or not runner.profile.pushes:
                        raise PushNotificationNotSupported
                    return await self._webhooks.answer(call, operation)
                case GetExtendedCard():
                    return self._extended(runner.profile)
                case Subscribe():
                    raise UnsupportedOperation("a subscription is a stream")
                case CompleteTask() | UpdateStatus():
                    return await self._report(runner, call, operation)
                case _:
                    assert_never(operation)
        except StoreError as error:
            raise _unavailable(error) from error

    async def stream(self, call: Call) -> Stream:
        """Open a stream: see `engine.handler.Handler.stream`."""
        runner = self._runner(call)
        if self._stopping:
            raise _stopping()
        if not runner.profile.streams:
            raise UnsupportedOperation(f"{call.agent} does not stream (capabilities.streaming): use SendMessage")
        try:
            match call.operation:
                case StreamMessage() as send:
                    return await self._stream(runner, call, send)
                case Subscribe(id=task_id):
                    return await self._tails.of_task(call, task_id)
                case _:
                    raise UnsupportedOperation("this operation is not a stream")
        except StoreError as error:
            raise _unavailable(error) from error

    def dialect_of(self, task_id: str, principal: Principal, agent: str, mount: str) -> str | None:
        """Who made a task, and how: see `engine.handler.Handler.dialect_of`."""
        try:
            found = self._store.head(task_id)
        except StoreError as error:
            raise _unavailable(error) from error
        if found is None:
            return None
        head = found[0]
        return head.dialect if (head.owner, head.agent, head.mount) == (principal.id, agent, mount) else None

    def agent_of(self, task_id: str, principal: Principal, mount: str) -> str | None:
        """Whose a task is that was sent to the server as a whole: see `engine.handler.Handler.agent_of`."""
        try:
            found = self._store.head(task_id)
        except StoreError as error:
            raise _unavailable(error) from error
        if found is None:
            return None
        head = found[0]
        own = (head.owner, head.mount) == (principal.id, mount) and principal.reaches(head.agent)
        return head.agent if own and head.agent in self._runners else None

    def _runner(self, call: Call) -> Runner:
        runner = self._runners.get(call.agent)
        if runner is None and isinstance(call.operation, CompleteTask | UpdateStatus):
            runner = self._leaving.get(call.agent)
        if runner is None:
            raise AgentNotFound(call.agent)
        return runner

    def _extended(self, profile: Profile) -> Profile:
        """What is on the extended card (A2A 1.0 §3.1.11)."""
        if self._identified is None or not self._identified(profile.id):
            raise UnsupportedOperation(f"callers of {profile.id} are not asked who they are: it has no extended card")
        return replace(profile, skills=(*profile.skills, *profile.extended_skills), extended_skills=())

    # -- SendMessage, SendStreamingMessage (A2A 1.0 §3.1.1, §3.1.2) ----------------------------------------------------

    async def _send(self, runner: Runner, call: Call, send: SendMessage) -> Record | Message:
        serving = self._serving
        serving.busy += 1
        try:
            taken = await self._intake.take(runner, call, send)
        finally:
            serving.done()
        if isinstance(taken, Message):
            return taken
        live, seq = taken.live, taken.seq
        try:
            if send.return_immediately:
                return live.record()
            timeout_s = self._settings.blocking_timeout_s
            settled = await live.settled(self._dispatch.loop, seq, timeout_s, lambda: self._stopped)
            record = live.record()
            if not send.message.task_id and (refused := refusal_of(record)) is not None:
                raise refused
            if call.manners.late_is_error and not settled and not self._stopped:
                # Also for a run that cannot write. After Unavailable clients send again, and it would be done twice.
                stalled = live.stalled(self._dispatch.loop) is not None
                raise TaskTimeout(live.head.id, STALLED_S if stalled else timeout_s)
            if call.manners.failure_is_error and record.state in (TaskState.FAILED, TaskState.REJECTED):
                raise AgentFailed(live.head.id, "" if record.status.message is None else record.status.message.text)
            return record
        finally:
            self._registry.unpin(live)

    async def _stream(self, runner: Runner, call: Call, send: StreamMessage) -> Stream:
        serving = self._serving
        serving.busy += 1
        try:
            taken = await self._intake.take(runner, call, send)
        finally:
            serving.done()
        if isinstance(taken, Message):
            return DirectStream(taken)
        try:
            if not send.message.task_id and may_refuse(runner):
                await taken.live.contacted(self._dispatch.loop, FIRST_CONTACT_S, lambda: self._stopping)
                if (refused := refusal_of(taken.live.record())) is not None:
                    raise refused
            return await self._tails.of_send(call, send, taken)
        finally:
            self._registry.unpin(taken.live)

    # -- CancelTask (A2A 1.0 §3.1.5) -----------------------------------------------------------------------------------

    async def _cancel(self, call: Call, task_id: str) -> Record:
        live, manners = self._registry.pin(call, task_id), call.manners
        try:
            canceled_before = live.state is TaskState.CANCELED
            if not live.terminal:
                await self._dispatch.cancel(live)
            if not live.terminal:
                raise TaskNotFound(task_id)  # it has been swept away
            canceled = live.state is TaskState.CANCELED and (manners.cancels_canceled or not canceled_before)
            if not (canceled or manners.cancels_ended):
                raise TaskNotCancelable(task_id, live.state.value)
            return live.record()
        finally:
            self._registry.unpin(live)

    # -- CompleteTask, UpdateStatus (BeeOS) ----------------------------------------------------------------------------

    async def _report(self, runner: Runner, call: Call, report: CompleteTask | UpdateStatus) -> Record:
        """What a worker says of its task; said again, it is answered again."""
        if not isinstance(runner, Reported):
            runner = self._leaving.get(call.agent, runner)
        if not isinstance(runner, Reported):
            self._registry.find(call, report.id)  # only the owner of a task learns that it cannot be reported on
            raise UnsupportedOperation(f"{call.agent} is not a worker: only workers' tasks end from outside")
        live = self._registry.pin_reported(call, report.id)
        try:
            if live.terminal:
                fits = policy.repeats(await self._dispatch.files.record(live.record()), report)
            else:
                run, end = live.run, policy.end_of(report)
                if run is None and live.state in INTERRUPTED:
                    raise InvalidParams("id", "the task waits for its caller's message: then a worker gets it")
                await runner.report(report)
                while end is not None and not live.terminal and live.run is run:
                    if (failure := live.stalled(self._dispatch.loop)) is not None:
                        raise failure
                    await live.wait(self._dispatch.loop)
                fits = end is None or live.state is end
            record = live.record()
            if not fits:
                raise InvalidParams("id", f"task {report.id} is {record.state.value}: nothing was changed")
            return record
        finally:
            self._registry.unpin(live)


def _unavailable(error: StoreError) -> Unavailable:
    if isinstance(error, StoreFull):
        return Unavailable("the server's disk is full: nothing was written, try again when there is space", 30)
    return Unavailable("the server's store cannot answer now: try again", 5)


def _stopping() -> Unavailable:
    return Unavailable("the server is stopping: send again in a moment")
