"""Delegation: tasks that an agent of this server gives to another one, on behalf of the same caller.

Invariant: a delegation is at most one task. Its id follows from the id of its parent and its number, so that a later
run of the parent finds the same task. `engine.delegated_tasks` ends it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from dragoman.dialects.extensions import ACTING, told_chain
from dragoman.engine.api import Delegation, Hear, Runner
from dragoman.engine.bounds import Bounds
from dragoman.engine.delegated_tasks import DelegatedTasks
from dragoman.engine.effects import ParentRun
from dragoman.engine.files import Files
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.intake import AcceptedMessage, Origin
from dragoman.engine.leases import Neighbours
from dragoman.engine.lineage import check_lineage, child_of
from dragoman.engine.log import Log
from dragoman.engine.runs.replay import ReplayMismatch, delegation_to
from dragoman.engine.runs.services import RunServices
from dragoman.engine.stopping import Stopping
from dragoman.engine.subscriptions import Tail, TailServices
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.engine.words import QUESTIONS, Say
from dragoman.model.acting_chain import NOTE, Chain, joined_chain, metadata_of, spelled_chain
from dragoman.model.errors import A2AError, AgentNotFound, AgentOffline, Unavailable
from dragoman.model.events import ArtifactChunk, Delegated, Logged, StatusChanged
from dragoman.model.ids import new_id, timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Call, Manners, SendMessage
from dragoman.model.principal import Principal
from dragoman.model.task import INTERRUPTED, TaskHead, TaskState
from dragoman.store.api import Exists, Store, StoreError
from dragoman.store.audit import AuditEntry

ACTION = "Delegate"
"""The name of a delegation in the audit trail; its `peer` is the parent: `task:` and its id."""

WORKS = Manners(answers_with_message=False)
"""A delegation is always a task, even when its agent answers other callers directly."""

LATE = "{} did not finish in time."

DELETED = "The task of {} was deleted before its outcome was read."

Send = Callable[[Runner | None, Call, SendMessage, Origin | None], Awaitable[AcceptedMessage | Message]]
"""Sends a message to an agent. Without a runner, other replicas serve it. `Origin` makes the task a delegation."""


class AgentAway(Unavailable):
    """No replica serves an agent at present. One did of late, and may be started again just now."""


class Delegations:
    """Makes the tasks that agents delegate, and waits for their outcomes.

    The agents that are served can be given tasks here. Those of the `neighbours` are given them there.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        delegated: DelegatedTasks,
        send: Send,
        services: RunServices,
        *,
        trail: Trail | None,
        neighbours: Neighbours | None,
    ) -> None:
        self._served = supervisor.leases.served
        self._tasks = tasks
        self._supervisor = supervisor
        # A run that waits may take its time, also when the server stops.
        self._tail_services = TailServices(store, supervisor.loop, 60.0, Stopping())
        self._delegated = delegated
        self._send = send
        self._store = store
        self._clock = services.clock
        self._files = services.files
        self._bounds = services.bounds
        self._trail = trail
        self._neighbours = neighbours
        self._retry_s = services.retry_s
        self._awaited: dict[str, Log] = {}
        """The tasks whose outcome is waited for here."""
        self._deleted: set[str] = set()
        """Those of them that somebody has deleted."""

    # -- for a run -----------------------------------------------------------------------------------------------------

    async def carry_out(self, run: ParentRun, number: int, order: Delegation, hear: Hear | None) -> Delegated:
        """Make the task, unless it exists, and wait for its outcome. A refusal or a failure is an outcome, too.

        A task that the store loses meanwhile, because a standby has taken over, is made again. One that somebody
        deletes has failed.

        Raises ReplayMismatch if the task exists and belongs to another agent.
        """
        came = await self._follow(run, number, order, hear)
        while came is None:
            await asyncio.sleep(self._retry_s)
            came = await self._follow(run, number, order, hear, again=True)
        return came

    async def _follow(
        self, run: ParentRun, number: int, order: Delegation, hear: Hear | None, *, again: bool = False
    ) -> Delegated | None:
        """Make the task, unless it exists, and wait for its outcome. Returns None if the store has lost the task.

        Under the first lease of the parent nobody can have made the task, and deleted it, unless this is done `again`.
        """
        parent, child_id = run.log, child_of(run.head.id, number)
        parent.add_child(child_id)
        try:
            known = await self._delegated.pin(child_id)
            if known is not None and known.head.agent != order.agent:
                known.unpin()
                raise ReplayMismatch(
                    f"delegation {number}", delegation_to(known.head.agent), delegation_to(order.agent)
                )
            if known is None and (again or parent.row.epoch > 1) and await self._delegated.was_deleted(child_id):
                return self._failed_as_deleted(number, order.agent, child_id)
            child = known if known is not None else await self._create(run, child_id, order)
        except A2AError as refused:
            self._note(run.head, order.agent, "", type(refused).__name__)
            said = _said(str(refused))
            now = timestamp(self._clock.now_ms())
            return Delegated(number, order.agent, "", TaskState.REJECTED, now, said)
        self._awaited[child_id] = child
        try:
            late = None
            if not order.detach:
                late = await self._settled(run, child, order, hear, after=0 if known is None else child.seq)
            if child.gone:
                return self._outcome_of_deleted(number, order.agent, child_id)
            record = child.record()
            message = record.status.message
            if record.state is TaskState.CANCELED and message is None and (why := late or self._late(child)):
                message = _said(why)
            at = timestamp(self._clock.now_ms())
            came = Delegated(number, order.agent, child_id, record.state, at, message, record.artifacts, record.usage)
            return await self._files.delegated(came)
        finally:
            if self._awaited.get(child_id) is child:
                del self._awaited[child_id]
                self._deleted.discard(child_id)
            child.unpin()

    def _outcome_of_deleted(self, number: int, agent: str, child_id: str) -> Delegated | None:
        """The outcome of a task that is gone: None if the store has lost it, so that it is to be made again."""
        return self._failed_as_deleted(number, agent, child_id) if child_id in self._deleted else None

    def _failed_as_deleted(self, number: int, agent: str, child_id: str) -> Delegated:
        said = _said(DELETED.format(agent))
        return Delegated(number, agent, child_id, TaskState.FAILED, timestamp(self._clock.now_ms()), said)

    async def _create(self, run: ParentRun, child_id: str, order: Delegation) -> Log:
        """Make the task and pin it. Raises A2AError if it is refused.

        Waits for an agent that was served of late, until the task would be late, or the agent is missed no more.
        """
        head = run.head
        lineage = (*head.lineage, head.agent)
        check_lineage(lineage, order.agent)
        deadlines = [head.deadline_ms] if head.deadline_ms is not None else []
        if order.timeout_s is not None:
            deadlines.append(self._clock.now_ms() + int(order.timeout_s * 1000))
        deadline_ms, loop = min(deadlines, default=None), self._supervisor.loop
        late_s = None if deadline_ms is None else loop.time() + (deadline_ms - self._clock.now_ms()) / 1000
        origin = Origin(child_id, head.id, lineage, order.detach, deadline_ms)
        context_id = order.context_id or head.context_id
        chain = _chain_of(run.log)
        message = Message(
            message_id=f"{child_id}-0",
            role=Role.USER,
            parts=order.parts,
            context_id=context_id,
            metadata={ACTING: metadata_of(chain)} if chain else None,
        )
        send = SendMessage(message=message, skill=order.skill)
        while True:
            try:
                taken = await self._send_as_caller(run, order.agent, send, run.present_id, origin)
            except AgentAway:
                if late_s is not None and loop.time() >= late_s:
                    raise
                await asyncio.sleep(self._retry_s)
                continue
            except StoreError:
                await asyncio.sleep(self._retry_s)
                continue
            except Exists:  # a run that has lost its lease made it a moment ago
                if (child := await self._delegated.pin(child_id)) is not None:
                    return child
                continue
            self._note(head, order.agent, child_id, "")
            return taken.task

    async def _send_as_caller(
        self, run: ParentRun, agent: str, send: SendMessage, source: str | None, origin: Origin | None = None
    ) -> AcceptedMessage:
        """Send to the agent as it is served now, on behalf of the parent's caller. Raises A2AError or StoreError.

        `source` is the id of the caller's message to the parent whose headers go with it; None: the newest one.

        An agent that nobody serves, but was served of late, raises AgentAway.
        """
        serving = self._served.generation
        runner, neighbours = serving.runners.get(agent), self._neighbours
        if runner is None and (neighbours is None or not await neighbours.serve(agent)):
            if neighbours is not None and await neighbours.miss(agent):
                raise AgentAway(f"agent {agent} is served by no replica at present")
            raise AgentNotFound(agent)
        serving.enter()
        try:
            call = self._call(run, agent, send, source)
            if origin is None:  # an answer, which this run or another one of the parent may send again
                call = replace(call, idempotency_key=send.message.message_id)
            taken = await self._send(runner, call, send, origin)
        finally:
            serving.leave()
        assert not isinstance(taken, Message)  # WORKS asks for a task
        return taken

    def _call(self, run: ParentRun, agent: str, send: SendMessage, source: str | None) -> Call:
        return Call(
            operation=send,
            principal=Principal(run.head.owner, key=run.head.key, team=run.head.team),
            agent=agent,
            dialect="1.0",
            mount=f"/agents/{agent}",
            manners=WORKS,
            traceparent=run.traceparent,
            shown=None if run.log.headers is None else run.log.headers.passed_on(source),
        )

    async def _settled(
        self, run: ParentRun, child: Log, order: Delegation, hear: Hear | None, *, after: int
    ) -> str | None:
        """Wait until the task has ended, or asks a question that is not passed on.

        Returns the reason for the caller if the task was canceled here, else None.
        """
        loop, deadline_ms = self._supervisor.loop, child.head.deadline_ms
        deadline = None if deadline_ms is None else loop.time() + (deadline_ms - self._clock.now_ms()) / 1000
        late: str | None = None
        given = sum(message.message_id.startswith(_answer_id(child, "")) for message in child.record().history)
        for _ in range(given):
            run.replay.next_passed(child.head.id)
        heard = after if hear is None else 0  # an agent that runs again gets all chunks again
        watch: _Watch | None = None
        if order.progress or hear:
            watch = _Watch(run, child, self._tail, heard, self._files, self._bounds, order, hear, after)
        try:
            while not (child.terminal or child.gone):
                if not await _moved(child, watch, loop, deadline):
                    await self._delegated.cancel(child)
                    return LATE.format(order.agent)
                if child.terminal or child.gone or child.state not in INTERRUPTED:
                    continue
                if order.asks == "raise":
                    return None
                answer = run.replay.next_passed(child.head.id)
                if answer is None:
                    status = child.record().status
                    parts = status.message.parts if status.message is not None else QUESTIONS[TaskState.INPUT_REQUIRED]
                    parts = await self._files.parts(parts)
                    self._delegated.asks(child.head)
                    heeded = await run.pass_on(child, parts, auth=child.state is TaskState.AUTH_REQUIRED)
                    self._delegated.answered(child.head.id)
                    if heeded is None:  # the task no longer waits for an answer
                        late = None if deadline is None else LATE.format(order.agent)
                        continue
                    answer = heeded
                given += 1
                if (refused := await self._pass_answer(run, child, answer, given, deadline)) is not None:
                    await self._delegated.cancel(child)
                    return refused
            return late
        finally:
            run.replay.forget_passed(child.head.id)
            if watch is not None:
                watch.tail.close()

    def _late(self, child: Log) -> str | None:
        """The text for a task whose deadline has passed; None if it has not."""
        deadline_ms = child.head.deadline_ms
        return None if deadline_ms is None or self._clock.now_ms() < deadline_ms else LATE.format(child.head.agent)

    async def _pass_answer(
        self, run: ParentRun, child: Log, answer: Message, number: int, deadline: float | None
    ) -> str | None:
        """Pass the caller's answer to the child, while there is time. Returns why it was refused, else None."""
        head = child.head
        message = Message(
            message_id=_answer_id(child, str(number)), role=Role.USER, parts=answer.parts, task_id=head.id
        )
        send = SendMessage(message=message)
        while not child.terminal and (deadline is None or self._supervisor.loop.time() < deadline):
            try:
                taken = await self._send_as_caller(run, head.agent, send, answer.message_id)
                taken.task.unpin()
                if child.seq < taken.seq:  # an earlier try, or another run of the parent, has written it
                    await self._tasks.catch_up(child)
            except (StoreError, AgentOffline, Unavailable):
                await asyncio.sleep(self._retry_s)
            except A2AError as refused:
                return None if child.terminal else str(refused)
            else:
                return None
        return None

    def _tail(self, child: Log, after: int) -> Tail:
        return Tail(child, self._tail_services, after=after)

    def _note(self, parent: TaskHead, agent: str, task_id: str, reason: str) -> None:
        trail = self._trail
        if trail is None or not (reason or trail.keeps(parent.owner)):
            return
        trail.note(
            AuditEntry(
                at_ms=self._clock.now_ms(),
                principal=parent.owner,
                action=ACTION,
                agent=agent,
                task_id=task_id,
                allowed=not reason,
                reason=reason,
                peer=f"task:{parent.id}",
                key=parent.key,
            )
        )

    async def find_deleted(self) -> None:
        """Have nobody wait for a task that was deleted elsewhere, of which no hint has told. Raises StoreError."""
        if not self._awaited or self._neighbours is None:
            return
        replicas, awaited = self._store.replicas, dict(self._awaited)
        history = replicas.history
        missing = await self._store.missing([child_id for child_id, log in awaited.items() if log.seq])
        if replicas.history != history:
            return  # it may have been lost instead, which all logs are compared for
        for child_id in missing:
            child = awaited[child_id]
            if self._awaited.get(child_id) is child and not (child.outdated or child.gone or child.terminal):
                self._deleted.add(child_id)
                child.rewind(None)
                self._tasks.forget(child_id)


class _Watch:
    """Relays the events of a delegated task: its progress to the parent's caller, its chunks to the parent's agent."""

    def __init__(
        self,
        run: ParentRun,
        child: Log,
        open_tail: Callable[[Log, int], Tail],
        after: int,
        files: Files,
        bounds: Bounds,
        order: Delegation,
        hear: Hear | None,
        reported: int,
    ) -> None:
        """Begin behind seq `after`. An earlier run has reported the progress up to seq `reported` in the parent."""
        self.tail = open_tail(child, after)
        self._child = child
        self._open_tail = open_tail
        self._run = run
        self._files = files
        self._bounds = bounds
        self._order = order
        self._hear = hear
        self._reported = reported
        self._begun = reported if hear is None else 0
        self._told = 0

    def behind(self, child: Log) -> bool:
        """Whether there are events that have not been relayed."""
        return max(self._told, self._begun) < child.seq

    async def next(self, wait_s: float | None) -> None:
        """Wait for the next events and relay them."""
        items = await self.tail.next(wait_s)
        if items is None:  # the store has lost what was relayed last: what comes in its place is relayed, too
            self.tail.close()
            self._told = self._begun = self._child.seq
            self.tail = self._open_tail(self._child, self._told)
        for item in items or ():
            if isinstance(item, Logged):
                self._told = item.seq
                await self._relay(item)

    async def _relay(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, ArtifactChunk) and self._hear is not None:
            await self._hear(await self._files.chunk(event))
        elif isinstance(event, StatusChanged) and event.state is TaskState.WORKING and self._order.progress:
            if logged.seq <= self._reported or (event.message is None and event.progress is None):
                return
            parts = await self._files.parts(event.message.parts) if event.message is not None else ()
            steps = None if event.progress is None else (event.progress.current, event.progress.total)
            report = Say(_marked(self._order.agent, parts, self._bounds.max_text), steps).check(self._bounds)
            if (waits := self._run.say(report)) is not None:
                await waits


def _marked(agent: str, parts: Sequence[Part], max_text: int) -> tuple[Part, ...]:
    """Prefix the parts with the name of the agent that said them. A text that is as long as one may be stays whole."""
    if parts and (text := parts[0].text) is not None and len(marked := f"{agent}: {text}") <= max_text:
        return (replace(parts[0], text=marked), *parts[1:])
    return (Part(text=f"{agent}:"), *parts)


async def _moved(child: Log, watch: _Watch | None, loop: asyncio.AbstractEventLoop, deadline: float | None) -> bool:
    """Wait until the task has ended or asks, and that has been relayed. Returns False if the deadline passes first."""
    while not child.gone:
        if (child.terminal or child.state in INTERRUPTED) and (watch is None or not watch.behind(child)):
            return child.terminal or deadline is None or loop.time() < deadline
        if deadline is not None and loop.time() >= deadline:
            return False
        if watch is not None:
            await watch.next(None if deadline is None else max(0.0, deadline - loop.time()))
        else:
            await child.followers.wait(child, loop, deadline)
    return True


def _answer_id(child: Log, number: str) -> str:
    return f"{child.head.id}-answer-{number}"


def _said(text: str) -> Message:
    return Message(message_id=new_id(), role=Role.AGENT, parts=(Part(text=text),))


def _chain_of(parent: Log) -> Chain:
    """The acting chain of a task, for the tasks that it delegates. Most tasks have neither come from another agent nor
    exchanged a token, so that their records are not looked at."""
    own = parent.fold.note_of(NOTE)
    if not (own or parent.head.lineage):
        return ()
    history = parent.record().history
    told = told_chain(history[0].metadata) if history else ()
    return joined_chain(told, spelled_chain(own))
